# SPDX-License-Identifier: Apache-2.0
"""Tests the gradient of a tensor that attention adds to the scores on every device, against
PyTorch's in float64."""

import importlib
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

# Bounds relative to the largest element, at least 1, for each row that is summed over: the rounding
# of attention's result is in all scores of its row, and adds up over rows as random numbers do.
BOUNDS = {
    torch.float32: 1e-5,
    torch.float16: 2.4e-3,
    torch.bfloat16: 1.8e-2,
    torch.float64: 1e-13,
}
# Which of batch, head, query and key are summed over.
SUMS = ["", "b", "h", "q", "k", "bh", "bhq", "hq", "bhk", "qk", "bhqk"]


def op():
    return opdock.load("attention/attention_added_backward")


def shape_of(q, k, sums):
    sizes = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    return tuple(1 if name in sums else size for name, size in zip("bhqk", sizes, strict=True))


def check(device, q, k, v, sums, grad_lse=None, has_lse=True, wide=False, mask=None, **options):
    """Compares the gradient of a bias with the oracle's; returns it."""
    only_by_night(device, q.dtype, q.shape[-1])
    kind = torch.float32 if wide else q.dtype
    bias = random(shape_of(q, k, sums), kind, 5, 1.0)
    grad = random(q.shape, q.dtype, 9, 1.0)
    learnt = bias.to(torch.float64, copy=True).requires_grad_()
    added = learnt if mask is None else learnt + mask.double()
    inputs = [x.double().nan_to_num() for x in (q, k, v)]
    result, lse = oracle(*inputs, added=added, **options)
    total = (result * grad.double()).sum()
    if grad_lse is not None:
        total = total + (lse * grad_lse.double())[lse.isfinite()].sum()
    (wanted,) = torch.autograd.grad(total, learnt)
    result, lse = result.detach(), lse.detach()
    found = on(device, op())(
        *(grad, q, k, v, result.to(q.dtype), bias),
        lse.to(torch.float64 if q.dtype == torch.float64 else torch.float32) if has_lse else None,
        *(grad_lse,),
        **options,
        bias=bias,
        mask=mask,
    )
    row_cases.assert_like(found, bias)
    rows = q.shape[0] * q.shape[1] * q.shape[2] / bias.shape[:3].numel()
    bound = BOUNDS[q.dtype] * max(1.0, wanted.abs().max().item()) * rows**0.5
    assert (found.double() - wanted).abs().max() <= bound
    return found


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("shape", [(2, 20, 35, 4, 2, 64), (3, 70, 40, 2, 2, 24)])
def test_sums(device, dtype, shape, sums):
    check(device, *tensors(shape, dtype), sums)


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 1, 1, 1), (1, 7, 9, 3, 1, 33), (2, 66, 70, 2, 1, 128), (1, 9, 12, 2, 1, 200)],
)
@pytest.mark.parametrize("options", [{"causal": True}, {"causal": True, "window": 7}])
def test_shapes(device, dtype, shape, options):
    check(device, *tensors(shape, dtype), "b", **options)


@pytest.mark.parametrize("sums", ["b", "hq"])
def test_without_logarithms(device, dtype, sums):
    check(device, *tensors((2, 20, 35, 4, 2, 64), dtype), sums, has_lse=False, wide=True)


@pytest.mark.parametrize("sums", ["", "b", "bhq"])
def test_lengths_and_masks(device, dtype, sums):
    """Keys beyond a row's length are not read, and have no gradient."""
    q, k, v = tensors((3, 18, 36, 2, 1, 40), dtype)
    lengths = torch.tensor([0, 36, 5], dtype=torch.int32)
    for b, length in enumerate(lengths.tolist()):
        k[b, length:] = v[b, length:] = float("nan")
    mask = torch.zeros(1, 1, 1, 36)
    mask[..., 3:20] = -float("inf")
    found = check(device, q, k, v, sums, lengths=lengths, mask=mask)
    assert not found[..., 3:20].any()
    if not sums:
        assert not found[0].any() and not found[2, ..., 5:].any()


