# SPDX-License-Identifier: Apache-2.0
"""Tests the binding's softmax, rotary embedding and padding, against float64."""

import itertools
import math

import pytest
import torch
from inference_cases import NONE, assert_close, each_dtype, exact, random

import opdock
from opdock.compat.deepspeed import inference

__all__ = ["random"]


def call(stem, suffix, *arguments):
    return getattr(inference, f"{stem}_{suffix}")(*arguments)


def options(triangular=False, window=0, layer_scale=1.0, head_offset=0, mp_size=1):
    return (triangular, True, window > 0, window, False, layer_scale, head_offset, mp_size)


def softmax(scores, visible=None):
    """Computes softmax by its definition, in float64; a row without visible elements is zero."""
    scores = exact(scores)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    top = scores.amax(-1, keepdim=True).nan_to_num(0, neginf=0)
    e = torch.exp(scores - top)
    return e / e.sum(-1, keepdim=True).clamp(min=1e-300)


@each_dtype
@pytest.mark.parametrize("keys", [1, 7, 64, 200, 1023, 3841, 5000])
def test_with_masks_and_alibi(keys, suffix, random):
    """With 3841 keys and more, DeepSpeed's launch divides by zero. float32 also has alibi and
    layer_scale, which DeepSpeed's kernel leaves out."""
    batch, heads, queries = 2, 3, 4
    shape = (batch, heads, queries, keys)
    x = random(shape, suffix)
    encoder, decoder = random((batch, keys), suffix), random((batch, 1, queries, keys), suffix)
    one_row, alibi = random((batch, 1, 1, keys), suffix), random((batch * heads, 1, keys), suffix)
    masks = {
        None: 0.0,
        encoder: exact(encoder[:, None, None]),
        decoder: exact(decoder),
        decoder[:, 0]: exact(decoder),
        one_row: exact(one_row),
        NONE: 0.0,
    }
    for (mask, added), bias in itertools.product(masks.items(), (NONE, None, alibi)):
        more = exact(alibi).view(batch, heads, 1, keys) if bias is alibi else 0.0
        given = x.clone()
        found = call("softmax", suffix, given, mask, bias, *options(layer_scale=0.3))
        assert found is given
        # The mask and alibi are added in the dtype before the op adds their sum in float32.
        both = mask is not None and mask.dim() > 1 and bias is alibi
        scores = exact(x) * torch.tensor(0.3).double() + added + more
        if both:
            rounded = torch.zeros(shape, dtype=x.dtype) + added.to(x.dtype) + more.to(x.dtype)
            scores = exact(x) * torch.tensor(0.3).double() + exact(rounded)
        assert_close(found, softmax(scores), suffix, 2)


@each_dtype
@pytest.mark.parametrize("length", [1, 2, 5, 64, 129])
def test_triangular_and_windows(length, suffix, random):
    """A query sees the last `window` keys, also if the window is no multiple of four or extends
    beyond the lanes."""
    x = random((2, 2, length, length), suffix)
    query, key = torch.arange(length)[:, None], torch.arange(length)[None]
    for window in (0, 1, 3, 4, 50):
        visible = key <= query
        if window:
            visible &= key > query - window
        found = call("softmax", suffix, x.clone(), NONE, NONE, *options(True, window))
        assert_close(found, softmax(x, visible), suffix, 2)


def test_the_window_of_one_query_over_cached_keys(random):
    """One query sees as many keys as in a prompt; DeepSpeed's function keeps one less."""
    x = random((2, 2, 1, 40))
    for window in (1, 3, 16, 40, 100):
        found = inference.softmax_fp32(x.clone(), NONE, NONE, *options(False, window))
        visible = (torch.arange(40) > 39 - window)[None]
        assert (found[0, 0, 0] > 0).sum() == min(window, 40)
        assert_close(found, softmax(x, visible), "fp32", 2)


def test_a_single_query_sees_all_keys(random):
    x = random((1, 2, 1, 9))
    found = inference.softmax_fp32(x.clone(), NONE, NONE, *options(triangular=True))
    assert_close(found, softmax(x), "fp32", 2)


