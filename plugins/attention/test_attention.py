# SPDX-License-Identifier: Apache-2.0
"""Tests attention on every device, against the formula in float64."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

# Bounds relative to the largest value. float32: sums of D and L terms, whose error the exponential
# multiplies by the scores' size; 16 bits: one rounding of the weights and one of the result.
BOUNDS = {torch.float32: 3e-6, torch.float16: 1.2e-3, torch.bfloat16: 9e-3}
BOUNDS[torch.float64] = 1e-13
CACHES = [torch.int8, torch.float8_e4m3fn]
# (B, S, L, H, KV, D): single tokens, grouped queries, prompts; heads of every kernel's size,
# without a whole vector, and with part of one; rows and keys around the sizes of tiles.
SHAPES = [
    (2, 1, 77, 8, 2, 64),
    (1, 1, 1, 1, 1, 1),
    (2, 1, 700, 3, 1, 128),
    (1, 1, 40, 20, 1, 64),
    (1, 7, 9, 3, 1, 33),
    (2, 5, 130, 6, 3, 128),
    (1, 33, 33, 4, 4, 80),
    (1, 130, 131, 2, 2, 40),
    (1, 40, 100, 2, 1, 256),
    (1, 1, 70, 2, 2, 200),
]


def op(name="attention"):
    return opdock.load(f"attention/{name}")


def tensors(shape, dtype, seed=0):
    batch, queries, keys, heads, kv_heads, size = shape
    q = random((batch, queries, heads, size), dtype, seed, 1.0)
    return q, *(random((batch, keys, kv_heads, size), dtype, seed + i, 1.0) for i in (1, 2))


def oracle(q, k, v, lengths=None, added=None, slopes=None, scale=None, causal=False, window=0):
    """Computes the oracle one query at a time; added: [B, H, S, L]."""
    batch, queries, heads, size = q.shape
    q, k, v = (x.double() for x in (q, k, v))
    out = torch.zeros(q.shape, dtype=torch.float64)
    scale = size**-0.5 if scale is None else scale
    for b in range(batch):
        length = k.shape[1] if lengths is None else int(lengths[b])
        for i in range(queries):
            at = length - queries + i
            end = max(0, min(length, at + 1)) if causal else length
            first = max(0, at + 1 - window) if window else 0
            if first >= end:
                continue
            for h in range(heads):
                g = h // (heads // k.shape[2])
                score = k[b, first:end, g] @ q[b, i, h] * scale
                if added is not None:
                    score = score + added[b, h, i, first:end].double()
                if slopes is not None:
                    score = score + slopes[h].double() * (torch.arange(first, end) - at)
                if (score == -float("inf")).all():
                    continue
                out[b, i, h] = torch.softmax(score, 0) @ v[b, first:end, g]
    return out


def assert_close(found, wanted, v, dtype):
    row_cases.assert_like(found, wanted.to(dtype))
    bound = BOUNDS[dtype] * max(1.0, v.double().abs().max().item())
    assert (found.double() - wanted).abs().max() <= bound


@pytest.mark.parametrize("causal", [{}, {"causal": True}, {"causal": True, "window": 7}])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(device, dtype, shape, causal):
    q, k, v = tensors(shape, dtype)
    assert_close(on(device, op())(q, k, v, **causal), oracle(q, k, v, **causal), v, dtype)


def by_columns(k):
    """Returns k, [B, L, KV, D], with the tokens adjacent in memory: [B, KV, D, L]."""
    return k.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


# Shapes with whole vectors of keys, for all dtypes, and heads of every kernel's size; and some
# without.
COLUMNS = [
    (2, 1, 704, 3, 1, 128),
    (1, 1, 1024, 4, 2, 64),
    (1, 3, 72, 4, 4, 40),
    (2, 2, 264, 2, 1, 256),
    (2, 70, 136, 2, 2, 128),
    (1, 17, 72, 4, 1, 40),
    (1, 65, 80, 2, 2, 256),
]
COLUMNS += [(1, 1, 77, 8, 2, 64), (1, 20, 33, 2, 2, 33)]


@pytest.mark.parametrize("causal", [{}, {"causal": True}, {"causal": True, "window": 21}])
@pytest.mark.parametrize("shape", COLUMNS)
def test_keys_by_columns(device, dtype, shape, causal):
    """Keys and values that no query sees are not read, even if they are NaN."""
    q, k, v = tensors(shape, dtype)
    wanted = oracle(q, k, v, **causal)
    assert_close(on(device, op())(q, by_columns(k), v, **causal), wanted, v, dtype)
    batch, queries, keys, heads = shape[:4]
    mask = random((1, heads, queries, keys), dtype, 5)
    lengths = torch.tensor([keys - 9, keys][:batch], dtype=torch.int32)
    k[0, keys - 9 :] = v[0, keys - 9 :] = float("nan")
    if causal.get("window", keys) + queries + 9 <= keys:
        unseen = keys - 9 - queries - 20
        k[0, :unseen] = v[0, :unseen] = float("nan")
    added = mask.expand(batch, -1, -1, -1)
    wanted = oracle(q, k.nan_to_num(), v.nan_to_num(), lengths, added, **causal)
    found = on(device, op())(q, by_columns(k), v, lengths=lengths, mask=mask, **causal)
    assert_close(found, wanted, v.nan_to_num(), dtype)


@pytest.mark.parametrize(
    "shape", [(3, 1, 300, 4, 2, 64), (3, 6, 60, 4, 4, 32), (2, 70, 90, 2, 2, 64)]
)
def test_lengths(device, dtype, shape):
    """Keys and values beyond a row's length are not read, even if they are NaN."""
    q, k, v = tensors(shape, dtype)
    lengths = torch.tensor([0, shape[2], 5][: shape[0]], dtype=torch.int32)
    for b, length in enumerate(lengths.tolist()):
        k[b, length:] = float("nan")
        v[b, length:] = float("nan")
    for causal in (False, True):
        found = on(device, op())(q, k, v, lengths=lengths, causal=causal)
        wanted = oracle(q, k.nan_to_num(), v.nan_to_num(), lengths, causal=causal)
        assert_close(found, wanted, v.nan_to_num(), dtype)


