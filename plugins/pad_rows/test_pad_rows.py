# SPDX-License-Identifier: Apache-2.0
"""Tests pad_rows on every device: the result equals, bit by bit, zeros into which x is written."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def check(device, x, rows, columns):
    found = on(device, opdock.ops.pad_rows)(x, rows, columns)
    wanted = torch.zeros(*x.shape[:-2], rows, columns, dtype=x.dtype)
    wanted[..., : x.shape[-2], : x.shape[-1]] = x
    assert (found.dtype, found.shape, found.is_contiguous()) == (x.dtype, wanted.shape, True)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 3, 8, 20, 31, 64, 80, 127, 128, 300])
def test_sizes_of_heads(device, dtype, size):
    # All rows are copied by the same code; these sizes need several blocks on a GPU. DeepSpeed's
    # 128 rows are tested below.
    for sequence, rows in [(1, 1), (3, 16), (16, 16), (18, 19)]:
        x = random((2, 3, sequence, size), dtype, size)
        for columns in (size, size + 1, max(size, 32), max(size, 128), 1000):
            check(device, x, rows, columns)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads, size", [(1, 16), (2, 33), (12, 40), (16, 80)])
def test_heads_are_padded_and_brought_to_the_front(device, dtype, heads, size):
    """DeepSpeed's pad_transform, which has room for 128 tokens and heads of 128 elements."""
    for sequence in (1, 100, 128, 129):
        x = random((2, sequence, heads * size), dtype, size)
        check(device, x.unflatten(-1, (heads, size)).transpose(1, 2), max(sequence, 128), 128)
        check(device, x.unflatten(-1, (heads, size)).transpose(1, 2), sequence, size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [8, 34])
def test_misaligned_and_strided(device, dtype, length):
    for x in row_cases.layouts(length, dtype):
        check(device, x, x.shape[-2] + 2, length + 6)
    for begin in row_cases.OFFSETS:
        memory = random(begin + 6 * length, dtype, 5)
        check(device, memory[begin:].view(2, 3, length), 4, length + 8)
        out = torch.full((begin + 2 * 4 * 48 + 9,), 7.0, dtype=dtype)
        view = out[begin : begin + 2 * 4 * 48].view(2, 4, 48)
        x = memory[begin:].view(2, 3, length)
        assert on(device, opdock.ops.pad_rows)(x, 4, 48, out=view) is view
        assert torch.equal(view[:, :3, :length], x)
        assert (view != 0).sum() == (x != 0).sum() and (out == 7).sum() >= begin + 9


def test_bits_are_kept(device):
    x = torch.tensor([[float("nan"), float("inf"), -0.0, 1e-45]]).view(torch.int32)
    x[0, 0] |= 0x1234
    found = on(device, opdock.ops.pad_rows)(x.view(torch.float32), 2, 5)
    assert torch.equal(found.view(torch.int32)[:1, :4], x)
    assert (found.view(torch.int32)[1] == 0).all() and found.view(torch.int32)[0, 4] == 0


def test_zero_sizes(device):
    for shape in [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0)]:
        x = torch.empty(shape)
        check(device, x, shape[-2], shape[-1])
        check(device, x, shape[-2] + 2, shape[-1] + 3)


def test_bad_inputs_name_the_argument(device):
    x = torch.ones(2, 4, 6)
    for name, args in [
        ("x", (x.int(), 8, 8)),
        ("x", (x[0, 0], 8, 8)),
        ("x", (x.transpose(1, 2), 8, 8)),
        ("rows", (x, 3, 8)),
        ("rows", (x, -1, 8)),
        ("columns", (x, 4, 5)),
    ]:
        row_cases.assert_refused(on(device, opdock.ops.pad_rows), name, *args)
