# SPDX-License-Identifier: Apache-2.0
"""Tests the gradients of softmax and log_softmax on every device, against PyTorch's in float64."""

import functools

import pytest
import row_cases
import torch

import opdock
from opdock.testing import on

# Bound of the rounding errors of the sum and the differences, relative to the terms' magnitudes; on
# a GPU it includes the exponential's own error.
COMPUTED = 8 * 2.0**-24

OPS = ("softmax", "log_softmax")
random = functools.partial(row_cases.random, deviation=1.5)


def theirs(op, grad, result):
    """Calls PyTorch's kernel, in the tensors' dtype."""
    return getattr(torch, f"_{op}_backward_data")(grad, result, -1, result.dtype)


def check(
    assert_close, device, op, grad, result, causal=False, scale=1.0, each=False, computed=COMPUTED
):
    """Compares a gradient with the oracle. each: for each way to launch the op."""
    backward, options = getattr(opdock.ops, op + "_backward"), {"scale": scale, "causal": causal}
    if each:
        ways = [found for _, found in row_cases.each_way(device, backward, grad, result, **options)]
    else:
        ways = [on(device, backward)(grad, result, **options)]
    row_cases.assert_like(ways[0], result)
    grad, result = grad.double(), result.double()
    unmasked = torch.ones_like(result, dtype=torch.bool)
    if causal:
        unmasked = unmasked.tril(result.shape[-1] - result.shape[-2])
    if op == "log_softmax":
        unmasked &= ~result.isneginf()
    nothing = 0.0 if op == "softmax" else float("-inf")
    grad, result = grad.where(unmasked, 0.0), result.where(unmasked, nothing)
    oracle = theirs(op, grad, result) * scale
    share = result if op == "softmax" else result.exp()
    part = grad.abs() * (result if op == "softmax" else 1.0)
    terms = part + share * part.sum(-1, keepdim=True)
    for found in ways:
        assert not found[~unmasked].any()
        assert_close(found, oracle, computed, terms * abs(scale))


