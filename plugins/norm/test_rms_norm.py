# SPDX-License-Identifier: Apache-2.0
"""Tests rms_norm and add_rms_norm through the Python package against the reference in float64, and
compares the errors of all norms with PyTorch's."""

import pytest
import row_cases
import torch
import torch.nn.functional as F
from row_cases import random

import opdock
from opdock.testing import on

# Bound of the rounding errors of the sum of squares, the root and the two products.
COMPUTED = 8 * 2.0**-24


def double(parameter):
    return None if parameter is None else parameter.double()


def check(reference, assert_close, device, x, weight=None, eps=1e-5):
    found = on(device, opdock.ops.rms_norm)(x, weight, eps=eps)
    row_cases.assert_like(found, x)
    assert_close(found, reference.rms_norm(x.double(), double(weight), eps=eps), COMPUTED)


def check_add(reference, assert_close, device, x, residual, weight=None, eps=1e-5):
    found, total = on(device, opdock.ops.add_rms_norm)(x, residual, weight, eps=eps)
    assert torch.equal(total, x + residual)
    assert_close(found, reference.rms_norm(total.double(), double(weight), eps=eps), COMPUTED)


@pytest.mark.parametrize("length", row_cases.LENGTHS + [131072])
def test_row_lengths(reference, assert_close, device, dtype, length):
    x, residual = (random((5, length), dtype, length + seed, mean=0.5) for seed in (0, 1))
    weight = random(length, dtype, length + 2, 0.5, 1.0)
    check(reference, assert_close, device, x)
    check(reference, assert_close, device, x, weight)
    check_add(reference, assert_close, device, x, residual, weight)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 1.0])
def test_eps(reference, assert_close, device, dtype, eps):
    x, residual = (random((4, 520), dtype, seed) for seed in (1, 2))
    check(reference, assert_close, device, x, eps=eps)
    check_add(reference, assert_close, device, x, residual, eps=eps)


@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(reference, assert_close, device, dtype, length):
    for x in row_cases.layouts(length, dtype):
        other = random(x.shape, dtype, 3)
        check(reference, assert_close, device, x)
        check_add(reference, assert_close, device, x, other)
        check_add(reference, assert_close, device, other, x)
    x, parameters = (random(n, dtype, 4) for n in ((7, length), (length + 24,)))
    for begin in row_cases.OFFSETS:
        check(reference, assert_close, device, x, parameters[begin : begin + length])


def test_nan_is_not_hidden(device, dtype):
    for length in (40, 1000, 1024):
        x = random((3, length), dtype, 6)
        x[0, length // 2] = float("nan")
        found = on(device, opdock.ops.rms_norm)(x)
        assert found[0].isnan().all() and not found[1:].isnan().any()


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, shape):
    x = torch.empty(shape, dtype=dtype)
    assert on(device, opdock.ops.rms_norm)(x).shape == shape
    assert [y.shape for y in on(device, opdock.ops.add_rms_norm)(x, x)] == [shape, shape]


def test_float64_is_for_the_cpu(reference, device):
    row_cases.assert_float64_is_for_the_cpu(
        opdock.ops.rms_norm, reference.rms_norm, device, rtol=1e-13, atol=1e-14
    )


def bad_inputs():
    x = torch.ones(2, 8)
    return [
        ("x", "rms_norm", (x.t(),), {}),
        ("weight", "rms_norm", (x, torch.ones(7)), {}),
        ("weight", "rms_norm", (x, torch.ones(8, dtype=torch.float16)), {}),
        ("eps", "rms_norm", (x,), {"eps": -1.0}),
        ("residual", "add_rms_norm", (x, torch.ones(8)), {}),
    ]


@pytest.mark.parametrize("number", range(5))
def test_bad_inputs_name_the_argument(device, number):
    name, op, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, getattr(opdock.ops, op)), name, *args, **keywords)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("mean, deviation", [(0.0, 1.0), (300.0, 1.0), (100.0, 0.01)])
@pytest.mark.parametrize("length", row_cases.COMPARED_LENGTHS)
def test_no_larger_error_than_pytorch(device, dtype, op, mean, deviation, length):
    weight = random(length, dtype, 1)

    def theirs(x):
        return getattr(F, op)(x, (length,), weight.to(x.dtype), eps=1e-5)

    row_cases.assert_no_larger_error(
        lambda x: getattr(opdock.ops, op)(x, weight), theirs, dtype, length, deviation, mean
    )
