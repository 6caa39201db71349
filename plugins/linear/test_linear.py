# SPDX-License-Identifier: Apache-2.0
"""Tests linear and einsum_sec_sm_ecm on every device, against their definitions in float64."""

import sys
from pathlib import Path

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
from linear_cases import (
    ACTIVATIONS,
    Sum,
    matrix,
    more_roundings,
    most_ratio,
    product_wanted,
    weight,
)

SHAPES = [(1, 1, 1), (3, 5, 7), (1, 64, 130), (65, 33, 16), (2, 130, 66), (17, 1, 40)]


def wanted(device, x, w, bias=None, residual=None, activation="none", transposed=True):
    return product_wanted(device, x, matrix(w, transposed), bias, residual, activation)


def check(device, x, w, bias=None, residual=None, **keywords):
    found = on(device, opdock.ops.linear)(x, w, bias, residual, **keywords)
    wanted(device, x, w, bias, residual, **keywords).check(found, x.dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transposed", [True, False])
def test_shapes(device, dtype, shape, transposed):
    m, n, k = shape
    w = weight(n, k, dtype, transposed)
    check(device, random((m, k), dtype, 2), w, transposed=transposed)
    check(device, random((m, k), dtype, 2), w, random(n, dtype, 3), transposed=transposed)


# A row is shared by 1 to 8 warps, and by all 8 more than once; 4096 outputs and more are divided
# differently. Inputs that are not whole vectors are read one by one.
@pytest.mark.parametrize(
    ("n", "k"), [(1, 8), (7, 3), (9, 768), (5, 1030), (3, 4104), (2, 9000), (4097, 24), (4098, 5)]
)
def test_one_row(device, dtype, n, k):
    x, bias, residual = random((1, k), dtype, 1), random(n, dtype, 2), random((1, n), dtype, 3)
    for w in (weight(n, k, dtype), weight(n + 1, k + 16, dtype)[1:, 8:-8]):
        check(device, x, w)
        check(device, x, w, bias, residual, activation="gelu")
    wide = random((1, k + 1), dtype, 4)
    check(device, wide[:, 1:], weight(n, k + 1, dtype)[:, 1:], bias)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_epilogues(device, dtype, activation, biased):
    x, w, residual = random((9, 40), dtype, 1), weight(24, 40, dtype), random((9, 24), dtype, 3)
    bias = random(24, dtype, 4) if biased else None
    check(device, x, w, bias, activation=activation)
    check(device, x, w, bias, residual, activation=activation)


@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3), (2, 1, 3), (2, 2, 2, 2)])
def test_leading_dimensions(device, dtype, lead):
    w, bias = weight(12, 20, dtype), random(12, dtype, 2)
    check(device, random((*lead, 20), dtype, 1), w, bias, random((*lead, 12), dtype, 3))


@pytest.mark.parametrize("transposed", [True, False])
def test_strides_and_misalignment(device, dtype, transposed):
    wide = weight(24, 48, dtype, transposed)
    w = wide[2:16, 1:34] if transposed else wide[2:35, 1:15]
    keywords = {"transposed": transposed}
    bias = random(30, dtype, 2)[3:17]
    for x in row_cases.layouts(33, dtype):
        check(device, x, w, bias, **keywords)
        residual = random((*x.shape[:-1], 20), dtype, 3)[..., 5:19]
        check(device, x, w, bias, residual, activation="silu", **keywords)
    # No two dimensions can be merged, in x or in the others.
    x = random((2, 3, 4, 5, 33), dtype, 5).permute(3, 0, 2, 1, 4)
    residual = random((4, 5, 3, 2, 14), dtype, 6).permute(1, 3, 0, 2, 4)
    check(device, x, w, bias, residual, **keywords)
    check(device, x, w, bias, random((14,), dtype, 7).expand(5, 2, 4, 3, 14), **keywords)


def test_where_the_result_goes(device, dtype):
    x, w, residual = random((3, 4, 20), dtype, 1), weight(12, 20, dtype), random((3, 4, 12), dtype)
    linear = on(device, opdock.ops.linear)
    memory = torch.full((4, 5, 16), 7.0, dtype=dtype)
    for out in (memory[:3, :4, 2:14], memory[:4, :3, 4:].permute(1, 0, 2)):
        memory.fill_(7)
        assert linear(x, w, residual=residual, activation="relu", out=out) is out
        wanted(device, x, w, None, residual, "relu").check(out, dtype)
        assert (memory == 7).sum() >= memory.numel() - out.numel()
        out.fill_(7)
        assert (memory == 7).all()


@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_in_place_of_the_residual(device, dtype, activation):
    x, w, residual = random((9, 20), dtype, 1), weight(12, 20, dtype), random((9, 12), dtype, 2)
    out = residual.clone()
    keywords = {"activation": activation}
    assert on(device, opdock.ops.linear)(x, w, None, out, out=out, **keywords) is out
    wanted(device, x, w, None, residual, **keywords).check(out, dtype)


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_zero_sizes(device, dtype, shape):
    m, n, k = shape
    x, w = torch.empty((2, m, k), dtype=dtype), torch.empty((n, k), dtype=dtype)
    bias, residual = random(n, dtype, 1), random((2, m, n), dtype, 2)
    found = on(device, opdock.ops.linear)(x, w, bias, residual, activation="gelu")
    wanted(device, x, w, bias, residual, "gelu").check(found, dtype)


