# SPDX-License-Identifier: Apache-2.0
"""Tests products with int8 weights on every device, against their definition in float64: each
weight times the scale of its group."""

import sys
from pathlib import Path

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock._author.on_device import is_soft
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
from linear_cases import ACTIVATIONS, Sum, activate, product_wanted

ROWS = [1, 2, 4, 5, 8, 11, 32, 33, 70]


def integers(outputs, inputs, transposed=True, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shape = (outputs, inputs) if transposed else (inputs, outputs)
    return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)


def scales(groups, inputs, seed=2):
    """Returns scales that keep the sums near 1."""
    return (random(groups, torch.float32, seed).abs() + 0.1) / (64 * max(1, inputs) ** 0.5)


def matrix(q, scale, transposed=True):
    """Returns the matrix that the weight represents, in float64: element i is in group i // (numel
    / groups)."""
    size = q.numel() // scale.numel()
    of = torch.arange(q.numel()) // max(1, size)
    w = (q.reshape(-1).double() * scale.reshape(-1).double()[of]).reshape(q.shape)
    return w.t() if transposed else w


def wanted(x, w, bias=None, residual=None, activation="none"):
    total = Sum.of(x.double(), w, bias).activated(activation)
    return total if residual is None else total.plus(residual)


def check(device, x, q, scale, bias=None, residual=None, activation="none", transposed=True):
    found = on(device, opdock.ops.linear)(
        x, q, bias, residual, weight_scale=scale, activation=activation, transposed=transposed
    )
    check_found(device, found, x, q, scale, bias, residual, activation, transposed)


def check_found(device, found, x, q, scale, bias, residual, activation, transposed=True):
    w = matrix(q, scale, transposed)
    rows = x.numel() // x.shape[-1]
    try:
        wanted(x, w, bias, residual, activation).check(found, x.dtype)
    except AssertionError:
        # On a GPU the weight may have been copied in these cases (docs/concepts/gemm.md).
        if device == "cpu" or not q.is_contiguous() or (transposed and rows <= 32):
            raise
        w = w.to(x.dtype).double()
        product_wanted(device, x, w, bias, residual, activation).check(found, x.dtype)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (70, 64), (130, 80)])
@pytest.mark.parametrize("transposed", [True, False])
def test_shapes(device, dtype, rows, shape, transposed):
    n, k = shape
    q, x = integers(n, k, transposed), random((rows, k), dtype, 3)
    check(device, x, q, scales(1, k), transposed=transposed)
    check(device, x, q, scales(q.shape[0], k), random(n, dtype, 4), transposed=transposed)


@pytest.mark.pairs
@pytest.mark.parametrize("groups", [1, 2, 5, 10, 12, 30, 60, 240, 480, 960])
@pytest.mark.parametrize("rows", [1, 6, 40])
@pytest.mark.parametrize("transposed", [True, False])
def test_groups(device, dtype, groups, rows, transposed):
    """Groups consist of rows, of parts of rows, and of parts of two rows."""
    q, x = integers(20, 48, transposed), random((rows, 48), dtype, 3)
    check(device, x, q, scales(groups, 48), transposed=transposed)


@pytest.mark.parametrize("rows", [2, 9, 33, 200])
@pytest.mark.parametrize("shape", [(72, 128), (70, 192), (136, 320), (40, 80)])
def test_groups_of_vectors(device, dtype, rows, shape):
    """Tensor cores may handle these groups: of 64 inputs, of a whole row, and of several rows."""
    n, k = shape
    # A software GPU is slow: 70 rows also make several blocks of 32 rows and a rest.
    rows = min(rows, 70) if device != "cpu" and is_soft() else rows
    q, x = integers(n, k), random((rows, k), dtype, 3)
    bias, residual = random(n, dtype, 4), random((rows, n), dtype, 5)
    for groups in [n * k // 64] * (k % 64 == 0) + [n * k // 16, n, n // 2, 1]:
        scale = scales(groups, k)
        check(device, x, q, scale)
        check(device, x, q, scale, bias, residual, "gelu")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_epilogues(device, dtype, activation, rows):
    q, scale, x = integers(24, 64), scales(24, 64), random((rows, 64), dtype, 3)
    bias, residual = random(24, dtype, 4), random((rows, 24), dtype, 5)
    check(device, x, q, scale, None, None, activation)
    check(device, x, q, scale, bias, residual, activation)
    out = residual.clone()
    linear = on(device, opdock.ops.linear)
    linear(x, q, bias, out, weight_scale=scale, activation=activation, out=out)
    check_found(device, out, x, q, scale, bias, residual, activation)


@pytest.mark.parametrize("length", [33, 48])
@pytest.mark.parametrize("transposed", [True, False])
def test_strides_and_misalignment(device, dtype, length, transposed):
    wide = integers(40, length + 30, transposed)
    q = wide[5:25, 3 : length + 3] if transposed else wide[7 : length + 7, 1:21]
    scale, bias = random(25, torch.float32, 2)[5:].abs() / 500, random(30, dtype, 4)[3:23]
    aligned = integers(20, length, transposed)
    for x in row_cases.layouts(length, dtype):
        residual = random((*x.shape[:-1], 25), dtype, 5)[..., 3:23]
        check(device, x, aligned, scale, transposed=transposed)
        check(device, x, q, scale, bias, residual, "silu", transposed)
        check(device, x[0], q, scale, bias, None, "none", transposed)
    found = torch.full((4, 30), 7.0, dtype=dtype)
    x = random((4, length), dtype, 6)
    on(device, opdock.ops.linear)(
        x, q, weight_scale=scale, transposed=transposed, out=found[:, 2:22]
    )
    wanted(x, matrix(q, scale, transposed)).check(found[:, 2:22], dtype)
    assert (found[:, :2] == 7).all() and (found[:, 22:] == 7).all()


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
@pytest.mark.parametrize("groups", [0, 3])
def test_zero_sizes(device, dtype, shape, groups):
    m, n, k = shape
    scale = torch.ones(groups or (0 if n * k == 0 else 1))
    x, bias = torch.empty((m, k), dtype=dtype), random(n, dtype, 1)
    found = on(device, opdock.ops.linear)(x, integers(n, k), bias, weight_scale=scale)
    assert found.shape == (m, n) and torch.equal(found, bias.expand(m, n))


def test_special_scales_and_all_integers(device, dtype):
    q = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).reshape(4, 64)
    scale = torch.tensor([1.0, float("inf"), float("nan"), 0.0])
    eye = torch.eye(64, dtype=dtype)
    for rows in (1, 64):
        x = eye[:rows]
        found = on(device, opdock.ops.linear)(x, q, weight_scale=scale)
        assert torch.equal(found[:, 0].float(), q[0, :rows].float())
        assert found[:, 2].isnan().all() and not found[:, 3].any()
    x = torch.ones((1, 64), dtype=dtype)
    found = on(device, opdock.ops.linear)(x, q.abs().clamp(1, 2), weight_scale=scale)
    assert found[0, 1] == float("inf")


