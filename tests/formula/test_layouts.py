# SPDX-License-Identifier: Apache-2.0
"""Tests where formulas find and leave elements: strides, alignment, broadcasting, odd sizes."""

import os

import numpy
import pytest
import torch
from values import FLOATS, TYPES, name_of

import opdock

#: Where elements are is the same for both kinds of GPUs.
pytestmark = pytest.mark.daily("cpu", "cuda")


def at_offset(x, elements):
    """Returns x's values in memory that begins `elements` elements after an aligned address."""
    memory = torch.empty(x.numel() + elements, dtype=x.dtype)
    return memory[elements:].view(x.shape).copy_(x)


def numbers(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 100 - 20).reshape(shape).to(dtype)


def test_odd_lengths(compute):
    """Lengths around all vectors and misaligned starts, with one kernel for each dtype's size."""
    for dtype in (torch.int8, torch.bfloat16, torch.float32, torch.float64):
        for length in [*range(1, 70, 1 if dtype == torch.bfloat16 else 7), 127, 300, 2051]:
            x = numbers(length, dtype=dtype)
            for offset in (0, 1, 8) if length % 3 else (0, 2, 3):
                found = compute("x + y", at_offset(x, offset), x)
                assert torch.equal(found, x + x), (dtype, length, offset)


def test_rows_that_are_not_aligned(compute):
    for columns in (3, 7, 8, 9, 64, 65):
        wide = numbers(6, columns + 3)
        x, y = wide[:, 1 : columns + 1], numbers(6, columns)
        assert torch.equal(compute("x * 2 + y", x, y), x * 2 + y)


