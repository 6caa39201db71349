# SPDX-License-Identifier: Apache-2.0
"""Tests append_kv on every device: places, the rotation by the formula of the op rope, and
quantization."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

PLACES = 20  # places in a cache's row


def op():
    return opdock.load("attention/append_kv")


def new(dtype, tokens=3, heads=4, kv_heads=2, size=64):
    q = random((2, tokens, heads, size), dtype, 0)
    return q, *(random((2, tokens, kv_heads, size), dtype, i) for i in (1, 2))


def caches(k, dtype):
    shape = (k.shape[0], PLACES, *k.shape[2:])
    return torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)


def tables(pairs, dtype=torch.float32):
    angles = torch.arange(PLACES)[:, None] * 0.7 ** torch.arange(pairs)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x, start, cos, sin, interleaved):
    """Computes the oracle with products of complex numbers in float64."""
    at = start[:, None].long() + torch.arange(x.shape[1])
    turn = torch.complex(cos.double(), sin.double())[at][:, :, None]
    pairs = turn.shape[-1]
    head = x[..., : 2 * pairs].double()
    a, b = head.unflatten(-1, (pairs, 2) if interleaved else (2, pairs)).unbind(
        -1 if interleaved else -2
    )
    y = torch.complex(a, b) * turn
    both = torch.stack([y.real, y.imag], -1 if interleaved else -2).flatten(-2)
    return torch.cat([both, x[..., 2 * pairs :].double()], -1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("size", "turned"), [(64, 64), (80, 32), (33, 6), (2, 2), (256, 256)])
def test_places_and_rotation(device, dtype, size, turned, interleaved):
    q, k, v = new(dtype, size=size)
    start = torch.tensor([0, 17], dtype=torch.int32)
    for narrow in (torch.float32, dtype):
        cos, sin = tables(turned // 2, narrow)
        k_cache, v_cache = caches(k, dtype)
        found = on(device, op())(
            q, k, v, k_cache, v_cache, start, cos, sin, interleaved=interleaved
        )
        step = torch.finfo(dtype).eps
        for got, x in ((found, q), (torch.stack([k_cache[0, :3], k_cache[1, 17:]]), k)):
            wanted = rotated(x, start, cos, sin, interleaved)
            error = (got.double() - wanted).abs()
            assert (error <= step * (wanted.abs() + 4e-7 * x.double().abs().max() / step)).all()
        assert torch.equal(torch.stack([v_cache[0, :3], v_cache[1, 17:]]), v)
        assert not v_cache[0, 3:].any()
        assert not k_cache[1, :17].any()


def test_without_tables_it_copies(device, dtype):
    qkv = random((2, 3, 8 * 64), dtype)
    q, k, v = (x.unflatten(-1, (-1, 64)) for x in qkv.split([256, 128, 128], -1))
    k_cache, v_cache = (torch.zeros(2, 2, PLACES, 64, dtype=dtype).transpose(1, 2) for _ in "kv")
    start = torch.tensor([4, 0], dtype=torch.int32)
    assert torch.equal(on(device, op())(q, k, v, k_cache, v_cache, start), q)
    assert torch.equal(k_cache[0, 4:7], k[0])
    assert torch.equal(v_cache[1, :3], v[1])


@pytest.mark.parametrize("size", [64, 33])
def test_without_queries(device, dtype, size):
    """For callers that need no copy of the queries."""
    q, k, v = new(dtype, size=size)
    k_cache, v_cache = caches(k, dtype)
    start = torch.tensor([1, 2], dtype=torch.int32)
    assert on(device, op())(q[:, :, :0], k, v, k_cache, v_cache, start).shape == (2, 3, 0, size)
    assert torch.equal(k_cache[1, 2:5], k[1]) and torch.equal(v_cache[0, 1:4], v[0])


@pytest.mark.parametrize("cache", [torch.int8, torch.float8_e4m3fn])
def test_quantization(device, dtype, cache):
    """Each head has its own scale; errors are at most half a step of the largest element, or of
    E4M3's three digits."""
    q, k, v = new(dtype)
    k[0, 0, 0] = 0
    k[1, 1, 1] *= 1e-3
    k_cache, v_cache = (torch.zeros(2, PLACES, 2, 64, dtype=torch.int8).view(cache) for _ in "kv")
    scales = [torch.zeros(2, PLACES, 2) for _ in "kv"]
    start = torch.tensor([2, 5], dtype=torch.int32)
    on(device, op())(q, k, v, k_cache, v_cache, start, k_scale=scales[0], v_scale=scales[1])
    for x, found, scale in ((k, k_cache, scales[0]), (v, v_cache, scales[1])):
        for b, first in enumerate(start.tolist()):
            got = found[b, first : first + 3].double() * scale[b, first : first + 3, :, None]
            wanted = x[b].double()
            most = wanted.abs().amax(-1, keepdim=True)
            step = most / 254 if cache == torch.int8 else (wanted.abs() / 16).maximum(most * 2**-18)
            assert ((got - wanted).abs() <= step * 1.001).all()
        assert scale.count_nonzero() == (11 if x is k else 12)


@pytest.mark.parametrize("start", [[18, 0], [-1, 0], [PLACES, 3]])
def test_places_that_are_none(device, dtype, start):
    """On the CPU this is an error, before anything is written; on a GPU only these tokens are
    affected."""
    q, k, v = new(dtype)
    k_cache, v_cache = caches(k, dtype)
    args = (q, k, v, k_cache, v_cache, torch.tensor(start, dtype=torch.int32), *tables(32))
    if device == "cpu":
        row_cases.assert_refused(op(), "start", *args)
        assert not k_cache.any()
        return
    found = on(device, op())(*args)
    good = [t for t in range(3) if start[0] >= 0 and start[0] + t < PLACES]
    assert found[1].isfinite().all()
    assert found[0, good].isfinite().all()
    assert found[0, [t for t in range(3) if t not in good]].isnan().all()
    assert k_cache[0].any(-1).sum() == 2 * len(good)


@pytest.mark.parametrize("number", range(13))
def test_bad_inputs_name_the_argument(device, number):
    q, k, v = new(torch.float32)
    c, d = caches(k, torch.float32)
    eight = c.to(torch.int8)
    at = torch.zeros(2, dtype=torch.int32)
    cos, sin = tables(32)
    name, args, keywords = [
        ("q", (q[0], k, v, c, d, at), {}),
        ("k", (q, k[:, :2], v, c, d, at), {}),
        ("v", (q, k, v[:, :2], c, d, at), {}),
        ("k_cache", (q, k, v, c.half(), d, at), {}),
        ("k_cache", (q, k, v, c[:, :, :1], d[:, :, :1], at), {}),
        ("v_cache", (q, k, v, c, d[:, :5], at), {}),
        ("start", (q, k, v, c, d, at[:1]), {}),
        ("start", (q, k, v, c, d, at.long()), {}),
        ("sin", (q, k, v, c, d, at, cos), {}),
        ("cos", (q, k, v, c, d, at, *tables(33)), {}),
        ("sin", (q, k, v, c, d, at, cos, sin[:5]), {}),
        ("k_scale", (q, k, v, eight, eight.clone(), at), {}),
        ("k_scale", (q, k, v, c, d, at), {"k_scale": torch.ones(2, PLACES, 2)}),
    ][number]
    row_cases.assert_refused(on(device, op()), name, *args, **keywords)
