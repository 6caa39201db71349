# SPDX-License-Identifier: Apache-2.0
"""Tests layer_norm, add_layer_norm and bias_add_layer_norm through the Python package, on every
device, against the reference in float64."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

# Bound of a handful of rounding errors: of the mean, of x - mean, of the deviation and of the
# affine map.
COMPUTED = 8 * 2.0**-24


def double(parameter):
    return None if parameter is None else parameter.double()


def scale_of(x, weight, bias, eps):
    """Returns the scale of the rounding errors: the terms of the formula in units of the
    deviation."""
    deviation = (x.var(-1, correction=0, keepdim=True) + eps).sqrt()
    scale = 1 + (x - x.mean(-1, keepdim=True)).abs() / deviation
    scale = scale + x.mean(-1, keepdim=True).abs() / deviation
    scale = scale if weight is None else scale * weight.double().abs()
    return scale if bias is None else scale + bias.double().abs()


def check(reference, assert_close, device, x, weight=None, bias=None, eps=1e-5):
    found = on(device, opdock.ops.layer_norm)(x, weight, bias, eps=eps)
    row_cases.assert_like(found, x)
    oracle = reference.layer_norm(x.double(), double(weight), double(bias), eps=eps)
    assert_close(found, oracle, COMPUTED, scale_of(x.double(), weight, bias, eps))


def check_add(reference, assert_close, device, x, residual, weight=None, bias=None, eps=1e-5):
    add_layer_norm = on(device, opdock.ops.add_layer_norm)
    found, total = add_layer_norm(x, residual, weight, bias, eps=eps)
    assert torch.equal(total, x + residual)
    oracle = reference.layer_norm(total.double(), double(weight), double(bias), eps=eps)
    assert_close(found, oracle, COMPUTED, scale_of(total.double(), weight, bias, eps))


def check_bias_add(reference, assert_close, device, x, residual, input_bias, weight, bias):
    """Also checks that the norm is the same where the sum is not wanted."""
    op = on(device, opdock.ops.bias_add_layer_norm)
    found, total = op(x, residual, input_bias, weight, bias)
    computed = torch.promote_types(x.dtype, torch.float32)
    wanted = x.to(computed) + residual.to(computed) + input_bias.to(computed)
    assert torch.equal(total, wanted.to(x.dtype))
    oracle = reference.layer_norm(total.double(), double(weight), double(bias))
    assert_close(found, oracle, COMPUTED, scale_of(total.double(), weight, bias, 1e-5))
    alone, none = op(x, residual, input_bias, weight, bias, with_sum=False)
    assert none is None and torch.equal(alone, found)


@pytest.mark.parametrize("length", row_cases.LENGTHS)
def test_row_lengths(reference, assert_close, device, dtype, length):
    x = random((5, length), dtype, length, mean=0.5)
    residual = random((5, length), dtype, length + 1)
    weight = random(length, dtype, length + 2, 0.5, 1.0)
    bias = random(length, dtype, length + 3)
    check(reference, assert_close, device, x)
    check(reference, assert_close, device, x, weight, bias)
    check_add(reference, assert_close, device, x, residual, weight, bias)
    more = random(length, dtype, length + 4)
    check_bias_add(reference, assert_close, device, x, residual, more, weight, bias)


@pytest.mark.parametrize("length", row_cases.WAY_LENGTHS)
def test_each_way_to_launch(reference, assert_close, device, dtype, length):
    x, residual = (random((3, length), dtype, seed, mean=0.5) for seed in (1, 2))
    weight, bias = (random(length, dtype, seed, 0.5, 1.0) for seed in (3, 4))
    oracle = reference.layer_norm(x.double(), weight.double(), bias.double())
    scale = scale_of(x.double(), weight, bias, 1e-5)
    for _, found in row_cases.each_way(device, opdock.ops.layer_norm, x, weight, bias):
        assert_close(found, oracle, COMPUTED, scale)
    total = x + residual
    oracle = reference.layer_norm(total.double(), weight.double(), bias.double())
    scale, add = scale_of(total.double(), weight, bias, 1e-5), opdock.ops.add_layer_norm
    for _, (found, stored) in row_cases.each_way(device, add, x, residual, weight, bias):
        assert torch.equal(stored, total)
        assert_close(found, oracle, COMPUTED, scale)
    computed = torch.promote_types(dtype, torch.float32)
    total = (x.to(computed) + residual.to(computed) + bias.to(computed)).to(dtype)
    oracle = reference.layer_norm(total.double(), weight.double())
    scale, add = scale_of(total.double(), weight, None, 1e-5), opdock.ops.bias_add_layer_norm
    for with_sum in (True, False):
        given = {"weight": weight, "with_sum": with_sum}
        for _, (found, stored) in row_cases.each_way(device, add, x, residual, bias, **given):
            assert torch.equal(stored, total) if with_sum else stored is None
            assert_close(found, oracle, COMPUTED, scale)


@pytest.mark.parametrize("length", [33, 520, 1000, 1024])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 1.0])
def test_optional_parameters(reference, assert_close, device, dtype, length, eps):
    x, residual = (random((4, length), dtype, seed) for seed in (1, 2))
    weight, bias = (random(length, dtype, seed) for seed in (3, 4))
    for w in (None, weight):
        for b in (None, bias):
            check(reference, assert_close, device, x, w, b, eps)
            check_add(reference, assert_close, device, x, residual, w, b, eps)


@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(reference, assert_close, device, dtype, length):
    for x in row_cases.layouts(length, dtype):
        other = random(x.shape, dtype, 3)
        check(reference, assert_close, device, x)
        check_add(reference, assert_close, device, x, other)
        check_add(reference, assert_close, device, other, x)
        check_add(reference, assert_close, device, x, x * 2)
        more = random(length, dtype, 4)
        check_bias_add(reference, assert_close, device, x, other, more, None, None)
    x, parameters = (random(n, dtype, 4) for n in ((7, length), (length + 24,)))
    for begin in row_cases.OFFSETS:
        check(reference, assert_close, device, x, parameters[begin : begin + length])
        more = parameters[begin : begin + length]
        check_bias_add(reference, assert_close, device, x, x, more, None, None)


def test_mean_far_from_zero(reference, assert_close, device, dtype):
    for length in (100, 1000, 1024, 40001):
        check(reference, assert_close, device, random((2, length), dtype, 5, 1.0, 300.0))


def test_nan_and_infinity_are_not_hidden(device, dtype):
    for length in (40, 1000, 1024):
        x = random((3, length), dtype, 6)
        x[0, length // 2] = float("nan")
        x[1, 0] = float("inf")
        found = on(device, opdock.ops.layer_norm)(x)
        assert found[:2].isnan().all() and not found[2].isnan().any()


@pytest.mark.parametrize("length", [40, 1000, 1024, 8192, 33000])
def test_the_sum_in_place(device, dtype, length):
    """The sum replaces x or residual while other threads still read their rows."""
    add_layer_norm = on(device, opdock.ops.add_layer_norm)
    x, residual = (random((5, length), dtype, seed, mean=8.0) for seed in (1, 2))
    y, total = add_layer_norm(x, residual)
    for place in (x.clone(), residual.clone()):
        both = (place, residual) if torch.equal(place, x) else (x, place)
        out = torch.empty_like(x)
        add_layer_norm(*both, out=(out, place))
        assert torch.equal(place, total) and torch.equal(out, y)


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, shape):
    x = torch.empty(shape, dtype=dtype)
    assert on(device, opdock.ops.layer_norm)(x).shape == shape
    assert [y.shape for y in on(device, opdock.ops.add_layer_norm)(x, x)] == [shape, shape]
    more = torch.empty(shape[-1:], dtype=dtype)
    both = on(device, opdock.ops.bias_add_layer_norm)(x, x, more)
    assert [y.shape for y in both] == [shape, shape]


def test_float64_is_for_the_cpu(reference, device):
    row_cases.assert_float64_is_for_the_cpu(
        opdock.ops.layer_norm, reference.layer_norm, device, rtol=1e-13, atol=1e-14
    )


def bad_inputs():
    x = torch.ones(2, 8)
    half = torch.ones(8, dtype=torch.float16)
    return [
        ("x", "layer_norm", (torch.ones(2, 8, dtype=torch.int64),), {}),
        ("x", "layer_norm", (torch.ones(()),), {}),
        ("x", "layer_norm", (x.t(),), {}),
        ("weight", "layer_norm", (x, half), {}),
        ("weight", "layer_norm", (x, torch.ones(7)), {}),
        ("weight", "layer_norm", (x, x), {}),
        ("weight", "layer_norm", (x, torch.ones(16)[::2]), {}),
        ("bias", "layer_norm", (x, None, half), {}),
        ("bias", "layer_norm", (x, None, torch.ones(9)), {}),
        ("eps", "layer_norm", (x,), {"eps": -1.0}),
        ("eps", "layer_norm", (x,), {"eps": float("nan")}),
        ("residual", "add_layer_norm", (x, torch.ones(8)), {}),
        ("residual", "add_layer_norm", (x, x.double()), {}),
        ("residual", "add_layer_norm", (x,), {}),
        ("input_bias", "bias_add_layer_norm", (x, x, torch.ones(7)), {}),
        ("input_bias", "bias_add_layer_norm", (x, x, half), {}),
    ]


@pytest.mark.parametrize("number", range(16))
def test_bad_inputs_name_the_argument(device, number):
    name, op, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, getattr(opdock.ops, op)), name, *args, **keywords)


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(reference, assert_close, cuda):
    x = random((64, 1024), torch.float16).to(cuda)
    scale = torch.full((), 4.0, device=cuda, dtype=torch.float64)
    found = row_cases.on_another_stream(opdock.ops.layer_norm, x)
    assert_close(found, reference.layer_norm(x.double()), COMPUTED, scale)
    found, total = row_cases.in_a_graph(lambda x: opdock.ops.add_layer_norm(x, x), x)
    assert torch.equal(total, x + x)
    assert_close(found, reference.layer_norm(total.double()), COMPUTED, scale)


@pytest.mark.gpu
@pytest.mark.parametrize("length", row_cases.HUGE_LENGTHS)
def test_more_than_2_to_the_31_elements(reference, assert_close, cuda, length):
    x, last = row_cases.huge_rows(length, cuda, copies=3)
    found, total = opdock.ops.add_layer_norm(x, x)
    assert torch.equal(total[-40:], last + last)
    doubled = (last + last).double()
    scale = scale_of(doubled, None, None, 1e-5)
    assert_close(found[-40:], reference.layer_norm(doubled), COMPUTED, scale)
    assert found[:-40].count_nonzero().item() == 0