@pytest.mark.parametrize("shape", [(2, 1, 90, 4, 2, 64), (2, 40, 50, 4, 2, 64)])
@pytest.mark.parametrize("wide", [False, True])
def test_mask_bias_and_slopes(device, dtype, shape, wide):
    q, k, v = tensors(shape, dtype)
    batch, queries, keys, heads = shape[:4]
    kind = torch.float32 if wide else dtype
    mask = torch.zeros(batch, 1, 1, keys, dtype=kind)
    mask[0, ..., 3:20] = -float("inf")
    bias = random((heads, queries, keys), kind, 5).permute(0, 2, 1).contiguous().mT[None]
    slopes = torch.tensor([0.5, 0.25, 0.0, 1.0])
    found = on(device, op())(
        q, k, v, mask=mask, bias=bias, slopes=slopes, scale=0.3, causal=queries > 1
    )
    wanted = oracle(q, k, v, None, mask + bias.double(), slopes, 0.3, queries > 1)
    assert_close(found, wanted, v * 2, dtype)


@pytest.mark.parametrize("queries", [1, 20])
def test_everything_masked_is_0(device, dtype, queries):
    q, k, v = tensors((1, queries, 30, 2, 2, 16), dtype)
    mask = torch.full((1, 1, 1, 30), -float("inf"))
    assert not on(device, op())(q, k, v, mask=mask).any()
    mask = torch.zeros(1, 1, queries, 30)
    mask[..., 0, :] = -float("inf")
    found = on(device, op())(q, k, v, mask=mask)
    assert not found[:, 0].any()
    assert queries == 1 or found[:, 1:].all(-1).any()


@pytest.mark.parametrize("shape", [(2, 1, 60, 4, 2, 64), (1, 30, 60, 4, 2, 64)])
def test_strides(device, dtype, shape):
    """Parts of a packed qkv, a cache with heads before tokens, results with gaps, and misaligned
    tensors."""
    q, k, v = tensors(shape, dtype)
    wanted = oracle(q, k, v)
    cache = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    assert_close(on(device, op())(q, *cache), wanted, v, dtype)
    for offset in (1, 8):
        parts = []
        for x in (q, k, v):
            wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 16, dtype=dtype)
            parts.append(wide[..., offset : offset + x.shape[-1]])
            parts[-1].copy_(x)
        out = torch.zeros(*q.shape[:-1], q.shape[-1] + 16, dtype=dtype)
        part = out[..., offset : offset + q.shape[-1]]
        on(device, op())(*parts, out=part)
        assert_close(part.contiguous(), wanted, v, dtype)
        assert out.count_nonzero() == part.count_nonzero()


