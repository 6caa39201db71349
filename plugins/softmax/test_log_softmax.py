# SPDX-License-Identifier: Apache-2.0
"""Tests log_softmax through the Python package against the reference in float64, and compares the
errors of softmax and log_softmax with PyTorch's."""

import functools

import pytest
import row_cases
import torch

import opdock
from opdock.testing import on

# Bound of the rounding errors of x * scale + mask, of subtracting the maximum and the logarithm,
# and of the sum: half ulps of the terms' magnitudes.
COMPUTED = 8 * 2.0**-24

random = functools.partial(row_cases.random, deviation=3.0)


def check(reference, assert_close, device, x, **options):
    found = on(device, opdock.ops.log_softmax)(x, **options)
    row_cases.assert_like(found, x)
    if options.get("mask") is not None:
        options["mask"] = options["mask"].double()
    oracle = reference.log_softmax(x.double(), **options)
    # assert_close would accept a difference of infinities.
    assert torch.equal(found.isneginf(), oracle.isneginf())
    terms = x.double().abs() + x.double().abs().amax(-1, keepdim=True)
    zero = torch.zeros_like(oracle)
    is_number = oracle.isfinite()
    scale = torch.where(is_number, 4 + terms + oracle.abs(), zero)
    assert_close(
        torch.where(oracle.isneginf(), zero.to(x.dtype), found),
        torch.where(oracle.isneginf(), zero, oracle),
        COMPUTED,
        scale,
    )


@pytest.mark.pairs
@pytest.mark.parametrize("length", row_cases.LENGTHS + [131072])
def test_row_lengths(reference, assert_close, device, dtype, length):
    check(reference, assert_close, device, random((5, length), dtype, length), scale=0.7)


@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(reference, assert_close, device, dtype, length):
    for x in row_cases.layouts(length, dtype, 3.0):
        check(reference, assert_close, device, x)


@pytest.mark.parametrize("length", [19, 1000])
@pytest.mark.parametrize("shape", [(1,), (-1,), (4, 1), (2, 1, 1, -1), (2, 3, 4, -1)])
def test_masks(reference, assert_close, device, dtype, length, shape):
    shape = tuple(length if size == -1 else size for size in shape)
    x, mask = random((2, 3, 4, length), dtype, 3), random(shape, dtype, 4)
    if mask.numel() > 2:
        mask.view(-1)[1] = float("-inf")
    check(reference, assert_close, device, x, mask=mask, scale=0.125)
    check(reference, assert_close, device, x, mask=mask, causal=True)


@pytest.mark.parametrize("queries", [1, 7, 100])
@pytest.mark.parametrize("keys", [1, 64, 1024])
def test_causal(reference, assert_close, device, dtype, queries, keys):
    check(reference, assert_close, device, random((2, queries, keys), dtype, 5), causal=True)


@pytest.mark.parametrize("length", [3, 64, 1024, 5000])
def test_masked_rows_nan_and_infinity(reference, assert_close, device, dtype, length):
    x = random((5, length), dtype, 6)
    x[0] = float("-inf")
    x[1, length // 2] = float("nan")
    x[2] = float("-inf")
    x[2, -1] = float("nan")
    x[3, 0] = float("inf")
    check(reference, assert_close, device, x)


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, shape):
    assert on(device, opdock.ops.log_softmax)(torch.empty(shape, dtype=dtype)).shape == shape


def test_float64_is_for_the_cpu(reference, device):
    row_cases.assert_float64_is_for_the_cpu(
        opdock.ops.log_softmax, reference.log_softmax, device, rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("length", row_cases.COMPARED_LENGTHS)
def test_no_larger_error_than_pytorch(device, dtype, op, length):
    row_cases.assert_no_larger_error(
        lambda x: getattr(opdock.ops, op)(x), lambda x: getattr(torch, op)(x, -1), dtype, length
    )
