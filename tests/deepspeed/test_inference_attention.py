# SPDX-License-Identifier: Apache-2.0
"""Tests softmax_context, prompts and tokens after them, against attention written out in
float64."""

import math

import pytest
import torch
from attention_cases import Case, Oracle
from inference_cases import (
    NONE,
    assert_attention_close,
    assert_close,
    each_dtype,
    exact,
    random,
)

import opdock
from opdock.compat.deepspeed import inference
from opdock.compat.deepspeed.inference import attention

__all__ = ["random"]


@pytest.fixture(autouse=True)
def fresh():
    inference.release_workspace()
    allocate()
    yield
    inference.release_workspace()


def allocate(suffix="fp32", batch=2, layers=1, tokens=64, external=False):
    """Allocates the workspace as DeepSpeed does before the first layer; the number and size of the
    heads differ from those of the calls."""
    function = getattr(inference, f"allocate_workspace_{suffix}")
    assert function(64, 4, 10, batch, layers, 1, external, 0, tokens, 1) is None


CASES = {
    "plain": {},
    "encoder": {"triangular": False},
    "half": {"rotary_dim": 16, "half": True},
    "part": {"rotary_dim": 6, "half": True},
    "pairs": {"rotary_dim": 8, "pairs": True},
    "window": {"window": 3},
    "window4": {"window": 4, "rotary_dim": 16, "half": True},
    "unscaled": {"norm_factor": 1.0},
    "size 24": {"size": 24, "heads": 3},
}
NEW_CASES = {
    "grouped": {"heads": 6, "key_heads": 2, "rotary_dim": 16, "half": True, "theta": 500000.0},
    "one key head": {"heads": 4, "key_heads": 1},
}


@each_dtype
@pytest.mark.parametrize("name", [*CASES, *NEW_CASES])
@pytest.mark.parametrize("length", [2, 7, 33])
def test_a_prompt_and_tokens_after_it(name, length, suffix, random):
    """DeepSpeed is wrong in these: positions of several tokens, rotations in float32, and
    windows."""
    options = CASES.get(name) or NEW_CASES.get(name, {})
    versions = (True,) if name in NEW_CASES else (True, False)
    for new in versions:
        case = Case(suffix, **options)
        oracle = Oracle(case)
        for step in (length, 1, 1, 1, 1, 1):
            qkv = random((2, step, case.width), suffix)
            before = qkv.clone()
            out, keys, values = case.call(qkv, new=new)
            oracle.check(out, qkv)
            assert_close(keys, oracle.keys.transpose(1, 2), suffix, 2)
            assert torch.equal(exact(values), oracle.values.transpose(1, 2))
            assert torch.equal(qkv, before)


@each_dtype
def test_masks_in_each_form(suffix, random):
    """An encoder's mask is [batch, keys], a decoder's [batch, 1, queries or 1, keys]."""
    case = Case(suffix, triangular=False)
    qkv = random((2, 6, case.width), suffix)
    encoder = torch.zeros(2, 6, dtype=qkv.dtype, device=qkv.device)
    encoder[1, 4:] = -10000
    decoder = random((2, 1, 6, 6), suffix)
    for given, wanted in (
        (encoder, encoder[:, None, None]),
        (encoder[:, None, None], encoder[:, None, None]),
        (decoder, decoder),
        (decoder[:, 0], decoder),
        (decoder[:1], decoder[:1]),
    ):
        out = case.call(qkv, given)[0]
        Oracle(case).check(out, qkv, mask=wanted)


@each_dtype
def test_masks_while_tokens_are_made(suffix, random):
    """The prompt is padded at the left, as generate() passes it."""
    case = Case(suffix)
    oracle = Oracle(case)
    padding = torch.zeros(2, 1, 1, 5)
    padding[0, :, :, :2] = -10000
    for step in (5, 1, 1, 1):
        qkv = random((2, step, case.width), suffix)
        total = padding.to(qkv)
        out, wanted = case.call(qkv, total)[0], oracle.step(qkv, mask=total)
        seeing = slice(2 if step > 1 else 0, None)  # the other queries have -10000 for all keys
        for row, queries in ((0, seeing), (1, slice(None))):
            found, values = out[row, queries], oracle.values[row]
            assert_attention_close(found, wanted[row, queries], values, suffix)
        padding = torch.nn.functional.pad(padding, (0, 1))


