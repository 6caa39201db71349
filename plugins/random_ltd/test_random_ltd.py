# SPDX-License-Identifier: Apache-2.0
"""Tests the copies of chosen tokens on every device, bit for bit against NumPy's indexing."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def chosen(batch, tokens, kept, seed=0):
    """Returns numbers of tokens that differ from each other, in no order, int32 [batch, kept]."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(tokens, generator=generator)[:kept] for _ in range(batch)]
    return torch.stack(rows).to(torch.int32)


def gathered(x, index, batch_first):
    """Returns what token_gather gives, one token after the other."""
    rows = [
        torch.stack([x[b, t] if batch_first else x[t, b] for t in index[b].tolist()])
        for b in range(len(index))
    ]
    return torch.stack(rows, 0 if batch_first else 1)


def scattered(all, part, index, batch_first):
    found = all.clone(memory_format=torch.contiguous_format)
    for b in range(len(index)):
        for place, t in enumerate(index[b].tolist()):
            if batch_first:
                found[b, t] = part[b, place]
            else:
                found[t, b] = part[place, b]
    return found


def whole(batch, tokens, channels, dtype, batch_first, seed=1):
    shape = (batch, tokens, channels) if batch_first else (tokens, batch, channels)
    return random(shape, dtype, seed)


def check(device, x, part, index, batch_first):
    """Calls the three ops with tensors of any strides."""
    found = on(device, opdock.ops.token_gather)(x, index, batch_first=batch_first)
    assert torch.equal(found, gathered(x, index, batch_first))
    backward = on(device, opdock.ops.token_gather_backward)
    grad = backward(part, x, index, batch_first=batch_first)
    assert torch.equal(grad, scattered(torch.zeros_like(x), part, index, batch_first))
    wanted = scattered(x, part, index, batch_first)
    on(device, opdock.ops.token_scatter_)(x, part, index, batch_first=batch_first)
    assert torch.equal(x, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("channels", [1, 3, 8, 12, 64, 1030])
@pytest.mark.parametrize(("batch", "tokens", "kept"), [(1, 1, 1), (3, 17, 5), (2, 70, 70)])
def test_tokens(device, dtype, batch_first, channels, batch, tokens, kept):
    x = whole(batch, tokens, channels, dtype, batch_first)
    part = whole(batch, kept, channels, dtype, batch_first, 2)
    check(device, x, part, chosen(batch, tokens, kept), batch_first)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_gaps(device, dtype, batch_first, offset):
    """Tokens that are apart, and at odd addresses."""
    x = random((4, 9, offset + 40), dtype)[::2, :, offset : offset + 16]
    x = x if batch_first else x.transpose(0, 1)
    part = random((3, 2, 30), dtype, 2)[:, :, 4 + offset : 20 + offset]
    part = part.transpose(0, 1) if batch_first else part
    check(device, x, part, chosen(2, 9, 3), batch_first)


@pytest.mark.parametrize("kept", [3000, 5000])
def test_many_tokens(device, several_threads, kept):
    """More than DeepSpeed's kernels sort; several blocks or threads."""
    index = chosen(2, 5000, kept)
    found = on(device, opdock.ops.token_sort)(index, 5000)
    assert torch.equal(found, index.sort(-1).values)
    x, part = random((2, 5000, 8), torch.float16), random((2, kept, 8), torch.float16, 2)
    check(device, x, part, found, True)


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3, 40), (5, 300), (2, 256), (3, 0), (0, 4)])
@pytest.mark.parametrize("tokens", [1, 33, 4096, 4097, 9000])
def test_sort(device, shape, tokens):
    """Also numbers that occur several times."""
    generator = torch.Generator().manual_seed(tokens)
    index = torch.randint(tokens, shape, generator=generator, dtype=torch.int32)
    found = on(device, opdock.ops.token_sort)(index, tokens)
    assert torch.equal(found, index.sort(-1).values)


