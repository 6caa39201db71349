# SPDX-License-Identifier: Apache-2.0
"""Tests scaled_dot_product_attention by Opdock's op against torch's in float64: each argument, with
gradients; and the reasons for calls that are left to torch."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opdock.torch
from opdock.torch import _choice, _sdpa, _swaps

INF = math.inf


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


def heads(batch=2, queries=5, keys=5, num=4, kv=4, size=6, dtype=torch.float64):
    """Returns q, k and v, [batch, heads, tokens, size]."""
    shapes = (num, queries), (kv, keys), (kv, keys)
    return [torch.randn(batch, *shape, size, dtype=dtype) for shape in shapes]


def both(q, k, v, **options):
    """Returns the results and the gradients of Opdock's op and of torch's function."""
    found = []
    for function in (_sdpa.attention, F.scaled_dot_product_attention):
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        result = function(*inputs, **options)
        grads = torch.autograd.grad((result * result.detach().cos()).sum(), inputs)
        found.append([result.detach(), *grads])
        with torch.no_grad():  # another op computes it
            torch.testing.assert_close(function(q, k, v, **options), found[-1][0])
    return found


def masks():
    """Returns masks for 2 rows, 4 heads, 5 queries and 7 keys; no query's keys are all hidden."""
    some = torch.rand(2, 1, 5, 7) < 0.6
    some[..., 2] = True
    added = torch.randn(4, 5, 7, dtype=torch.float64)
    added[:, 1:3, :6] = -INF
    return {
        "bool": some,
        "bool expanded": some[:, :, :1].expand(2, 4, 5, 7),
        "bool queries x keys": some[0, 0],
        "float": added,
        "float32": added[:1, None].float(),
        "float of keys": added[0, :1],
    }


CALLS = {
    "plain": ({}, {}),
    "causal": ({}, {"is_causal": True}),
    "more keys": ({"keys": 7}, {}),
    "causal with more keys": ({"keys": 9}, {"is_causal": True}),
    "causal, one query": ({"queries": 1, "keys": 4}, {"is_causal": True}),
    "fewer keys": ({"keys": 3}, {}),
    "scale": ({}, {"scale": 0.3}),
    "groups": ({"kv": 2}, {"enable_gqa": True, "is_causal": True}),
    "one key head": ({"kv": 1, "keys": 7}, {"enable_gqa": True}),
    "no dropout": ({}, {"dropout_p": 0.0}),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_argument_means_the_same(name):
    shape, options = CALLS[name]
    q, k, v = heads(**shape)
    assert _sdpa.why_not(q, k, v, **options) is None
    torch.testing.assert_close(*both(q, k, v, **options), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", masks())
def test_masks(name):
    q, k, v = heads(keys=7)
    mask = masks()[name]
    assert _sdpa.why_not(q, k, v, mask) is None
    mine = both(q, k, v, attn_mask=mask)[0]
    theirs = both(q, k, v, attn_mask=mask.double() if name == "float32" else mask)[1]
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 7), (4, 1, 7), (2, 1, 5, 1), (2, 4, 5, 7)])
def test_masks_that_learn(shape):
    q, k, v = heads(keys=7)
    mask = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert _sdpa.why_not(q, k, v, mask) is None
    grads = [
        torch.autograd.grad(function(q, k, v, mask).sin().sum(), mask)[0]
        for function in (_sdpa.attention, F.scaled_dot_product_attention)
    ]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)


def test_dropout_keeps_what_is_expected_and_repeats_with_the_seed():
    q, k, v = heads(batch=4, keys=40, size=4)
    v = torch.ones_like(v)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(_sdpa.attention(q, k, v, dropout_p=0.25))
    assert torch.equal(*found)
    assert not torch.equal(found[0], _sdpa.attention(q, k, v, dropout_p=0.25))
    assert (found[0].mean() - 1).abs() < 0.05 and found[0].std() > 0.05
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]

    def call(*inputs):
        torch.manual_seed(3)
        return _sdpa.attention(*inputs, dropout_p=0.25, is_causal=True)

    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


def test_strides_and_a_row_that_sees_nothing():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in heads(size=8))
    k = k.mT.contiguous().mT
    hidden = torch.ones(5, 5, dtype=torch.bool).tril()
    hidden[2] = False
    found, wanted = both(q, k, v, attn_mask=hidden)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    assert not found[0][:, :, 2].any()


def test_autocast_casts_as_torchs_function_is_cast():
    q, k, v = heads(dtype=torch.float32)
    mask = torch.randn(5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert _sdpa.why_not(q, k.bfloat16(), v, mask) is None
        found, wanted = (
            one(q, k.bfloat16(), v, mask)
            for one in (_sdpa.attention, F.scaled_dot_product_attention)
        )
    assert found.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


q, k, v = (torch.zeros(2, 4, 5, 8) for _ in range(3))
LEFT = {
    "4 dimensions": ((q[0], k[0], v[0]), {}),
    "no kernel": ((q.to(torch.complex64), k, v), {}),
    "several dtypes": ((q, k.half(), v), {}),
    "256 elements": ((q, k, v[..., :4]), {}),
    "broadcast": ((q, k[:1], v[:1]), {}),
    "share keys": ((q, k[:, :2], v[:, :2]), {}),
    "beside dropout": (
        (q, k, v),
        {"dropout_p": 0.1, "attn_mask": torch.zeros(5, 5, requires_grad=True)},
    ),
    "more queries": ((q, k[:, :, :3], v[:, :, :3]), {"is_causal": True}),
    "beside is_causal": ((q, k, v), {"is_causal": True, "attn_mask": torch.zeros(5, 5)}),
    "another dtype": ((q, k, v), {"attn_mask": torch.zeros(5, 5).half()}),
    "another shape": ((q, k, v), {"attn_mask": torch.zeros(5, 3)}),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_the_op_does_not_compute_has_a_reason(reason):
    args, options = LEFT[reason]
    assert reason in _sdpa.why_not(*args, **options)
    assert not _sdpa.takes(*args, **options)


class Mixer(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(query=q, key=k, value=v, **self.options)


def test_patch_takes_keywords_and_tells_what_it_left(monkeypatch):
    monkeypatch.setattr(_swaps, "refused", {})
    measured = []

    def faster(swap, situation, *_):
        measured.append(situation)
        return _choice.Choice(situation, True, True, {"eager": (2.0, 1.0)})

    monkeypatch.setattr(_choice, "_find", lambda swap, key, *_: faster(swap, key[5]))
    q, k, v = (x.requires_grad_() for x in heads(kv=2, keys=9))
    model = Mixer(is_causal=True, enable_gqa=True)
    report = opdock.torch.patch(model)
    assert report.swapped == {"attention": {"Mixer": 1}}
    calls, op = [], torch.ops.opdock.attention_forward
    monkeypatch.setattr(
        torch.ops.opdock, "attention_forward", lambda *a, **k: calls.append(a) or op(*a, **k)
    )
    found = model(q, k, v)
    assert len(calls) == 1
    torch.testing.assert_close(found, Mixer.forward(model, q, k, v))
    assert measured == ["4x8 group 2 causal"]
    assert report.left() == []
    model(q[0], k[0], v[0])
    why = "its tensors do not have 4 dimensions"
    assert report.left() == [("attention", why)]
    assert f"attention: torch's: {why}" in str(report)
    opdock.torch.unpatch(model)