@pytest.mark.parametrize("layer", [0, 1, 5])
@each_dtype
def test_alibi_in_every_layer(layer, suffix, random):
    """DeepSpeed divides the scores by the layer's number and multiplies them again, which has no
    effect in float32; the binding does neither."""
    allocate(suffix, layers=6)
    case, batch = Case(suffix), 2
    oracle = Oracle(case)
    slopes = 2.0 ** -torch.arange(1, 5, dtype=torch.float64)
    for total, step in ((6, 6), (7, 1), (8, 1)):
        qkv = random((batch, step, case.width), suffix)
        alibi = (slopes[:, None, None] * torch.arange(total)).repeat(batch, 1, 1).to(qkv)
        out = case.call(qkv, None, layer, layer + 1, alibi)[0]
        oracle.check(out, qkv, alibi=alibi)
    qkv = random((batch, 9, case.width), suffix)
    alibi = random((batch * 4, 1, 9), suffix)
    mask = random((batch, 1, 9, 9), suffix)
    out = case.call(qkv, mask, layer, layer + 1, alibi)[0]
    Oracle(case).check(out, qkv, mask=mask, alibi=alibi)


def test_a_row_that_sees_nothing_is_zero(device, random):
    case = Case("fp32")
    qkv, mask = random((2, 4, case.width)), torch.zeros(2, 4, device=device)
    mask[1] = -math.inf
    out = case.call(qkv, mask)[0]
    assert (out[1] == 0).all() and (out[0] != 0).any()


def test_position_ids_turn_the_tokens(device, random):
    """The prompt is padded at the left. DeepSpeed's kernels ignore the positions; its own PyTorch
    fallback uses them."""
    case = Case("fp32", rotary_dim=16, half=True)
    oracle = Oracle(case)
    positions = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]], device=device)
    qkv = random((2, 5, case.width))
    out, keys, _ = case.call(qkv, position_ids=positions)
    oracle.check(out, qkv, positions=positions)
    assert_close(keys, oracle.keys.transpose(1, 2), "fp32", 2)
    for more in range(1, 4):
        now = positions[:, -1:] + more
        qkv = random((2, 1, case.width))
        out = case.call(qkv, position_ids=now)[0]
        oracle.check(out, qkv, positions=now)
    with pytest.raises(opdock.InvalidArgumentError, match=r"'position_ids': found shape \(2, 3\)"):
        case.call(random((2, 5, case.width)), position_ids=positions[:, :3])


def test_token_idx_says_how_many_tokens_count(device, random):
    """The prompt is padded at the right to a fixed length; later tokens follow its valid part."""
    case = Case("fp32", rotary_dim=16, half=True)
    oracle = Oracle(case)
    padded = random((2, 8, case.width))
    out, keys, _ = case.call(padded, token_idx=torch.tensor(5, device=device))
    oracle.check(out[:, :5], padded[:, :5])
    assert keys.shape[2] == 5
    for index in (6, 7):
        qkv = random((2, 1, case.width))
        out = case.call(qkv, token_idx=torch.tensor(index, device=device))[0]
        oracle.check(out, qkv)
    with pytest.raises(opdock.InvalidArgumentError, match="'token_idx': found 9, wanted 1 to 8"):
        case.call(padded, token_idx=9)


def test_a_prompt_of_one_token(device, random):
    """A prompt of one token after reset_cache(), or with a mask for one key, begins a new sequence.
    DeepSpeed appends it to the previous one."""
    case = Case("fp32")
    for begin in ("reset", "mask", "mask4"):
        held = case.call(random((3, 6, case.width)))
        before = [tensor.clone() for tensor in held]
        oracle = Oracle(case)
        mask = None
        if begin == "reset":
            inference.reset_cache()
        else:
            mask = torch.zeros((2, 1) if begin == "mask" else (2, 1, 1, 1), device=device)
        for _ in range(3):
            qkv = random((2, 1, case.width))
            out, keys, _ = case.call(qkv, mask)
            oracle.check(out, qkv)
            assert keys.shape[2] == oracle.keys.shape[1]
            mask = None
        assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