def test_triangular_over_cached_keys_is_refused(random):
    with pytest.raises(opdock.InvalidArgumentError, match="found 3 queries and 9 keys"):
        inference.softmax_fp32(random((1, 2, 3, 9)), NONE, NONE, *options(triangular=True))


def test_rows_that_are_masked(device, random):
    """If a row is masked by -10000, DeepSpeed's number, its scores decide; if by -inf, the row is
    zero."""
    x, mask = random((2, 2, 3, 17)), torch.zeros(2, 17, device=device)
    mask[1] = -10000
    found = inference.softmax_fp32(x.clone(), mask, NONE, *options())
    assert_close(found[1], softmax(x[1] - 10000), "fp32", 2)
    assert_close(found[0], softmax(x[0]), "fp32", 2)
    mask[1] = -math.inf
    found = inference.softmax_fp32(x.clone(), mask, NONE, *options())
    assert (found[1] == 0).all()


def test_alibi_of_this_devices_heads(random):
    """The row is batch * heads * mp_size + head_offset + head; or alibi is the same for all
    batches."""
    x, alibi = random((2, 2, 3, 5)), random((2 * 4, 1, 5))
    found = inference.softmax_fp32(x.clone(), NONE, alibi, *options(head_offset=2, mp_size=2))
    wanted = softmax(x + alibi.view(2, 4, 1, 5)[:, 2:])
    assert_close(found, wanted, "fp32", 2)
    found = inference.softmax_fp32(x.clone(), NONE, alibi[:4], *options(head_offset=1, mp_size=2))
    assert_close(found, softmax(x + alibi[:4].view(1, 4, 1, 5)[:, 1:3]), "fp32", 2)
    with pytest.raises(opdock.InvalidArgumentError, match="'alibi'.*heads 3 to 4"):
        inference.softmax_fp32(x, NONE, alibi, *options(head_offset=3, mp_size=2))


def test_as_the_moe_layer_calls_it(random):
    """The MoE layer passes seven arguments and three dimensions; triangular etc. follow the
    mask."""
    x = random((2, 3, 2), "fp16")
    found = inference.softmax_fp16(x.clone(), NONE, False, False, False, 256, True)
    assert_close(found, softmax(x), "fp16", 2)


def test_what_does_not_fit_is_refused(device, random):
    x = random((2, 2, 3, 5))
    with pytest.raises(opdock.InvalidArgumentError, match=r"found shape \(2, 4\), wanted \[2, 5\]"):
        inference.softmax_fp32(x, random((2, 4)), NONE, *options())
    with pytest.raises(opdock.InvalidArgumentError, match="'attn_mask': found torch.bool"):
        inference.softmax_fp32(
            x, torch.ones(2, 5, dtype=torch.bool, device=device), NONE, *options()
        )
    with pytest.raises(opdock.ArgumentError, match="found 4 arguments, wanted 11"):
        inference.softmax_fp32(x, NONE, NONE, True)
    with pytest.raises(opdock.InvalidArgumentError, match="wanted .batch, heads, queries, keys."):
        inference.softmax_fp32(x[0], NONE, NONE, *options(triangular=True))


def rotated(x, heads, rotary_dim, offset, interleaved, theta=10000.0):
    """Computes rotary embedding in float64 by complex numbers."""
    batch, length, width = x.shape
    y = exact(x).view(batch, length, heads, -1).clone()
    half = rotary_dim // 2
    exponents = torch.arange(half, dtype=torch.float64) * 2 / rotary_dim
    angles = (offset + torch.arange(length, dtype=torch.float64))[:, None] / theta**exponents
    first = slice(0, rotary_dim, 2) if interleaved else slice(0, half)
    second = slice(1, rotary_dim, 2) if interleaved else slice(half, rotary_dim)
    turned = (
        torch.complex(y[..., first], y[..., second])
        * torch.polar(torch.ones_like(angles), angles)[:, None]
    )
    y[..., first], y[..., second] = turned.real, turned.imag
    return y.view(batch, length, width)