def result_of(op, x):
    return getattr(torch, op)(x.double(), -1).to(x.dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", row_cases.LENGTHS + [131072])
def test_row_lengths(assert_close, device, dtype, op, length):
    result = result_of(op, random((5, length), dtype, length))
    check(assert_close, device, op, random((5, length), dtype, 1, mean=0.5), result, scale=0.7)


@pytest.mark.parametrize("length", row_cases.WAY_LENGTHS)
def test_each_way_to_launch(assert_close, device, dtype, length):
    grad, result = random((3, length), dtype, 1), result_of("softmax", random((3, length), dtype))
    for causal in (False, True):
        check(assert_close, device, "softmax", grad, result, causal, each=True)


# Gradients of fewer than 48 Ki elements of float32 are computed by one thread; 61 rows of 1,030 are
# more.
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("rows", [29, 61])
def test_threads_share_rows(several_threads, assert_close, device, dtype, op, rows):
    result = result_of(op, random((rows, 1030), dtype))
    check(assert_close, device, op, random((rows, 1030), dtype, 1, mean=0.5), result, scale=0.7)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(assert_close, device, dtype, op, length):
    for grad in row_cases.layouts(length, dtype, 1.5):
        for wide in (0, 1):
            result = result_of(op, random((*grad.shape[:-1], length + wide), dtype, 2))
            check(assert_close, device, op, grad, result[..., wide:])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", [2, 33, 520, 4099])
def test_expanded_gradients(assert_close, device, dtype, op, length):
    """sum().backward() passes one element for all elements, and sum(-1) one for each row."""
    result = result_of(op, random((3, 5, length), dtype, 3))
    for shape in ((1, 1, 1), (3, 5, 1), (5, 1)):
        grad = random(shape, dtype, 4, mean=0.5).expand(3, 5, length)
        assert grad.stride(-1) == 0
        for causal in (False, True):
            # The rounding errors in a sum of equal numbers have the same sign, and add up.
            options = {"causal": causal, "scale": 0.7, "computed": 4 * COMPUTED}
            check(assert_close, device, op, grad, result, **options)
    backward = on(device, getattr(opdock.ops, op + "_backward"))
    wanted, place = backward(grad, result), result.clone()
    assert torch.equal(backward(grad, place, out=place), wanted)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("queries", [1, 2, 7, 100])
@pytest.mark.parametrize("keys", [1, 64, 263, 520, 1024, 5000, 8191])
def test_causal(assert_close, device, dtype, op, queries, keys):
    result = result_of(op, random((2, queries, keys), dtype, 5))
    grad = random((2, queries, keys), dtype, 6)
    hidden = ~torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    grad[:, hidden] = float("nan")  # masked elements are not read
    check(assert_close, device, op, grad, result, causal=True, scale=-0.5)


@pytest.mark.parametrize("length", [3, 64, 1000, 5000])
def test_what_is_masked_has_no_gradient(assert_close, device, dtype, length):
    x = random((4, length), dtype, 6)
    x[0], x[1, 1], x[2, 1:] = float("-inf"), float("-inf"), float("-inf")
    grad = random((4, length), dtype, 7)
    result = opdock.ops.log_softmax(x)
    check(assert_close, device, "log_softmax", grad, result)
    check(assert_close, device, "softmax", grad, opdock.ops.softmax(x))


@pytest.mark.parametrize("op", OPS)
def test_nan_spreads_over_its_row(device, dtype, op):
    result = result_of(op, random((3, 700), dtype, 1))
    grad = random((3, 700), dtype, 2)
    grad[1, 5] = float("nan")
    found = on(device, getattr(opdock.ops, op + "_backward"))(grad, result)
    assert found[1].isnan().all() and not found[0::2].isnan().any()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", [40, 1000, 1024, 33000])
def test_in_place(device, dtype, op, length):
    backward = on(device, getattr(opdock.ops, op + "_backward"))
    result = result_of(op, random((5, length), dtype, 1))
    grad = random((5, length), dtype, 2)
    wanted = backward(grad, result)
    for place in (grad.clone(), result.clone()):
        both = (place, result) if torch.equal(place, grad) else (grad, place)
        backward(*both, out=place)
        assert torch.equal(place, wanted)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, op, shape):
    empty = torch.empty(shape, dtype=dtype)
    assert on(device, getattr(opdock.ops, op + "_backward"))(empty, empty).shape == shape


@pytest.mark.parametrize("op", OPS)
def test_float64_is_for_the_cpu(device, op):
    grad, x = random((5, 1000), torch.float64), random((5, 1000), torch.float64, 1)
    result = result_of(op, x)
    backward = on(device, getattr(opdock.ops, op + "_backward"))
    if device == "cpu":
        torch.testing.assert_close(
            backward(grad, result), theirs(op, grad, result), rtol=1e-13, atol=1e-15
        )
    else:
        row_cases.assert_refused(backward, "result", grad, result)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", row_cases.COMPARED_LENGTHS)
def test_no_larger_error_than_pytorch(device, dtype, op, length):
    grad = random((max(8, 65536 // length), length), dtype, 3)
    row_cases.assert_no_larger_error(
        lambda y: getattr(opdock.ops, op + "_backward")(grad.to(y.dtype), result_of(op, y)),
        lambda y: theirs(op, grad.to(y.dtype), result_of(op, y.to(dtype)).to(y.dtype)),
        dtype,
        length,
    )


def test_bad_inputs_name_the_argument(device):
    x = torch.ones(2, 8)
    backward = on(device, opdock.ops.softmax_backward)
    row_cases.assert_refused(backward, "grad", torch.ones(2, 7), x)
    row_cases.assert_refused(backward, "grad", x.half(), x)
    row_cases.assert_refused(backward, "grad", torch.ones(8, 2).T, x)
    row_cases.assert_refused(backward, "result", x, torch.ones(8, 2).T)
    row_cases.assert_refused(backward, "result", torch.ones(8), torch.ones(8), causal=True)