def test_a_prompt_of_a_packed_view(random):
    """query_key_value is a part of a wider tensor."""
    case = Case("fp32")
    wide = random((2, 5, case.width + 8))
    out = case.call(wide[..., : case.width])[0]
    Oracle(case).check(out, wide[..., : case.width].contiguous())


def test_what_does_not_fit_is_refused(device, random):
    case = Case("fp32")
    for options, qkv, message in (
        ({}, (2, 5, 100), "for 12 heads"),
        ({"heads": 4, "key_heads": 3}, (2, 5, 160), "found 3 for 4 heads"),
        ({"rotary_dim": 18, "half": True}, (2, 5, 192), "found 18, wanted an even number"),
        ({"rotary_dim": 4, "half": True, "pairs": True}, (2, 5, 192), "wanted one of them"),
        ({"window": 3, "triangular": False}, (2, 5, 192), "a window over later keys"),
    ):
        with pytest.raises(opdock.InvalidArgumentError, match=message):
            Case("fp32", **options).call(random(qkv))
    with pytest.raises(opdock.InvalidArgumentError, match="call softmax_context_fp32"):
        Case("fp16").call(random((2, 5, 192)))
    with pytest.raises(opdock.InvalidArgumentError, match="'query_key_value': found shape"):
        case.call(random((5, 192)))
    with pytest.raises(opdock.ArgumentError, match="found 7 arguments, wanted 14"):
        inference.softmax_context_fp32(random((2, 5, 192)), NONE, 0, False, False, 4, 1.0)
    case.call(random((2, 5, 192)))
    with pytest.raises(opdock.InvalidArgumentError, match=r"found shape \(2, 4\), wanted \[2, 6\]"):
        case.call(random((2, 1, 192)), torch.zeros(2, 4, device=device))
    # The refused call has changed nothing.
    out = case.call(random((2, 1, 192)), torch.zeros(2, 6, device=device))
    assert out[1].shape[2] == 6


@pytest.mark.parametrize(
    "triangular, new, length",
    [
        *((True, NONE, 5), (False, NONE, 5), (True, torch.zeros(2, 5, 64), 5), (False, NONE, 1)),
        *((True, NONE, 24), (False, NONE, 24), (True, NONE, 21)),
    ],
)
def test_softmax_context_int8(triangular, new, length, random):
    """It is float16 in spite of its name; norm_factor is the scale, not its square root."""
    heads, size, tokens = 4, 16, length if length > 1 else 40
    q = random((2, heads, length, size), "fp16")
    k, v = (random((2, heads, tokens, size), "fp16") for _ in range(2))
    shape = (2, tokens, heads * size)
    arguments = (
        *(q.reshape(2, length, heads * size), k.transpose(2, 3).reshape(shape)),
        *(NONE, NONE, v.reshape(shape), new),
        *(heads, 0.25, True, triangular, False, 1, True),
    )
    out, keys, values = inference.softmax_context_int8(*arguments)
    assert keys is arguments[1] and values is arguments[4]
    scores = exact(q) @ exact(k).transpose(2, 3) * 0.25
    if triangular and new is NONE:
        scores = scores.masked_fill(~torch.ones(length, length).tril().bool(), -math.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    assert_attention_close(out, e / e.sum(-1, keepdim=True) @ exact(v), v, "fp16")


@pytest.mark.parametrize(
    "which, by_columns",
    [
        ({"queries": 2, "keys": 33, "dtype": torch.float32, "has_matrices": False}, True),
        ({"queries": 3}, False),
        ({"queries": 16}, False),
        ({"queries": 17}, True),
        ({"keys": 1023}, False),
        ({"size": 36}, False),
        ({"size": 136}, False),
        ({"dtype": torch.float32}, False),
        ({"dtype": torch.bfloat16}, True),
        ({"has_matrices": False}, False),
    ],
)
def test_keys_are_copied_unless_attention_is_fast_over_columns(which, by_columns):
    prompt = {"queries": 128, "keys": 1024, "size": 128, "dtype": torch.float16}
    assert attention._read_by_columns(**{**prompt, "has_matrices": True, **which}) == by_columns
