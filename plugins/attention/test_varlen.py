# SPDX-License-Identifier: Apache-2.0
"""Tests attention_varlen and its gradients on every device: each sequence against float64 by
itself, and what lies behind the last one."""

import itertools
import os
import sys
from pathlib import Path

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock._author.on_device import is_soft
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attention_cases import oracle

# Bounds relative to the largest element, at least 1: those of test_attention.py and
# test_backward.py.
BOUNDS = {torch.float32: 3e-6, torch.float16: 1.2e-3, torch.bfloat16: 9e-3, torch.float64: 1e-13}
GRADIENT_BOUNDS = {
    torch.float32: 1e-5,
    torch.float16: 2.4e-3,
    torch.bfloat16: 1.8e-2,
    torch.float64: 1e-13,
}
CAUSAL = [{}, {"causal": True}, {"causal": True, "window": 7}]
# (heads, heads of keys, size of a head, queries of each sequence, keys of each, tokens behind):
# sequences without queries, without keys, of one token, of several tiles, with more queries than
# keys; and the tiles of groups of heads that end within a sequence.
CASES = {
    "long and short": (2, 2, 64, (1, 70, 0, 3, 64, 1), (1, 70, 5, 3, 66, 90), 0),
    "tokens behind": (4, 2, 64, (5, 17), (9, 8), 3),
    "no keys": (2, 1, 40, (2, 0, 35, 4), (0, 0, 20, 130), 2),
    "no whole vector": (3, 1, 33, (40, 3, 0), (41, 3, 7), 1),
    "one sequence": (3, 1, 64, (9,), (9,), 0),
    "nothing but the rest": (2, 2, 64, (), (), 4),
}


def op(name="attention_varlen"):
    return opdock.load(f"attention/{name}")


def tensors(name, dtype):
    """Returns q, k, v, and where the sequences begin among the queries and the keys. What lies
    behind the last key is NaN."""
    heads, kv_heads, size, queries, keys, rest = CASES[name]
    q = random((sum(queries) + rest, heads, size), dtype, 1, 1.0)
    k, v = (random((sum(keys) + rest, kv_heads, size), dtype, seed, 1.0) for seed in (2, 3))
    k[sum(keys) :] = v[sum(keys) :] = float("nan")
    starts = (
        torch.tensor([0, *itertools.accumulate(x)], dtype=torch.int32) for x in (queries, keys)
    )
    return q, k, v, *starts


def wanted_of(q, k, v, q_starts, k_starts, **options):
    """Returns the result and the logarithms, of the oracle for each sequence."""
    results, sums = [], []
    for at, of in zip(*(itertools.pairwise(x.tolist()) for x in (q_starts, k_starts)), strict=True):
        one, lse = oracle(q[None, slice(*at)], *(x[None, slice(*of)] for x in (k, v)), **options)
        results.append(one[0])
        sums.append(lse[0])
    rest = len(q) - int(q_starts[-1])
    results.append(torch.zeros(rest, *q.shape[1:], dtype=torch.float64))
    sums.append(torch.full((q.shape[1], rest), -float("inf"), dtype=torch.float64))
    return torch.cat(results), torch.cat(sums, 1)


