# SPDX-License-Identifier: Apache-2.0
"""Tests dequantize on every device: bit by bit the float32 product, rounded once."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def integers(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)


def check(device, q, scale, dtype):
    found = on(device, opdock.ops.dequantize)(q, scale, dtype=dtype)
    assert (found.dtype, found.shape) == (dtype, q.shape)
    # A product of 8 and 24 bits is exact in float64.
    exact = q.reshape(len(scale), -1).double() * scale.double()[:, None]
    assert torch.equal(found, exact.float().to(dtype).reshape(q.shape))


@pytest.mark.parametrize("result", DTYPES)
@pytest.mark.parametrize("elements", [8, 16, 24, 64, 300, 1024, 4099, 16384])
@pytest.mark.parametrize("groups", [1, 13, 512])
def test_groups(device, result, elements, groups):
    """DeepSpeed's grid, and groups that are not whole vectors."""
    check(device, integers((groups, elements), elements), random(groups, torch.float32), result)


@pytest.mark.parametrize("result", DTYPES)
@pytest.mark.parametrize("group", [1, 2, 3, 5, 7, 8, 9, 15, 17])
@pytest.mark.parametrize("groups", [1, 2, 37, 1000])
def test_groups_inside_of_vectors(device, result, group, groups):
    check(device, integers((groups * group,), group), random(groups, torch.float32, 1), result)


@pytest.mark.parametrize("elements", [7, 50_001])
def test_threads_begin_within_a_group(several_threads, elements):
    groups = 300_000 // elements
    check("cpu", integers((groups, elements)), random(groups, torch.float32), torch.float32)


@pytest.mark.parametrize("result", DTYPES)
@pytest.mark.parametrize("begin", [0, 1, 4, 8])
def test_offset_by_some_elements(device, result, begin):
    q = integers((begin + 6 * 50,), 3)[begin:].view(2, 3, 50)
    scale = random(begin + 12, torch.float32, 2)[begin:]
    check(device, q, scale, result)
    memory = torch.zeros(begin + 300 + 9, dtype=result)
    out = memory[begin : begin + 300].view(2, 3, 50)
    assert on(device, opdock.ops.dequantize)(q, scale, dtype=result, out=out) is out
    assert torch.equal(out, on(device, opdock.ops.dequantize)(q, scale, dtype=result))
    assert memory.count_nonzero() == out.count_nonzero()


def test_all_integers_and_special_scales(device):
    q = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).repeat(4, 1)
    scale = torch.tensor([1.0, float("inf"), float("nan"), 1e-40])
    found = on(device, opdock.ops.dequantize)(q, scale)
    wanted = q.float() * scale[:, None]
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_the_result_is_float32_unless_said(device):
    assert on(device, opdock.ops.dequantize)(integers((4, 4)), torch.ones(2)).dtype == torch.float32


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
@pytest.mark.parametrize("groups", [0, 3])
def test_zero_sizes(device, shape, groups):
    found = on(device, opdock.ops.dequantize)(integers(shape), torch.ones(groups))
    assert found.shape == shape and found.dtype == torch.float32


def test_bad_inputs_name_the_argument(device):
    q, scale = integers((4, 6)), torch.ones(4)
    for name, args, keywords in [
        ("q", (q.short(), scale), {}),
        ("q", (integers((6, 4)).t(), scale), {}),
        ("q", (integers(()), scale), {}),
        ("scale", (q, scale.double()), {}),
        ("scale", (q, torch.ones(2, 2)), {}),
        ("scale", (q, torch.ones(8)[::2]), {}),
        ("scale", (q, torch.ones(5)), {}),
        ("scale", (q, torch.ones(0)), {}),
        ("scale", (q, torch.ones(48)), {}),
        ("dtype", (q, scale), {"dtype": torch.float64}),
        ("dtype", (q, scale), {"dtype": torch.int8}),
    ]:
        row_cases.assert_refused(on(device, opdock.ops.dequantize), name, *args, **keywords)