CASES = {
    "flat": lambda: (numbers(4, 5, 6), numbers(4, 5, 6)),
    "bias row": lambda: (numbers(5, 33), numbers(33)),
    "broadcast column": lambda: (numbers(5, 33), numbers(5, 1)),
    "both directions": lambda: (numbers(1, 33), numbers(5, 1)),
    "no dimensions": lambda: (numbers(5, 33), torch.tensor(3.0)),
    "only no dimensions": lambda: (torch.tensor(2.0), torch.tensor(3.0)),
    "transposed": lambda: (numbers(33, 5).t(), numbers(5, 33)),
    "tiles": lambda: (numbers(67, 33).t(), numbers(33, 67)),
    "both transposed": lambda: (numbers(33, 5).t(), numbers(33, 5).t()),
    "stride of 0": lambda: (numbers(5, 1).expand(5, 33), numbers(1, 33).expand(5, 33)),
    "one element": lambda: (numbers(1, 1, 1), numbers(1)),
    "steps": lambda: (numbers(10, 66)[::2, ::2], numbers(5, 66)[:, ::2]),
    "empty": lambda: (numbers(0, 5), numbers(5)),
    "no columns": lambda: (numbers(5, 0), numbers(5, 1)),
    "middle": lambda: (numbers(4, 1, 6), numbers(3, 1)),
    "permuted": lambda: (
        numbers(2, 3, 4, 5, 6).permute(4, 1, 3, 0, 2),
        numbers(6, 3, 5, 2, 4),
    ),
    "overlapping windows": lambda: (
        numbers(40).unfold(0, 8, 3),
        numbers(11, 8),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layouts(compute, case):
    x, y = CASES[case]()
    found = compute("x * 3 + y", x, y)
    assert found.shape == (x + y).shape and torch.equal(found, x * 3 + y)


def flipped(x, device, dims):
    """Returns an array of the device with x's values and a negative stride in these dimensions."""
    there = torch.flip(x, dims).contiguous()
    if device == "cpu":
        return numpy.flip(there.numpy(), dims)
    from opdock._author import driver
    from opdock._author.device_array import DeviceArray, to_gpu

    gpu = driver.gpu(device)
    memory = to_gpu(there, gpu)
    strides, address = list(there.stride()), memory.address
    for dim in dims:
        address += (x.shape[dim] - 1) * strides[dim] * x.element_size()
        strides[dim] = -strides[dim]
    array = DeviceArray(gpu, address, x.shape, tuple(strides), x.dtype)
    array.memory = memory
    return array


def to_torch(x):
    return torch.as_tensor(x) if isinstance(x, numpy.ndarray) else x.to_host()


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_negative_strides(device, dims):
    x = numbers(6, 41)
    array, plain = flipped(x, device, dims), flipped(x, device, ())
    found = opdock.formula("x * 100 + y")(array, plain)
    assert torch.equal(to_torch(found), x * 100 + x)
    rows = opdock.formula("return sum(x * y), argmax(x)")(array, plain)
    assert torch.equal(to_torch(rows[0]), (x * x).sum(-1))
    assert torch.equal(to_torch(rows[1]), x.argmax(-1))


def test_sixteen_dimensions(compute):
    """None of them merges with another one."""
    shape = [2, 1, 3, 2, 1, 2, 2, 1, 2, 2, 1, 1, 2, 1, 2, 3]
    x = numbers(*reversed(shape)).permute(*reversed(range(16)))
    y = numbers(*shape)
    assert torch.equal(compute("x + y", x, y), x + y)
    total = compute("return x - mean(x), sum(y)", x, y)
    assert torch.allclose(total[0], x - x.mean(-1, keepdim=True))
    assert torch.equal(total[1], y.sum(-1))


def test_many_tensors(compute):
    """24 inputs of all dtypes, whose vectors have 1 to 8 units, and 32 results."""
    inputs = [numbers(9, 13 + 2 * 16, dtype=TYPES[1 + i % 9]) + i for i in range(24)]
    names = [f"a{i}" for i in range(24)]
    results = [f"a{i % 24} + a{(i * 7 + 1) % 24}" for i in range(32)]
    # The first sum has all inputs in their order.
    found = compute("return " + ", ".join([" + ".join(names), *results[1:]]), *inputs)
    assert len(found) == 32
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    assert found[0].dtype == total.dtype and torch.allclose(found[0], total)
    for i, one in enumerate(found[1:], 1):
        a, b = inputs[i % 24], inputs[(i * 7 + 1) % 24]
        assert torch.equal(one, a + b), i


def test_places(compute):
    x = numbers(4, 3, 5)
    found = compute("return row(), column(), columns(), x + row() * 1000 + column()", x)
    rows = torch.arange(12).reshape(4, 3, 1).expand(4, 3, 5)
    columns = torch.arange(5).expand(4, 3, 5)
    assert torch.equal(found[0], rows) and torch.equal(found[1], columns)
    assert torch.equal(found[2], torch.full((4, 3, 5), 5))
    assert torch.equal(found[3], x + rows * 1000 + columns)
    # Places stay those of the shape, whatever the strides are.
    found = compute("y * 0 + row() * 10 + column()", numbers(5, 4).t())
    assert torch.equal(found, (torch.arange(4)[:, None] * 10 + torch.arange(5)).float())


# ------------------------------------------------------------------------------ results


def test_in_place(compute):
    x, y = numbers(5, 33), numbers(5, 33)
    wanted = x * 2 + y
    assert compute("x * 2 + y", x, y, out=x) is x
    assert torch.equal(x, wanted)
    x, b = numbers(5, 33), numbers(33)
    wanted = x * b
    schema = "f(Tensor(a!) x, Tensor b) -> Tensor(a!)"
    compute("x * b", x, b, schema=schema)
    assert torch.equal(x, wanted)
    # Every pass of a reduction reads the row before the last one writes it.
    for columns in (33, 1000, 40000):
        x = torch.randn(3, columns)
        wanted = torch.softmax(x, -1)
        compute("softmax(x)", x, schema="f(Tensor(a!) x) -> Tensor(a!)")
        assert torch.allclose(x, wanted, rtol=1e-5, atol=1e-7)


def test_results_with_strides(compute):
    x, y = numbers(5, 33), numbers(5, 33)
    for out in (torch.empty(33, 5).t(), torch.empty(5, 66)[:, ::2], torch.empty(5, 40)[:, 3:36]):
        assert compute("x + y", x, y, out=out) is out
        assert torch.equal(out, x + y)
    rows = torch.full((10,), 7.0)
    compute("sum(x)", x, out=rows[::2])
    assert torch.equal(rows[::2], x.sum(-1)) and (rows[1::2] == 7).all()


def test_results_of_both_kinds(compute):
    """Into arguments and new ones, in one formula."""
    x, total = numbers(4, 9), torch.zeros(4, 9)
    found = compute(
        "s = x + t; return s, s * 2, sum(s)",
        x,
        total,
        schema="f(Tensor x, Tensor(a!) t) -> (Tensor(a!), Tensor, Tensor)",
    )
    assert torch.equal(total, x) and torch.equal(found[1], x * 2)
    assert torch.equal(found[2], x.sum(-1))


def test_a_result_that_others_still_read(compute):
    """A result of rows must not be written over a tensor that every row reads."""
    x, b = numbers(7, 7), numbers(7)
    with pytest.raises(opdock.InvalidArgumentError) as problem:
        compute("sum(x * b)", x, b, schema="f(Tensor x, Tensor(a!) b) -> Tensor(a!)")
    wanted = '"b": found a result of shape [7] that is written over it, but the formula\'s rows of '
    wanted += "shape [7, 7] all read it; pass a copy"
    assert wanted in str(problem.value)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
@pytest.mark.skipif(not os.environ.get("OPDOCK_TEST_NIGHTLY"), reason="runs with --nightly")
def test_all_alignments(compute, dtype):
    for columns in (1, 5, 16, 31, 32, 64):
        for first in range(17):
            for second in (0, 3, first):
                x, y = numbers(3, columns, dtype=dtype), numbers(3, columns)
                x, y = at_offset(x, first), at_offset(y, second)
                assert torch.equal(compute("x + y", x, y), x + y)