def gradients_of(q, k, v, q_starts, k_starts, grad, grad_lse=None, **options):
    """Returns the result, the logarithms and the gradients, of the oracle in float64."""
    inputs = [x.double().nan_to_num().requires_grad_() for x in (q, k, v)]
    result, lse = wanted_of(*inputs, q_starts, k_starts, **options)
    total = (result * grad.double()).sum() + sum(0 * x.sum() for x in inputs)
    if grad_lse is not None:
        total = total + (lse * grad_lse.double())[lse.isfinite()].sum()
    grads = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return result.detach(), lse.detach(), grads


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("name", CASES)
def test_sequences(device, dtype, name, causal):
    given = tensors(name, dtype)
    result, lse = on(device, op())(*given, **causal)
    wanted, sums = wanted_of(*given, **causal)
    row_cases.assert_like(result, given[0])
    assert lse.dtype == torch.float32 and lse.shape == sums.shape
    most = max(1.0, given[2].nan_to_num().double().abs().max().item())
    assert (result.double() - wanted).abs().max() <= BOUNDS[dtype] * most
    assert torch.equal(lse.isneginf(), sums.isneginf())
    torch.testing.assert_close(lse.double(), sums, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("name", CASES)
def test_gradients(device, dtype, name, causal):
    q, k, v, *starts = tensors(name, dtype)
    grad = random(q.shape, dtype, 9, 1.0)
    grad_lse = random((q.shape[0], q.shape[1]), torch.float32, 7).T if "rest" not in name else None
    result, lse, wanted = gradients_of(q, k, v, *starts, grad, grad_lse, **causal)
    found = on(device, op("attention_varlen_backward"))(
        *(grad, q, k, v, result.to(dtype), lse.to(torch.promote_types(dtype, torch.float32))),
        *(grad_lse, *starts),
        **causal,
    )
    for one, x, right in zip(found, (q, k, v), wanted, strict=True):
        row_cases.assert_like(one, x)
        bound = GRADIENT_BOUNDS[dtype] * max(1.0, right.abs().max().item())
        assert (one.double() - right).abs().max() <= bound


@pytest.mark.parametrize("size", [64, 72])
def test_parts_of_one_tensor_slopes_and_scale(device, dtype, size):
    """q, k and v are parts of one tensor, and begin at any element of it."""
    if size > 64 and device != "cpu" and is_soft() and "OPDOCK_TEST_NIGHTLY" not in os.environ:
        pytest.skip("needs kernels that are compiled for software GPUs by night")
    starts = torch.tensor([0, 3, 20], dtype=torch.int32)
    slopes, heads = torch.tensor([0.5, 0.25]), (2, 1, 1)
    options = {"causal": True, "scale": 0.3, "slopes": slopes}
    for offset in (0, 1):
        whole = random((20, 4 * size + 8), dtype, 4, 1.0)[:, offset : offset + 4 * size]
        q, k, v = whole.unflatten(1, (4, size)).split(heads, 1)
        grad = random((2, size, 20), dtype, 5, 1.0).permute(2, 0, 1)
        result, lse, wanted = gradients_of(q, k, v, starts, starts, grad, **options)
        found = on(device, op())(q, k, v, starts, starts, **options)
        most = max(1.0, v.double().abs().max().item())
        assert (found[0].double() - result).abs().max() <= BOUNDS[dtype] * most
        found = on(device, op("attention_varlen_backward"))(
            grad, q, k, v, result.to(dtype), lse.float(), None, starts, starts, **options
        )
        for one, right in zip(found, wanted, strict=True):
            bound = GRADIENT_BOUNDS[dtype] * max(1.0, right.abs().max().item())
            assert (one.double() - right).abs().max() <= bound


def test_float64_is_for_the_cpu(device):
    given = tensors("no keys", torch.float64)
    if device != "cpu":
        with pytest.raises(opdock.OpdockError, match="float64"):
            on(device, op())(*given)
        return
    wanted, sums = wanted_of(*given, causal=True)
    result, lse = op()(*given, causal=True, dtype="float64")
    torch.testing.assert_close(result, wanted, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, sums, rtol=1e-13, atol=1e-13)
    row_cases.assert_refused(op(), "dtype", *given, dtype="float16")


@pytest.mark.parametrize("starts", [[1, 5], [0, 11], [-1, 3], [0, -2, 10], [0, 6, 4]])
def test_sequences_that_do_not_lie_within_the_tensors(device, starts):
    q, k = random((10, 2, 64), torch.float32, 1), random((10, 1, 64), torch.float32, 2)
    wrong = torch.tensor(starts, dtype=torch.int32)
    right = torch.linspace(0, 10, len(starts)).to(torch.int32)
    for at, name in ((3, "cu_seqlens_q"), (4, "cu_seqlens_k")):
        given = [q, k, k, right, right]
        given[at] = wrong
        if device == "cpu":
            row_cases.assert_refused(op(), name, *given)
            continue
        if starts == [0, 6, 4]:
            continue  # two sequences have the same tokens, whose results are those of either
        # Software GPUs find accesses outside of the tensors.
        result, lse = on(device, op())(*given)
        if at == 4:
            assert result[: int(right[1])].isnan().all()
        gradient = op("attention_varlen_backward")
        on(device, gradient)(q, *given[:3], q, torch.zeros_like(lse), None, *given[3:])


def test_zero_sizes(device, dtype):
    none = torch.zeros(3, dtype=torch.int32)
    for tokens, keys, heads, kv in [(0, 5, 2, 1), (3, 0, 2, 1), (0, 0, 2, 2), (3, 3, 0, 0)]:
        q = random((tokens, heads, 64), dtype, 1)
        k = random((keys, kv, 64), dtype, 2)
        result, lse = on(device, op())(q, k, k, none, none)
        assert result.shape == q.shape and not result.any() and lse.shape == (heads, tokens)
        found = on(device, op("attention_varlen_backward"))(q, q, k, k, q, lse, None, none, none)
        assert not any(x.any() for x in found)


def test_threads_share_the_work(several_threads):
    q, k = random((220, 4, 64), torch.float32, 1), random((220, 2, 64), torch.float32, 2)
    starts = torch.tensor([0, 1, 1, 90, 100, 210, 215], dtype=torch.int32)

    def computed():
        result, lse = op()(q, k, k, starts, starts, causal=True)
        gradient = op("attention_varlen_backward")
        return result, lse, *gradient(q, q, k, k, result, lse, None, starts, starts, causal=True)

    found = computed()
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(found, computed(), strict=True))