def test_nan_and_infinity_are_not_hidden(device, dtype):
    x = random((4, 20), dtype, 1)
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    found = on(device, opdock.ops.linear)(x, weight(7, 20, dtype), activation="relu")
    assert found[1].isnan().all() and not found[2].isfinite().all()
    assert found[0].isfinite().all() and found[3].isfinite().all()


@pytest.mark.parametrize("shape", [(1, 512, 512), (128, 1232, 512), (255, 512, 1232)])
@pytest.mark.parametrize("activation", ["none", "gelu_tanh"])
def test_errors_are_no_larger_than_pytorchs(dtype, shape, activation):
    """On the CPU, compares the root of the mean square, which no single tie decides."""
    m, n, k = shape
    x, w, bias = random((m, k), dtype, 1), weight(n, k, dtype), random(n, dtype, 2)
    oracle = wanted("cpu", x, w, bias, activation=activation).value
    theirs = torch.nn.functional.linear(x, w, bias)
    if activation != "none":
        theirs = torch.nn.functional.gelu(theirs, approximate="tanh")
    ours = opdock.ops.linear(x, w, bias, activation=activation)
    errors = [(y.double() - oracle).square().mean().sqrt().item() for y in (ours, theirs)]
    assert errors[0] <= most_ratio(m * n) * errors[1], errors


@pytest.mark.parametrize("shape", [(6, 2, 3, 5), (1, 1, 1, 1), (40, 4, 20, 33), (7, 3, 1, 8)])
def test_einsum(device, dtype, shape):
    s, e, c, m = shape
    q, w = random((s, e, c), dtype, 1), random((s, m), dtype, 2)
    wide = random((s, 2 * e, c + 3), dtype, 3)
    for one in (q, wide[:, :e, :c], wide[:, ::2, 2 : c + 2]):
        for other in (w, random((s, m + 5), dtype, 4)[:, 1 : m + 1]):
            found = on(device, opdock.ops.einsum_sec_sm_ecm)(one, other)
            total = Sum.of(one.double().reshape(s, -1).t(), other.double())
            total = total.rounded(dtype, more_roundings(device))
            total.check(found.reshape(e * c, m), dtype)
            assert found.shape == (e, c, m)


@pytest.mark.parametrize("shape", [(0, 2, 3, 5), (6, 0, 3, 5), (6, 2, 0, 5), (6, 2, 3, 0)])
def test_einsum_of_nothing(device, dtype, shape):
    s, e, c, m = shape
    q, w = torch.ones((s, e, c), dtype=dtype), torch.ones((s, m), dtype=dtype)
    found = on(device, opdock.ops.einsum_sec_sm_ecm)(q, w)
    assert found.shape == (e, c, m) and found.dtype == dtype and not found.any()


def bad_inputs():
    x, w, bias = torch.ones(2, 3, 8), torch.ones(5, 8), torch.ones(5)
    q, s = torch.ones(6, 2, 3), torch.ones(6, 4)
    einsum = "einsum_sec_sm_ecm"
    return [
        ("x", "linear", (x.double(), w.double()), {}),
        ("x", "linear", (x.long(), w), {}),
        ("x", "linear", (torch.ones(()), w), {}),
        ("x", "linear", (x.permute(0, 2, 1), torch.ones(5, 3)), {}),
        ("weight", "linear", (x, w), {"transposed": False}),
        ("weight", "linear", (x, w.half()), {}),
        ("weight", "linear", (x, torch.ones(8)), {}),
        ("weight", "linear", (x, torch.ones(8, 5).t()), {}),
        ("weight", "linear", (x, torch.ones(1, 8).expand(5, 8)), {}),
        ("bias", "linear", (x, w, torch.ones(8)), {}),
        ("bias", "linear", (x, w, bias.half()), {}),
        ("bias", "linear", (x, w, torch.ones(10)[::2]), {}),
        ("residual", "linear", (x, w, bias, x), {}),
        ("residual", "linear", (x, w, bias, bias), {}),
        ("residual", "linear", (x, w, None, torch.ones(2, 3, 5).half()), {}),
        ("activation", "linear", (x, w), {"activation": "mish"}),
        ("q", einsum, (q.double(), s.double()), {}),
        ("q", einsum, (torch.ones(6, 2), s), {}),
        ("q", einsum, (q.permute(1, 2, 0).contiguous().permute(2, 0, 1), s), {}),
        ("q", einsum, (torch.ones(2, 3).expand(6, 2, 3), s), {}),
        ("w", einsum, (q, s[:5]), {}),
        ("w", einsum, (q, s.half()), {}),
        ("w", einsum, (q, torch.ones(6)), {}),
    ]


@pytest.mark.parametrize("number", range(23))
def test_bad_inputs_name_the_argument(device, number):
    name, which, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, getattr(opdock.ops, which)), name, *args, **keywords)


def test_results_that_share_memory_with_arguments_are_refused(device):
    x = torch.ones(4, 8)
    for args in ((x, torch.ones(8, 8)), (torch.ones(8, 8), torch.ones(8, 8), None, torch.ones(8))):
        out = args[0]
        with pytest.raises(opdock.OpdockError):
            on(device, opdock.ops.linear)(*args, out=out)


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(cuda):
    x, w, bias = random((64, 1024), torch.float16), weight(256, 1024, torch.float16), None
    x, w, bias = x.to(cuda), w.to(cuda), random(256, torch.float16, 3).to(cuda)

    def linear(y):
        return opdock.ops.linear(y, w, bias, activation="gelu")

    assert torch.equal(row_cases.on_another_stream(linear, x), linear(x))
    assert torch.equal(row_cases.in_a_graph(linear, x), linear(x))