def test_few_rows_round_no_weight(device):
    """DeepSpeed rounds the weights to float16 first, in which these are infinite."""
    q, scale = torch.full((8, 32), 127, dtype=torch.int8), torch.full((1,), 1000.0)
    x = torch.full((2, 32), 0.0001, dtype=torch.float16)
    found = on(device, opdock.ops.linear)(x, q, weight_scale=scale)
    wanted(x, matrix(q, scale)).check(found, torch.float16)


@pytest.mark.parametrize("op", ["gated_linear", "norm_linear", "mlp", "norm_mlp"])
@pytest.mark.parametrize("rows", [1, 40])
def test_in_the_other_ops(device, dtype, op, rows):
    """The results equal those for the float32 weights that the int8 ones represent; the products in
    between are rounded alike, except for single ones."""
    x = random((rows, 48), dtype, 3)
    q1, s1, q2, s2 = integers(32, 48), scales(32, 48), integers(20, 32, seed=7), scales(4, 32)
    call = on(device, getattr(opdock.ops, op))
    h = x
    if op in ("gated_linear", "norm_linear"):
        found = call(x, q1, weight_scale=s1)
        if op == "norm_linear":
            found, h = found
    else:
        found = call(x, q1, q2, weight1_scale=s1, weight2_scale=s2)
        if op == "norm_mlp":
            found, h, _ = found

    def oracle(w1, w2):
        first = h.double() @ w1
        if op == "norm_linear":
            return first
        if op == "gated_linear":
            hidden, gate = first.to(dtype).double().chunk(2, -1)
            return hidden * activate("silu", gate)
        return activate("gelu", first).to(dtype).double() @ w2

    weights = matrix(q1, s1), matrix(q2, s2)
    tolerance = {torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}[dtype]
    try:
        torch.testing.assert_close(found.double(), oracle(*weights), rtol=tolerance, atol=tolerance)
    except AssertionError:
        # On a GPU the weights may have been copied in these cases (docs/concepts/gemm.md).
        if device == "cpu" or rows <= 32:
            raise
        copies = (w.to(dtype).double() for w in weights)
        torch.testing.assert_close(found.double(), oracle(*copies), rtol=tolerance, atol=tolerance)


def bad_inputs():
    x, q, scale = torch.ones(2, 8), torch.ones(6, 8, dtype=torch.int8), torch.ones(6)
    return [
        ("weight", "linear", (x, q), {}),
        ("weight", "linear", (x, q.float()), {"weight_scale": scale}),
        ("weight", "linear", (x, q[:, :7]), {"weight_scale": scale}),
        ("weight", "linear", (x, q[0]), {"weight_scale": scale}),
        ("weight", "linear", (x, q.t().contiguous().t()), {"weight_scale": scale}),
        ("weight_scale", "linear", (x, q), {"weight_scale": scale.double()}),
        ("weight_scale", "linear", (x, q), {"weight_scale": torch.ones(5)}),
        ("weight_scale", "linear", (x, q), {"weight_scale": torch.ones(0)}),
        ("weight_scale", "linear", (x, q), {"weight_scale": torch.ones(12)[::2]}),
        ("weight", "gated_linear", (x, q), {}),
        ("weight_scale", "norm_linear", (x, q), {"weight_scale": torch.ones(7)}),
        ("weight1_scale", "mlp", (x, q, q), {"weight1_scale": torch.ones(7)}),
        ("weight2", "mlp", (x, q, q[:, :6]), {"weight1_scale": scale}),
        ("weight2_scale", "norm_mlp", (x, torch.ones(8, 8), q), {"weight2_scale": scale.half()}),
    ]


@pytest.mark.parametrize("number", range(14))
def test_bad_inputs_name_the_argument(device, number):
    name, which, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, getattr(opdock.ops, which)), name, *args, **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 16, 64, 512])
def test_large_on_a_gpu(cuda, dtype, rows):
    q, scale, x = integers(1500, 4096), scales(1500, 4096), random((rows, 4096), dtype, 3)
    check(cuda, x, q, scale, random(1500, dtype, 4), None, "gelu")
    here = [t.to(cuda) for t in (x, q, scale)]

    def linear(y):
        return opdock.ops.linear(y, here[1], weight_scale=here[2])

    assert torch.equal(row_cases.on_another_stream(linear, here[0]), linear(here[0]))
    assert torch.equal(row_cases.in_a_graph(linear, here[0]), linear(here[0]))