def bad_inputs():
    q, k = torch.ones(5, 4, 8), torch.ones(6, 2, 8)
    starts = torch.tensor([0, 5], dtype=torch.int32)
    return [
        ("q", (q[None], k, k, starts, starts), {}),
        ("q", (q.int(), k, k, starts, starts), {}),
        ("k", (q, k.half(), k, starts, starts), {}),
        ("k", (q, k[..., :4], k, starts, starts), {}),
        ("k", (q, torch.ones(6, 3, 8), torch.ones(6, 3, 8), starts, starts), {}),
        ("k", (q, torch.ones(6, 8, 2).mT, k, starts, starts), {}),
        ("v", (q, k, k[:5], starts, starts), {}),
        ("cu_seqlens_q", (q, k, k, starts.long(), starts), {}),
        ("cu_seqlens_q", (q, k, k, starts[:0], starts[:0]), {}),
        ("cu_seqlens_k", (q, k, k, starts, starts[:1]), {}),
        ("slopes", (q, k, k, starts, starts), {"slopes": torch.ones(2)}),
        ("window", (q, k, k, starts, starts), {"window": 2}),
        ("scale", (q, k, k, starts, starts), {"scale": float("nan")}),
    ]


@pytest.mark.parametrize("number", range(13))
def test_bad_inputs_name_the_argument(device, number):
    name, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, op()), name, *args, **keywords)


@pytest.mark.parametrize("name", ["grad", "result", "lse", "grad_lse"])
def test_bad_gradients_name_the_argument(device, name):
    q, lse = torch.ones(5, 4, 8), torch.ones(4, 5)
    given = {"grad": q, "result": q, "lse": lse, "grad_lse": lse}
    given[name] = given[name][..., :4]
    starts = torch.tensor([0, 5], dtype=torch.int32)
    args = given["grad"], q, q, q, given["result"], given["lse"], given["grad_lse"], starts, starts
    row_cases.assert_refused(on(device, op("attention_varlen_backward")), name, *args)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_another_stream_and_in_a_graph(cuda, dtype):
    q, k = (random((300, h, 128), dtype, 1, 1.0).to(cuda) for h in (4, 2))
    starts = torch.tensor([0, 120, 121, 300], dtype=torch.int32, device=cuda)

    def computed(x):
        result, lse = op()(x, k, k, starts, starts, causal=True)
        gradient = op("attention_varlen_backward")
        return torch.cat(gradient(x, x, k, k, result, lse, None, starts, starts, causal=True), 1)

    assert torch.equal(row_cases.on_another_stream(computed, q), computed(q))
    assert torch.equal(row_cases.in_a_graph(computed, q), computed(q))
