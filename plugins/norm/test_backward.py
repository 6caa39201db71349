# SPDX-License-Identifier: Apache-2.0
"""Tests the gradients of the norms on every device, against PyTorch's in float64."""

import pytest
import row_cases
import torch
import torch.nn.functional as F
from row_cases import random

import opdock
from opdock._author.on_device import is_soft
from opdock.testing import on

# Bound of a handful of rounding errors: of the mean, the deviation, the two sums and the formula's
# terms.
COMPUTED = 8 * 2.0**-24

NORMS = ("layer_norm", "rms_norm")


def theirs(norm, grad, x, weight, bias, eps):
    """Returns PyTorch's gradients of x, weight and bias, or None for an absent parameter, in the
    tensors' dtype."""
    wanted = [
        tensor.detach().requires_grad_() for tensor in (x, weight, bias) if tensor is not None
    ]
    with torch.enable_grad():
        x, *rest = wanted
        weight = rest.pop(0) if weight is not None else None
        parameters = (weight, *rest) if norm == "layer_norm" and rest else (weight,)
        found = list(
            torch.autograd.grad(
                getattr(F, norm)(x, x.shape[-1:], *parameters, eps=eps), wanted, grad
            )
        )
    return [found.pop(0)] + [None if p is None else found.pop(0) for p in (weight, bias)]


class Check:
    """Calls the ops on a device and compares their results with the oracle."""

    def __init__(self, device, assert_close):
        self.device, self.assert_close = device, assert_close

    def __call__(self, norm, grad, x, weight=None, bias=None, grad_sum=None, eps=1e-5):
        arguments = (weight, bias) if norm == "layer_norm" else (weight,)
        found = on(self.device, getattr(opdock.ops, f"{norm}_backward"))(
            grad, x, *arguments, grad_sum, eps=eps
        )
        wide = [None if t is None else t.double() for t in (grad, x, weight, bias)]
        oracle = theirs(norm, *wide, eps)
        row_cases.assert_like(found[0], x)
        self.of_x(norm, found[0], oracle[0], wide, grad_sum, eps)
        for place, parameter in ((1, weight), (2, bias)):
            if place < len(found) and parameter is None:
                assert found[place] is None
            elif place < len(found):
                row_cases.assert_like(found[place], parameter)
                self.of_parameter(norm, found[place], oracle[place], wide, eps, place)

    def moments(self, norm, x, eps):
        """Returns the normalised elements, 1 / deviation, and the scale of the rounding error of x
        - mean."""
        mean = x.mean(-1, keepdim=True) if norm == "layer_norm" else torch.zeros_like(x[..., :1])
        factor = ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
        return (x - mean) * factor, factor, mean.abs() * factor

    def of_x(self, norm, found, oracle, wide, grad_sum, eps):
        grad, x, weight, _ = wide
        y, factor, mean = self.moments(norm, x, eps)
        g = (grad if weight is None else grad * weight).abs()
        terms = g + g.mean(-1, keepdim=True)
        terms = terms + (1 + y.abs() + mean) * (g * (1 + y.abs() + mean)).mean(-1, keepdim=True)
        terms = terms * factor
        if grad_sum is not None:
            oracle, terms = oracle + grad_sum.double(), terms + grad_sum.double().abs()
        self.assert_close(found, oracle, COMPUTED, terms)

    def of_parameter(self, norm, found, oracle, wide, eps, place):
        """Allows for the terms' own errors, and one rounding for each term that is added."""
        grad, x, _, _ = wide
        y, _, mean = self.moments(norm, x, eps)
        terms = grad.abs() * (y.abs() + mean + 1) if place == 1 else grad.abs()
        rows = max(1, grad.numel() // grad.shape[-1])
        terms = terms.reshape(-1, grad.shape[-1]).sum(0)
        self.assert_close(found, oracle, COMPUTED * (1 + 0.05 * rows), terms)


@pytest.fixture
def check(device, assert_close):
    return Check(device, assert_close)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("length", row_cases.LENGTHS + [131072])
def test_row_lengths(check, dtype, norm, length):
    # Each long row has a block, or several, to itself: three rows test as much as five.
    rows = 5 if length <= 8192 else 3
    x, grad, more = (random((rows, length), dtype, length + i, mean=0.5) for i in range(3))
    weight, bias = random(length, dtype, length + 3, 0.5, 1.0), random(length, dtype, length + 4)
    check(norm, grad, x)
    check(norm, grad, x, weight, bias if norm == "layer_norm" else None, more)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "rows, length",
    [(1, 8), (40, 130), (300, 24), (3000, 40), (1100, 264), (700, 1024), (150, 4096), (70, 10240)],
)
def test_sums_over_rows(check, dtype, norm, rows, length):
    """More rows than a GPU's blocks take at once: plain ones, and some with one element more."""
    with_sum = rows < 1000
    if check.device != "cpu" and is_soft():
        # The 32 multiprocessors of a software GPU take at once at most 512 rows of 264 elements,
        # 256 of 1024, 64 of 4096, and 16 of 10240; teams take more than one row as soon as there
        # are more.
        rows = {1100: 600, 700: 300, 150: 80, 70: 40}.get(rows, rows)
    weight, bias = random(length, dtype, 3, 0.5, 1.0), random(length, dtype, 4)
    bias = bias if norm == "layer_norm" else None
    for more in (0, 1):
        x, grad = (
            random((rows, length + more), dtype, rows + i, mean=0.5)[:, more:] for i in range(2)
        )
        check(norm, grad, x, weight, bias, grad if with_sum else None)