def test_the_gradient_of_the_logarithms_counts(device, dtype):
    q, k, v = tensors((2, 9, 20, 4, 2, 64), dtype)
    grad_lse = random((2, 9, 4), torch.float32, 7).transpose(1, 2)
    check(device, q, k, v, "b", grad_lse, causal=True)


def test_strides(device, dtype):
    """Keys by columns, and a gradient of the result that is expanded."""
    only_by_night(device, dtype, 64, plain=True)
    q, k, v = tensors((2, 20, 36, 4, 2, 64), dtype)
    check(device, q, by_columns(k), v, "b")
    one = random((1, 1, 1, 1), dtype, 3).expand(q.shape)
    like = torch.empty(1, dtype=dtype).expand(1, 4, 20, 36)
    whole = on(device, op())(one.contiguous(), q, k, v, q, like)
    found = on(device, op())(one, q, k, v, q, like)
    bound = BOUNDS[dtype] * max(1.0, whole.abs().max().item())
    assert (found.double() - whole.double()).abs().max() <= bound


def test_without_the_tensor_there_is_no_result(device):
    q, k, v = tensors((1, 3, 5, 2, 1, 8), torch.float32)
    assert on(device, op())(q, q, k, v, q, None) is None


@pytest.mark.parametrize(
    "shape", [(0, 1, 5, 2, 1, 8), (1, 0, 5, 2, 1, 8), (1, 2, 0, 2, 1, 8), (1, 2, 3, 0, 0, 8)]
)
def test_zero_sizes(device, dtype, shape):
    only_by_night(device, dtype, 8)
    q, k, v = tensors(shape, dtype)
    for sums in ("", "bhqk"):
        found = on(device, op())(q, q, k, v, q, torch.ones(shape_of(q, k, sums), dtype=dtype))
        assert found.shape == shape_of(q, k, sums) and not found.any()


def test_float64_is_for_the_cpu(device):
    q, k, v = tensors((2, 13, 40, 4, 2, 70), torch.float64)
    if device == "cpu":
        for sums in ("", "bh"):
            check(device, q, k, v, sums, causal=True)
        check(device, q, k, v, "hq", has_lse=False)
    else:
        with pytest.raises(opdock.OpdockError, match="float64"):
            on(device, op())(q, q, k, v, q, torch.ones(1, 1, 1, 1, dtype=torch.float64))


def test_a_wrong_length(device):
    q, k, v = tensors((2, 1, 5, 2, 1, 8), torch.float32)
    lengths = torch.tensor([6, 3], dtype=torch.int32)
    args = (q, q, k, v, q, torch.ones(2, 1, 1, 5))
    if device == "cpu":
        row_cases.assert_refused(op(), "lengths", *args, lengths=lengths)
        return
    found = on(device, op())(*args, lengths=lengths)
    assert found[0].isnan().all() and found[1].isfinite().all()


def test_threads_share_the_work(several_threads):
    q, k, v = tensors((2, 60, 50, 4, 2, 64), torch.float32)
    found = check("cpu", q, k, v, "b", causal=True)
    torch.set_num_threads(1)
    assert torch.equal(found, check("cpu", q, k, v, "b", causal=True))


@pytest.mark.parametrize(
    "added",
    [torch.ones(2, 2, 3, 5), torch.ones(2, 4, 3), torch.ones(2, 4, 3, 5).to(torch.int8)],
    ids=["heads", "dimensions", "dtype"],
)
def test_bad_inputs_name_the_argument(device, added):
    q, k, v = tensors((2, 3, 5, 4, 2, 8), torch.float32)
    row_cases.assert_refused(on(device, op()), "added", q, q, k, v, q, added)


def test_torch_learns_a_bias():
    """A bias that requires a gradient gets it, in both ops."""
    importlib.import_module("opdock.torch")
    q, k, v = (x.requires_grad_() for x in tensors((2, 5, 6, 4, 2, 8), torch.float64))
    bias = random((1, 4, 5, 6), torch.float64, 5, 1.0).requires_grad_()
    names = torch.ops.opdock
    ways = (
        lambda *x: names.attention(*x[:3], bias=x[3]),
        lambda *x: names.attention_forward(*x[:3], bias=x[3], dtype=torch.float64),
    )
    for way in ways:
        assert torch.autograd.gradcheck(way, (q, k, v, bias))