def quantized(shape, dtype):
    """Returns k and v as append_kv writes them on the CPU, and their scales."""
    _, k, v = tensors(shape, torch.float32)
    most = [x.abs().amax(-1, keepdim=True) for x in (k, v)]
    if dtype == torch.int8:
        scales = [m / 127 for m in most]
        new = [(x / s).round().to(dtype) for x, s in zip((k, v), scales, strict=True)]
    else:
        scales = [m / 448 for m in most]
        new = [(x / s).to(dtype) for x, s in zip((k, v), scales, strict=True)]
    return new, [s[..., 0] for s in scales]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(
    "shape", [(2, 1, 77, 8, 2, 64), (1, 3, 300, 4, 2, 128), (1, 40, 40, 2, 2, 48)]
)
def test_caches_of_8_bits(device, dtype, cache, shape):
    q = tensors(shape, dtype)[0]
    (k, v), (k_scale, v_scale) = quantized(shape, cache)
    found = on(device, op())(q, k, v, k_scale=k_scale, v_scale=v_scale, causal=True)
    k, v = k.double() * k_scale[..., None], v.double() * v_scale[..., None]
    assert_close(found, oracle(q, k, v, causal=True), v, dtype)


@pytest.mark.parametrize("shape", [(0, 1, 5, 2, 1, 8), (1, 0, 5, 2, 1, 8), (1, 2, 0, 2, 1, 8)])
def test_zero_sizes(device, dtype, shape):
    q, k, v = tensors(shape, dtype)
    found = on(device, op())(q, k, v)
    assert found.shape == q.shape
    assert not found.any()


def test_lengths_that_are_none(device, dtype):
    q, k, v = tensors((2, 1, 5, 2, 1, 8), dtype)
    lengths = torch.tensor([6, 3], dtype=torch.int32)
    if device == "cpu":
        row_cases.assert_refused(op(), "lengths", q, k, v, lengths=lengths)
        return
    found = on(device, op())(q, k, v, lengths=lengths)
    assert found[0].isnan().all()
    assert found[1].isfinite().all()


def test_float64_is_for_the_cpu(device):
    q, k, v = tensors((2, 3, 40, 4, 2, 70), torch.float64)
    if device == "cpu":
        found = op()(q, k, v, causal=True)
        assert_close(found, oracle(q, k, v, causal=True), v, torch.float64)
    else:
        with pytest.raises(opdock.OpdockError, match="float64"):
            on(device, op())(q, k, v)


def test_bits_are_the_same_each_time(device, dtype):
    q, k, v = tensors((1, 1, 600, 4, 2, 64), dtype)
    first, *others = (on(device, op())(q, k, v) for _ in range(3))
    assert all(torch.equal(one, first) for one in others)


def bad_inputs():
    q, k = torch.ones(2, 3, 4, 8), torch.ones(2, 5, 2, 8)
    eight = k.to(torch.int8)
    return [
        ("q", (q[0], k, k), {}),
        ("q", (q.int(), k, k), {}),
        ("q", (torch.ones(2, 3, 8, 4).mT, k, k), {}),
        ("q", (torch.ones(1, 1, 1, 257), torch.ones(1, 1, 1, 257), torch.ones(1, 1, 1, 257)), {}),
        ("k", (q, k.half(), k.half()), {}),
        ("k", (q, k[:1], k[:1]), {}),
        ("k", (q, k[..., :6], k[..., :6]), {}),
        ("k", (q, torch.ones(2, 5, 3, 8), torch.ones(2, 5, 3, 8)), {}),
        ("v", (q, k, k[:, :4]), {}),
        ("v", (q, k, eight), {}),
        ("k_scale", (q, eight, eight), {}),
        ("k_scale", (q, k, k), {"k_scale": torch.ones(2, 5, 2)}),
        (
            "v_scale",
            (q, eight, eight),
            {"k_scale": torch.ones(2, 5, 2), "v_scale": torch.ones(2, 5)},
        ),
        ("lengths", (q, k, k), {"lengths": torch.tensor([1, 2])}),
        ("lengths", (q, k, k), {"lengths": torch.tensor([1], dtype=torch.int32)}),
        ("mask", (q, k, k), {"mask": torch.ones(2, 5)}),
        ("mask", (q, k, k), {"mask": torch.ones(2, 4, 3, 4)}),
        ("bias", (q, k, k), {"bias": torch.ones(2, 4, 3, 5).half()}),
        ("slopes", (q, k, k), {"slopes": torch.ones(3)}),
        ("scale", (q, k, k), {"scale": float("inf")}),
        ("window", (q, k, k), {"window": 3}),
        ("window", (q, k, k), {"window": -1, "causal": True}),
    ]


@pytest.mark.parametrize("number", range(22))
def test_bad_inputs_name_the_argument(device, number):
    name, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, op()), name, *args, **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize("queries", [1, 64])
def test_on_another_stream_and_in_a_graph(cuda, queries):
    k = random((1, 3000, 2, 128), torch.float16, 1, 1.0).to(cuda)
    q = random((1, queries, 8, 128), torch.float16, 2, 1.0).to(cuda)

    def attend(x):
        return op()(x, k, k)

    assert torch.equal(row_cases.on_another_stream(attend, q), attend(q))
    assert torch.equal(row_cases.in_a_graph(attend, q), attend(q))