@each_dtype
@pytest.mark.parametrize("length, offset", [(1, 0), (1, 37), (5, 0), (6, 1020)])
@pytest.mark.parametrize("rotary_dim", [4, 24, 64])
def test_apply_rotary_pos_emb(rotary_dim, length, offset, suffix, random):
    """Each of several tokens has its own position. Both forms work in every dtype; DeepSpeed's
    float32 is wrong."""
    query, key = random((2, length, 3 * 64), suffix), random((2, length, 64), suffix)
    forms = {
        (True, False): (False, 10000.0),
        (False, True): (True, 10000.0),
        (True, 500000.0): (False, 500000.0),
        (False, 500000.0): (False, 500000.0),  # DeepSpeed 0.19.8 rotates, whatever the flag says
    }
    for (half, last), (interleaved, theta) in forms.items():
        q, k = query.clone(), key.clone()
        found = inference.apply_rotary_pos_emb(q, k, rotary_dim, offset, 3, half, last)
        assert found[0] is q and found[1] is k
        where = rotary_dim, offset, interleaved, theta
        assert_close(q, rotated(query, 3, *where), suffix, 2)
        assert_close(k, rotated(key, 1, *where), suffix, 2)
    same = inference.apply_rotary_pos_emb(query, key, rotary_dim, offset, 3, False, False)
    assert same[0] is query


def test_rotations_that_there_are_not(random):
    x = random((1, 2, 64))
    for form, wanted in (
        ((4, 0, 2, True, True), "wanted one of them"),
        ((3, 0, 2, True, False), "found 3, wanted an even number"),
        ((34, 0, 2, True, False), "at most 32"),
        ((4, 0, 3, True, False), "for 3 heads"),
    ):
        with pytest.raises(opdock.InvalidArgumentError, match=wanted):
            inference.apply_rotary_pos_emb(x, x.clone(), *form)
    with pytest.raises(opdock.ArgumentError, match="found 3 arguments, wanted 7"):
        inference.apply_rotary_pos_emb(x, x.clone(), 4)


@each_dtype
@pytest.mark.parametrize(
    "size, padded", [(8, 32), (31, 32), (32, 64), (40, 64), (64, 128), (128, 128)]
)
def test_padding(size, padded, suffix, random):
    """Covers float32 too, whose kernel is empty in DeepSpeed, and lengths that are no multiple of
    16."""
    query, key, value = (random((2, 3, n, size), suffix) for n in (19, 77, 128))
    flat = [t.transpose(1, 2).reshape(2, -1, 3 * size) for t in (query, key, value)]
    found = call("add_padding", suffix, query, key, value)
    transformed = call("pad_transform", suffix, *flat, 3, True)
    for tensor, one, other, count in zip(
        (query, key, value), found, transformed, (19, 128, 128), strict=True
    ):
        wanted = torch.zeros(2, 3, count, padded, dtype=tensor.dtype, device=tensor.device)
        wanted[:, :, : tensor.shape[2], :size] = tensor
        assert torch.equal(one, wanted) and torch.equal(other, wanted)
    plain = call("pad_transform", suffix, *flat, 3, False)
    for tensor, one in zip((query, key, value), plain, strict=True):
        assert torch.equal(one, tensor)


def test_padding_that_would_lose_something(random):
    """DeepSpeed's function drops keys beyond the 128th, and elements of heads beyond the padded
    size."""
    q, k = random((1, 2, 4, 16)), random((1, 2, 129, 16))
    with pytest.raises(opdock.InvalidArgumentError, match="'key': found 129 keys"):
        inference.add_padding_fp32(q, k, k)
    with pytest.raises(opdock.InvalidArgumentError, match="heads of 160 elements"):
        inference.add_padding_fp32(*(random((1, 2, 4, 160)),) * 3)
    with pytest.raises(opdock.InvalidArgumentError, match="for 3 heads"):
        inference.pad_transform_fp32(*(random((1, 4, 32)),) * 3, 3, True)
