# SPDX-License-Identifier: Apache-2.0
"""Tests the gradients of attention on every device, against PyTorch's in float64."""

import sys
from pathlib import Path

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attention_cases import by_columns, only_by_night, oracle, tensors

# Bounds relative to the largest element of a gradient, at least 1. 16 bits: one rounding of the
# result, of the weights, of their gradients and of the sums.
BOUNDS = {
    torch.float32: 1e-5,
    torch.float16: 2.4e-3,
    torch.bfloat16: 1.8e-2,
    torch.float64: 1e-13,
}
CAUSAL = [{}, {"causal": True}, {"causal": True, "window": 7}]
# (B, S, L, H, KV, D): heads of every kernel's size, with and without whole vectors; grouped
# queries; fewer and more keys than queries, and tiles' tails.
SHAPES = [
    (2, 33, 33, 4, 2, 64),
    (1, 1, 1, 1, 1, 1),
    (1, 7, 9, 3, 1, 33),
    (2, 5, 70, 6, 3, 128),
    (1, 70, 75, 2, 2, 40),
    (1, 20, 17, 2, 1, 256),
    (1, 1, 40, 4, 1, 200),
    (1, 75, 66, 1, 1, 128),
]


def op():
    return opdock.load("attention/attention_backward")


def wanted_of(q, k, v, grad, grad_lse=None, **options):
    """Returns the result, the logarithms and the gradients, of PyTorch in float64."""
    inputs = [x.double().nan_to_num().requires_grad_() for x in (q, k, v)]
    result, lse = oracle(*inputs, **options)
    total = (result * grad.double()).sum()
    if grad_lse is not None:
        total = total + (lse * grad_lse.double())[lse.isfinite()].sum()
    grads = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return result.detach(), lse.detach(), grads


def check(device, q, k, v, options, grad=None, grad_lse=None, has_lse=True, **others):
    """Compares the gradients with the oracle's. others: options for the oracle in place of these.
    Returns what was found."""
    only_by_night(device, q.dtype, q.shape[-1])
    grad = random(q.shape, q.dtype, 9, 1.0) if grad is None else grad
    result, lse, wanted = wanted_of(q, k, v, grad, grad_lse, **(others or options))
    lse = lse.to(torch.float64 if q.dtype == torch.float64 else torch.float32)
    found = on(device, op())(
        *(grad, q, k, v, result.to(q.dtype), lse if has_lse else None, grad_lse),
        **options,
    )
    for one, x, right in zip(found, (q, k, v), wanted, strict=True):
        row_cases.assert_like(one, x)
        bound = BOUNDS[q.dtype] * max(1.0, right.abs().max().item())
        assert (one.double() - right).abs().max() <= bound
    return found


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(device, dtype, shape, causal):
    check(device, *tensors(shape, dtype), causal)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", [(2, 1, 300, 4, 2, 64), (1, 20, 25, 3, 1, 33)])
def test_without_logarithms(device, dtype, shape, causal):
    check(device, *tensors(shape, dtype), causal, has_lse=False)


@pytest.mark.parametrize("size", [24, 128])
def test_lengths(device, dtype, size):
    """Keys and values beyond a row's length are not read, and have gradients of 0."""
    q, k, v = tensors((4, 18, 36, 2, 1, size), dtype)
    lengths = torch.tensor([0, 36, 5, 33], dtype=torch.int32)
    for b, length in enumerate(lengths.tolist()):
        k[b, length:] = v[b, length:] = float("nan")
    for options, has_lse in zip(CAUSAL, (True, False, True), strict=True):
        found = check(device, q, k, v, options | {"lengths": lengths}, has_lse=has_lse)
        assert not found[0][0].any()
        for b, length in enumerate(lengths.tolist()):
            assert not any(x[b, length:].any() for x in found[1:])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("size", [40, 128])
