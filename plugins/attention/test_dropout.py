# SPDX-License-Identifier: Apache-2.0
"""Tests attention_dropout and its gradients on every device: against the formula in float64, with
the weights that the definition of the random numbers drops."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock._author.on_device import is_soft
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attention_cases import by_columns, oracle, tensors

BOUNDS = {torch.float32: 1e-5, torch.float16: 2.4e-3, torch.bfloat16: 1.8e-2, torch.float64: 1e-13}
SEED = 0xFEDC_BA98_7654_3210
#: What divides by 4 and what does not; a block number that outgrows 32 bits.
OFFSETS = [0, 5, 2**34 - 6]
CAUSAL = [{}, {"causal": True}, {"causal": True, "window": 7}]
# (B, S, L, H, KV, D): tiles of queries and keys and their tails, grouped queries, heads without
# whole vectors.
SHAPES = [
    (2, 33, 33, 4, 2, 64),
    (1, 1, 40, 3, 1, 33),
    (2, 70, 75, 2, 2, 40),
    (1, 20, 130, 4, 1, 64),
]


def op(name="attention_dropout"):
    return opdock.load(f"attention/{name}")


def philox(blocks, seed):
    """Returns the four words of Philox4x32-10 for each block, [4, n]."""
    zero = np.zeros_like(blocks)
    c = [blocks & np.uint64(0xFFFFFFFF), blocks >> np.uint64(32), zero, zero]
    low, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    for turn in range(10):
        k0 = np.uint64(((seed & 0xFFFFFFFF) + turn * 0x9E3779B9) % 2**32)
        k1 = np.uint64(((seed >> 32) + turn * 0xBB67AE85) % 2**32)
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> word ^ c[1] ^ k0, b & low, a >> word ^ c[3] ^ k1, a & low]
    return np.stack(c)


def kept(shape, p, offset):
    """Returns which weights are kept, [B, H, S, L], and the first block."""
    batch, queries, keys, heads = shape[:4]
    first, each = -(-offset // 4), -(-keys // 16) * 4
    rows = np.arange(batch * heads * queries, dtype=np.uint64)[:, None]
    words = philox(
        rows * np.uint64(each) + np.uint64(first) + np.arange(each, dtype=np.uint64), SEED
    )
    key = np.arange(keys)
    words = words[key % 16 // 8 * 2 + key % 2, :, key // 16 * 4 + key % 8 // 2].T  # [rows, keys]
    keep = words.astype(object) >= p * 2**32  # exact
    return torch.from_numpy(keep.astype(bool)).view(batch, heads, queries, keys), first


def wanted_of(q, k, v, p, keep, **options):
    """Returns the result and the logarithms in float64: the oracle's weights are its result for
    values that are a unit matrix."""
    heads, keys = q.shape[2], k.shape[1]
    units = torch.eye(keys, dtype=torch.float64)[None, :, None].expand(q.shape[0], -1, heads, -1)
    keys_of_heads = k.double().repeat_interleave(heads // k.shape[2], 2)
    weights, lse = oracle(
        q, keys_of_heads, units, scale=options.pop("scale", q.shape[3] ** -0.5), **options
    )
    weights = weights.transpose(1, 2) * keep * (0.0 if p == 1 else 1 / (1 - p))
    values = v.double().transpose(1, 2).repeat_interleave(heads // v.shape[2], 1)
    return (weights @ values).transpose(1, 2), lse


def check(device, shape, dtype, p=0.3, offset=5, k_of=None, **options):
    if shape[-1] > 64 and device != "cpu" and is_soft() and "OPDOCK_TEST_NIGHTLY" not in os.environ:
        pytest.skip("needs kernels that are compiled for software GPUs by night")
    q, k, v = tensors(shape, dtype)
    keep, first = kept(shape, p, offset)
    inputs = [x.double().clone().requires_grad_() for x in (q, k, v)]
    wanted, sums = wanted_of(*inputs, p, keep, **options)
    given = (q, k if k_of is None else k_of(k), v)
    result, lse, seed = on(device, op())(*given, p, generator=(SEED, offset), **options)
    row_cases.assert_like(result, q)
    bound = BOUNDS[dtype] * max(1.0, wanted.abs().max().item())
    assert (result.double() - wanted).abs().max() <= bound
    assert torch.equal(lse.isneginf(), sums.isneginf())
    torch.testing.assert_close(lse.double(), sums.detach(), rtol=2e-6, atol=4e-6)
    assert seed.tolist() == [SEED - 2**64, first]
    grad = random(q.shape, dtype, 9, 1.0)
    grads = torch.autograd.grad((wanted * grad.double()).sum(), inputs)
    found = on(device, op("attention_dropout_backward"))(
        *(grad, *given, wanted.detach().to(dtype), lse, None, seed, p), **options
    )
    for one, x, right in zip(found, (q, k, v), grads, strict=True):
        row_cases.assert_like(one, x)
        bound = BOUNDS[dtype] * max(1.0, right.abs().max().item())
        assert (one.double() - right).abs().max() <= bound
    return result, *found


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(device, dtype, shape, causal):
    check(device, shape, dtype, **causal)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("p", [0.0, 0.9, 1.0])
def test_probabilities_and_offsets(device, dtype, p, offset):
    result = check(device, (1, 20, 40, 2, 1, 64), dtype, p, offset)[0]
    assert p != 1 or not result.any()


def test_slopes_scale_and_strides(device, dtype):
    slopes = torch.tensor([0.5, 0.25])
    shape = (1, 20, 40, 2, 1, 64)
    check(device, shape, dtype, slopes=slopes, scale=0.3, causal=True)
    check(device, shape, dtype, k_of=lambda k: k.transpose(1, 2).contiguous().transpose(1, 2))


def test_without_dropout_it_is_attention(device, dtype):
    q, k, v = tensors((2, 20, 36, 4, 2, 64), dtype)
    mask = torch.zeros(1, 1, 1, 36)
    mask[..., 3:20] = -float("inf")
    options = {"mask": mask, "lengths": torch.tensor([36, 21], dtype=torch.int32)}
    found = on(device, op())(q, k, v, 0.0, generator=(SEED, 0), **options)[:2]
    wanted = on(device, op("attention_forward"))(q, k, v, **options)
    for one, right in zip(found, wanted, strict=True):
        assert (one.double() - right.double()).abs().max() <= BOUNDS[dtype]


def test_float64_is_for_the_cpu(device):
    if device == "cpu":
        check("cpu", (2, 13, 40, 4, 2, 70), torch.float64, causal=True)
        return
    with pytest.raises(opdock.OpdockError, match="float64"):
        check(device, (1, 3, 4, 2, 1, 8), torch.float64)


def test_zero_sizes(device, dtype):
    for shape in [
        (0, 1, 5, 2, 1, 64),
        (1, 0, 5, 2, 1, 64),
        (1, 2, 0, 2, 1, 64),
        (1, 2, 3, 0, 0, 64),
    ]:
        q, k, v = tensors(shape, dtype)
        result, lse, seed = on(device, op())(q, k, v, 0.5, generator=(SEED, 1))
        assert not result.any() and seed.tolist() == [SEED - 2**64, 1]
        found = on(device, op("attention_dropout_backward"))(q, q, k, v, q, lse, None, seed, 0.5)
        assert not any(x.any() for x in found)


def test_threads_share_the_work(several_threads):
    arguments = "cpu", (2, 100, 100, 4, 2, 64), torch.float32
    found = check(*arguments, causal=True)
    torch.set_num_threads(1)
    alone = check(*arguments, causal=True)
    assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("p", {"p": 1.5}),
        ("p", {"p": float("nan")}),
        ("k", {"k": by_columns(torch.ones(1, 8, 1, 8))}),
        ("k", {"k": torch.ones(1, 5, 1, 8, dtype=torch.int8)}),
        ("q", {"q": torch.ones(2, 8)}),
    ],
)
def test_bad_inputs_name_the_argument(device, name, change):
    given = {"q": torch.ones(1, 3, 2, 8), "k": torch.ones(1, 5, 1, 8), "p": 0.5} | change
    row_cases.assert_refused(
        on(device, op()), name, given["q"], given["k"], torch.ones(1, 5, 1, 8), given["p"]
    )