@pytest.mark.parametrize("rows, length", [(34, 8200), (5, 16384), (5, 32768), (9, 65536)])
def test_rows_that_blocks_of_a_cluster_share(check, dtype, rows, length):
    """The shortest and the longest rows are three for each cluster of 32 multiprocessors."""
    x, grad, more = (random((rows, length), dtype, rows + i, mean=0.5) for i in range(3))
    weight, bias = random(length, dtype, 3, 0.5, 1.0), random(length, dtype, 4)
    check("rms_norm", grad, x, weight)
    check("layer_norm", grad, x, weight, bias, more)
    if length == 8200:
        check("rms_norm", grad, x, weight, None, more)
        check("layer_norm", grad, x, weight)
        check("layer_norm", grad, x, None, bias)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("rows, length", [(300, 520), (300, 1024), (140, 8200)])
def test_the_same_bits_each_time(device, dtype, norm, rows, length):
    x, grad = (random((rows, length), dtype, seed) for seed in (1, 2))
    backward = on(device, getattr(opdock.ops, f"{norm}_backward"))
    first = backward(grad, x, random(length, dtype, 3))
    again = backward(grad, x, random(length, dtype, 3))
    for one, other in zip(first[:2], again, strict=False):
        assert torch.equal(one, other)


@pytest.mark.parametrize("length", [33, 520, 1000, 1024])
@pytest.mark.parametrize("eps", [1e-5, 1.0])
def test_optional_parameters(check, dtype, length, eps):
    x, grad, more = (random((4, length), dtype, seed) for seed in (1, 2, 5))
    weight, bias = (random(length, dtype, seed) for seed in (3, 4))
    for w in (None, weight):
        for added in (None, more):
            check("rms_norm", grad, x, w, None, added, eps)
            for b in (None, bias):
                check("layer_norm", grad, x, w, b, added, eps)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096, 8200])
def test_misaligned_and_padded_rows(check, dtype, norm, length):
    weight = random(length + 1, dtype, 3)
    for x in row_cases.layouts(length, dtype):
        grad, more = (random((*x.shape[:-1], length + 1), dtype, seed) for seed in (4, 5))
        check(norm, x, grad[..., 1:], weight[1:], None, more[..., :-1])
        check(norm, grad[..., 1:], x, weight[:-1], None, x)


def test_mean_far_from_zero(check, dtype):
    for length in (100, 1000, 1024, 40000, 40001):
        x = random((4, length), dtype, 5, 1.0, 300.0)
        check("layer_norm", random((4, length), dtype, 6), x, random(length, dtype, 7))


@pytest.mark.parametrize("norm", NORMS)
def test_nan_is_not_hidden(device, dtype, norm):
    for length in (40, 1000, 1024, 16384):
        x, grad = (random((3, length), dtype, seed) for seed in (6, 7))
        weight = random(length, dtype, 8)
        x[0, length // 2] = float("nan")
        grad[1, 3] = float("nan")
        found = on(device, getattr(opdock.ops, f"{norm}_backward"))(grad, x, weight)
        assert found[0][:2].isnan().all() and not found[0][2].isnan().any()
        assert found[1].isnan().all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, norm, shape):
    empty, weight = torch.empty(shape, dtype=dtype), torch.ones(shape[-1], dtype=dtype)
    found = on(device, getattr(opdock.ops, f"{norm}_backward"))(empty, empty, weight)
    assert found[0].shape == shape and torch.equal(found[1], torch.zeros_like(weight))


@pytest.mark.parametrize("norm", NORMS)
def test_float64_is_for_the_cpu(device, norm):
    grad, x = (random((5, 1000), torch.float64, seed) for seed in (1, 2))
    weight = random(1000, torch.float64, 3)
    backward = on(device, getattr(opdock.ops, f"{norm}_backward"))
    if device == "cpu":
        found, oracle = backward(grad, x, weight), theirs(norm, grad, x, weight, None, 1e-5)
        for one, other in zip(found[:2], oracle, strict=False):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    else:
        row_cases.assert_refused(backward, "x", grad, x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("what", range(2))
@pytest.mark.parametrize("mean, deviation", [(0.0, 1.0), (300.0, 1.0), (100.0, 0.01)])
@pytest.mark.parametrize("length", row_cases.COMPARED_LENGTHS)
def test_no_larger_error_than_pytorch(device, dtype, norm, what, mean, deviation, length):
    weight, grad = random(length, dtype, 1), random((max(8, 65536 // length), length), dtype, 2)

    def like(x):
        return grad.to(x.dtype), x, weight.to(x.dtype)

    row_cases.assert_no_larger_error(
        lambda x: getattr(opdock.ops, f"{norm}_backward")(*like(x))[what],
        lambda x: theirs(norm, *like(x), None, 1e-5)[what],
        dtype,
        *(length, deviation, mean),
    )


def test_bad_inputs_name_the_argument(device):
    x, weight = torch.ones(2, 8), torch.ones(8)
    backward = on(device, opdock.ops.layer_norm_backward)
    row_cases.assert_refused(backward, "x", x, torch.ones(8, 2).T)
    row_cases.assert_refused(backward, "grad", torch.ones(2, 7), x)
    row_cases.assert_refused(backward, "grad", torch.ones(8, 2).T, x)
    row_cases.assert_refused(backward, "weight", x, x, torch.ones(7))
    row_cases.assert_refused(backward, "bias", x, x, weight, weight.half())
    row_cases.assert_refused(backward, "grad_sum", x, x, weight, weight, x.half())
    row_cases.assert_refused(backward, "eps", x, x, eps=-1.0)