def test_mask_bias_and_slopes(device, dtype, size, wide):
    q, k, v = tensors((2, 20, 36, 4, 2, size), dtype)
    kind = torch.float32 if wide else dtype
    mask = torch.zeros(2, 1, 1, 36, dtype=kind)
    mask[0, ..., 3:20] = -float("inf")
    bias = random((4, 20, 36), kind, 5).permute(0, 2, 1).contiguous().mT[None]
    slopes = torch.tensor([0.5, 0.25, 0.0, 1.0])
    options = {"slopes": slopes, "scale": 0.3, "causal": True}
    added = mask.double() + bias.double()
    check(device, q, k, v, options | {"mask": mask, "bias": bias}, **options, added=added)


def test_rows_that_are_masked_have_no_gradient(device, dtype):
    q, k, v = tensors((1, 20, 30, 2, 2, 16), dtype)
    mask = torch.zeros(1, 1, 20, 30)
    mask[..., :3, :] = -float("inf")
    found = check(device, q, k, v, {"mask": mask}, has_lse=False, added=mask)
    assert not found[0][:, :3].any() and found[0][:, 3:].any()
    mask[:] = -float("inf")
    assert not any(x.any() for x in check(device, q, k, v, {"mask": mask}, added=mask))


@pytest.mark.parametrize("has_lse", [True, False])
def test_the_gradient_of_the_logarithms_counts(device, dtype, has_lse):
    q, k, v = tensors((2, 9, 20, 4, 2, 64), dtype)
    grad_lse = random((2, 9, 4), torch.float32, 7).transpose(1, 2)
    check(device, q, k, v, {"causal": True}, None, grad_lse, has_lse)


@pytest.mark.parametrize("size", [64, 72])
def test_strides(device, dtype, size):
    """Parts of a packed qkv, a cache with heads before tokens, keys by columns, gradients of all
    strides, results with gaps, and misaligned tensors."""
    only_by_night(device, dtype, size, plain=True)
    shape = (1, 24, 40, 4, 2, size)
    q, k, v = tensors(shape, dtype)
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    check(device, *swapped, {})
    check(device, q, by_columns(k), v, {"causal": True})
    one = random((1, 1, 1, 1), dtype, 3)
    check(device, q, k, v, {}, grad=one.expand(q.shape))
    check(device, q, k, v, {}, grad=random((1, 4, size, 24), dtype, 3).permute(0, 3, 1, 2))
    grad = random(q.shape, dtype, 9, 1.0)
    result, lse, _ = wanted_of(q, k, v, grad)
    whole = on(device, op())(grad, q, k, v, result.to(dtype), lse.float())
    for offset in (1, 8):
        parts = []
        for x in (grad, q, k, v, result.to(dtype), *whole):
            wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 16, dtype=dtype)
            parts.append(wide[..., offset : offset + x.shape[-1]])
        for part, x in zip(parts, (grad, q, k, v, result.to(dtype)), strict=False):
            part.copy_(x)
        on(device, op())(*parts[:5], lse.float(), out=tuple(parts[5:]))
        for part, x in zip(parts[5:], whole, strict=True):
            bound = BOUNDS[dtype] * max(1.0, x.abs().max().item())
            assert (part.double() - x.double()).abs().max() <= bound
            assert part._base.count_nonzero() == part.count_nonzero()
    out = [
        torch.empty_like(whole[0]),
        by_columns(torch.zeros_like(k)),
        torch.empty_like(whole[2]),
    ]
    on(device, op())(grad, q, k, v, result.to(dtype), lse.float(), out=tuple(out))
    assert all(torch.equal(a, b) for a, b in zip(out, whole, strict=True))


ZERO = [(0, 1, 5, 2, 1, 8), (1, 0, 5, 2, 1, 8), (1, 2, 0, 2, 1, 8), (1, 2, 3, 0, 0, 8)]