def outside(device, op, *args, **keywords):
    """Returns the result on a GPU; on the CPU the call is an error, and None is returned."""
    if device != "cpu":
        return on(device, op)(*args, **keywords)
    with pytest.raises(opdock.InvalidArgumentError, match="'index': found (-1|9) in row 1, wanted"):
        op(*args, **keywords)
    return None


@pytest.mark.parametrize("number", [-1, 9])
def test_numbers_that_are_outside(device, number):
    x, part = random((2, 9, 6), torch.float32), random((2, 3, 6), torch.float32, 2)
    index = torch.tensor([[2, 0, 8], [5, number, 3]], dtype=torch.int32)
    there = torch.tensor([[2, 0, 8], [5, 5, 3]], dtype=torch.int32)
    found = outside(device, opdock.ops.token_gather, x, index)
    if found is not None:
        wanted = gathered(x, there, True)
        wanted[1, 1] = 0
        assert torch.equal(found, wanted)
    wanted = scattered(x, part[:, [0, 0, 2]], there, True)
    wanted[0] = scattered(x, part, there, True)[0]
    if outside(device, opdock.ops.token_scatter_, x, part, index) is None and device != "cpu":
        assert torch.equal(x, wanted)
    found = outside(device, opdock.ops.token_sort, index, 9)
    if found is not None:
        assert found.tolist() == [[0, 2, 8], [3, 5, -1]]


@pytest.mark.parametrize(
    ("batch", "tokens", "kept", "channels"), [(2, 4, 0, 8), (0, 4, 2, 8), (2, 4, 2, 0)]
)
def test_nothing(device, batch, tokens, kept, channels):
    x, part = torch.ones(batch, tokens, channels), torch.ones(batch, kept, channels)
    index = torch.zeros(batch, kept, dtype=torch.int32)
    assert on(device, opdock.ops.token_gather)(x, index).shape == part.shape
    assert not on(device, opdock.ops.token_gather_backward)(part, x, index).any()
    on(device, opdock.ops.token_scatter_)(x, part, index)
    assert (x == 1).all()


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_reference(reference, batch_first):
    x = whole(3, 11, 5, torch.float32, batch_first)
    part = whole(3, 4, 5, torch.float32, batch_first, 2)
    index = chosen(3, 11, 4)
    found = reference.token_gather(x, index, batch_first=batch_first)
    assert torch.equal(found, gathered(x, index, batch_first))
    grad = reference.token_gather_backward(part, x, index, batch_first=batch_first)
    assert torch.equal(grad, scattered(torch.zeros_like(x), part, index, batch_first))
    wanted = scattered(x, part, index, batch_first)
    assert reference.token_scatter_(x, part, index, batch_first=batch_first) is None
    assert torch.equal(x, wanted)
    assert torch.equal(reference.token_sort(index, 11), index.sort(-1).values)


def test_bad_inputs_name_the_argument(device):
    ops = opdock.ops
    x, part, index = torch.ones(2, 9, 6), torch.ones(2, 3, 6), torch.zeros(2, 3, dtype=torch.int32)
    for op, name, args in [
        (ops.token_sort, "index", (index.long(), 9)),
        (ops.token_sort, "index", (index.t(), 9)),
        (ops.token_sort, "tokens", (index, -1)),
        (ops.token_gather, "x", (x.int(), index)),
        (ops.token_gather, "x", (x[0], index)),
        (ops.token_gather, "x", (x.transpose(1, 2), index)),
        (ops.token_gather, "index", (x, index.long())),
        (ops.token_gather, "index", (x, index[0])),
        (ops.token_gather, "index", (x, index[:1])),
        (ops.token_gather_backward, "grad", (part.half(), x, index)),
        (ops.token_gather_backward, "grad", (part[:, :2], x, index)),
        (ops.token_gather_backward, "grad", (part[:, :, :5], x, index)),
        (ops.token_scatter_, "part", (x, part[:1], index)),
        (ops.token_scatter_, "part", (x, part.double(), index)),
        (ops.token_scatter_, "index", (x, part, index[:1])),
    ]:
        row_cases.assert_refused(on(device, op), name, *args)