@pytest.mark.parametrize("shape", [*ZERO, (1, 2, 3, 0, 2, 8)])
@pytest.mark.parametrize("has_lse", [True, False])
def test_zero_sizes(device, dtype, shape, has_lse):
    only_by_night(device, dtype, 8)
    q, k, v = tensors(shape, dtype)
    lse = torch.zeros(q.shape[0], q.shape[2], q.shape[1]) if has_lse else None
    found = on(device, op())(q, q, k, v, q, lse)
    for one, x in zip(found, (q, k, v), strict=True):
        assert one.shape == x.shape and not one.any()


def test_wrong_lengths(device, dtype):
    only_by_night(device, dtype, 8)
    q, k, v = tensors((2, 1, 5, 2, 1, 8), dtype)
    lengths = torch.tensor([6, 3], dtype=torch.int32)
    if device == "cpu":
        row_cases.assert_refused(op(), "lengths", q, q, k, v, q, lengths=lengths)
        return
    for one in on(device, op())(q, q, k, v, q, lengths=lengths):
        assert one[0].isnan().all() and one[1].isfinite().all()


def test_float64_is_for_the_cpu(device):
    q, k, v = tensors((2, 13, 40, 4, 2, 70), torch.float64)
    if device == "cpu":
        for has_lse in (True, False):
            check(device, q, k, v, {"causal": True}, has_lse=has_lse)
        # Logarithms in float32 are not precise enough, and are computed again.
        lse = torch.zeros(2, 4, 13)
        result = oracle(q, k, v)[0]
        assert torch.equal(op()(q, q, k, v, result, lse)[0], op()(q, q, k, v, result)[0])
    else:
        with pytest.raises(opdock.OpdockError, match="float64"):
            on(device, op())(q, q, k, v, q)


def test_bits_are_the_same_each_time(device, dtype):
    only_by_night(device, dtype, 64)
    q, k, v = tensors((1, 40, 40, 4, 2, 64), dtype)
    first, *others = (on(device, op())(q, q, k, v, q, causal=True) for _ in range(3))
    assert all(torch.equal(a, b) for one in others for a, b in zip(one, first, strict=True))


def test_threads_share_the_work(several_threads):
    q, k, v = tensors((2, 100, 100, 4, 2, 64), torch.float32)
    found = check("cpu", q, k, v, {"causal": True})
    torch.set_num_threads(1)
    alone = check("cpu", q, k, v, {"causal": True})
    assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))


def bad_inputs():
    q, k = torch.ones(2, 3, 4, 8), torch.ones(2, 5, 2, 8)
    lse = torch.ones(2, 4, 3)
    return [
        ("grad", (q[:1], q, k, k, q, lse), {}),
        ("grad", (q.half(), q, k, k, q, lse), {}),
        ("q", (q, q[0], k, k, q, lse), {}),
        ("k", (q, q, k.to(torch.int8), k.to(torch.int8), q, lse), {}),
        ("v", (q, q, k, k[:, :4], q, lse), {}),
        ("result", (q, q, k, k, q[..., :4], lse), {}),
        ("result", (q, q, k, k, torch.ones(2, 3, 8, 4).mT, lse), {}),
        ("lse", (q, q, k, k, q, lse.mT), {}),
        ("lse", (q, q, k, k, q, lse.double()), {}),
        ("grad_lse", (q, q, k, k, q, lse, lse[:1]), {}),
        ("lengths", (q, q, k, k, q, lse), {"lengths": torch.tensor([1, 2])}),
        ("bias", (q, q, k, k, q, lse), {"bias": torch.ones(2, 5)}),
        ("window", (q, q, k, k, q, lse), {"window": 3}),
    ]


@pytest.mark.parametrize("number", range(13))
def test_bad_inputs_name_the_argument(device, number):
    name, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, op()), name, *args, **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_another_stream_and_in_a_graph(cuda, dtype):
    q, k = (random((2, 200, h, 128), dtype, 1, 1.0).to(cuda) for h in (4, 2))

    def differentiate(x):
        return torch.cat(op()(x, q, k, k, q, causal=True), 2)

    assert torch.equal(row_cases.on_another_stream(differentiate, q), differentiate(q))
    assert torch.equal(row_cases.in_a_graph(differentiate, q), differentiate(q))
