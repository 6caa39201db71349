# SPDX-License-Identifier: Apache-2.0
"""Tests gated_linear, norm_linear, mlp and norm_mlp on every device, step by step: each step is
compared with its definition in float64, applied to the previous step's result in the dtype."""

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
    HALF_ULP,
    SLOPE,
    Sum,
    activate,
    early_dtype,
    matrix,
    more_roundings,
    most_ratio,
    weight,
)

GATES = ACTIVATIONS[1:]


def product(device, x, w, bias, transposed=True, more=1):
    """Returns x w + bias; more: how often it is rounded before it becomes a result."""
    early = early_dtype(device, x.dtype)
    total = Sum.of(x.double(), matrix(w, transposed), bias, early)
    return total.rounded(x.dtype, more_roundings(device) + more)


def gated(both, name, gate_first, dtype):
    """Returns hidden * activation(gate) for a Sum that consists of two halves."""
    values, errors = both.value.chunk(2, -1), both.error.chunk(2, -1)
    gate, hidden = (0, 1) if gate_first else (1, 0)
    opened = Sum(values[gate], errors[gate]).activated(name)
    own = 4e-6 * (values[hidden] * opened.value).abs() + HALF_ULP[dtype][1]
    error = values[hidden].abs() * opened.error + opened.value.abs() * errors[hidden]
    return Sum(values[hidden] * opened.value, error + errors[hidden] * opened.error + own)


def through(total, w, bias, transposed, device, dtype):
    """Returns a second product, of a factor that is known only with an error."""
    early = early_dtype(device, dtype)
    next_one = Sum.of(total.value, matrix(w, transposed), bias, early)
    error = total.error @ matrix(w, transposed).abs()
    next_one = Sum(next_one.value, next_one.error + error)
    return next_one.rounded(dtype, more_roundings(device))


def normalised(x, gamma, beta, norm, eps):
    """Returns the normalised x in float64, with an error from the size of its terms."""
    wide = x.double()
    mean = wide.mean(-1, keepdim=True) if norm == "layer" else 0.0
    deviation = ((wide - mean).square().mean(-1, keepdim=True) + eps).sqrt()
    y = (wide - mean) / deviation
    size = 1 + y.abs() + abs(mean) / deviation
    if gamma is not None:
        y, size = y * gamma.double(), size * gamma.double().abs()
    if beta is not None:
        y, size = y + beta.double(), size + beta.double().abs()
    return Sum(y, 8 * 2.0**-24 * size)


def float_sum(*terms):
    """Returns the sum, in float32, of the terms that are not None."""
    return sum(term.float() for term in terms if term is not None)


def check_gated(device, x, w, bias=None, activation="silu", gate_first=False, transposed=True):
    keywords = {"activation": activation, "gate_first": gate_first, "transposed": transposed}
    found = on(device, opdock.ops.gated_linear)(x, w, bias, **keywords)
    both = product(device, x, w, bias, transposed)
    gated(both, activation, gate_first, x.dtype).check(found, x.dtype)


@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("gate_first", [False, True])
def test_gates(device, dtype, activation, gate_first):
    for transposed in (True, False):
        w = weight(2 * 24, 40, dtype, transposed)
        for bias in (None, random(48, dtype, 2)):
            x = random((3, 5, 40), dtype, 1)
            check_gated(device, x, w, bias, activation, gate_first, transposed)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (1, 66, 130), (33, 17, 16)])
def test_shapes_of_gates(device, dtype, shape):
    m, n, k = shape
    check_gated(device, random((m, k), dtype, 1), weight(2 * n, k, dtype), random(2 * n, dtype, 2))
    x = random((2, k, m + 3), dtype, 1)[..., :m].mT.contiguous()
    check_gated(device, x, weight(2 * n, k, dtype))
    check_gated(device, x[0, 0], weight(2 * n, k, dtype))


@pytest.mark.parametrize("length", [1, 7, 64, 132, 1024, 1030, 5000])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norm_lengths(device, dtype, length, norm):
    """Lengths of rows for each way to normalise them."""
    x = random((3, length), dtype, 1, mean=0.5)
    gamma, beta = random(length, dtype, 2, 0.5, 1.0), random(length, dtype, 3)
    w, bias = weight(8, length, dtype), random(8, dtype, 4)
    for g, b in ((None, None), (gamma, beta)):
        keywords = {"gamma": g, "beta": b if norm == "layer" else None}
        found, h = on(device, opdock.ops.norm_linear)(x, w, bias, norm=norm, **keywords)
        normalised(x, norm=norm, eps=1e-5, **keywords).check(h, dtype)
        product(device, h, w, bias, more=0).check(found, dtype)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 1.0])
def test_norm_linear_of_any_rows(device, dtype, eps):
    w = weight(12, 33, dtype, transposed=False)
    for x in row_cases.layouts(33, dtype):
        keywords = {"gamma": random(40, dtype, 2)[3:36], "eps": eps}
        norm_linear = on(device, opdock.ops.norm_linear)
        found, h = norm_linear(x, w, norm="rms", transposed=False, **keywords)
        normalised(x, beta=None, norm="rms", **keywords).check(h, dtype)
        product(device, h, w, None, False, 0).check(found, dtype)


def check_mlp(device, found, x, w1, w2, b1, b2, act, is_gated, gate_first, transposed):
    total = product(device, x, w1, b1, transposed, more=1 if is_gated else 0)
    total = gated(total, act, gate_first, x.dtype) if is_gated else total.activated(act)
    total = total.rounded(x.dtype)
    through(total, w2, b2, transposed, device, x.dtype).check(found, x.dtype)


def parameters(dtype, k=40, inner=24, n=20, is_gated=False, transposed=True, biased=True):
    width = 2 * inner if is_gated else inner
    w1, w2 = weight(width, k, dtype, transposed, 1), weight(n, inner, dtype, transposed, 2)
    return w1, w2, *((random(width, dtype, 3), random(n, dtype, 4)) if biased else (None, None))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("transposed", [True, False])
def test_mlp(device, dtype, activation, transposed):
    x, keywords = random((2, 3, 40), dtype, 5), {"activation": activation, "transposed": transposed}
    for biased in (True, False):
        args = parameters(dtype, transposed=transposed, biased=biased)
        found = on(device, opdock.ops.mlp)(x, *args, **keywords)
        check_mlp(device, found, x, *args, activation, False, False, transposed)


@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("gate_first", [True, False])
def test_gated_mlp(device, dtype, activation, gate_first):
    x, args = random((7, 40), dtype, 5), parameters(dtype, is_gated=True)
    keywords = {"activation": activation, "gated": True, "gate_first": gate_first}
    found = on(device, opdock.ops.mlp)(x, *args, **keywords)
    check_mlp(device, found, x, *args, activation, True, gate_first, True)
    found = on(device, opdock.ops.mlp)(x[0], *args, **keywords)
    check_mlp(device, found, x[0], *args, activation, True, gate_first, True)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("added", ["nothing", "residual", "residual and bias"])
@pytest.mark.parametrize("is_gated", [False, True])
def test_norm_mlp(device, dtype, norm, added, is_gated):
    x, residual = random((2, 3, 40), dtype, 5), random((2, 3, 40), dtype, 6)
    gamma, beta, input_bias = (random(40, dtype, seed) for seed in (7, 8, 9))
    beta = beta if norm == "layer" else None
    args = parameters(dtype, is_gated=is_gated)
    keywords = {"gamma": gamma, "beta": beta, "norm": norm, "gated": is_gated, "activation": "silu"}
    total = x
    if added != "nothing":
        keywords |= {"residual": residual}
        terms = [x.double(), residual.double()]
        if added == "residual and bias":
            keywords |= {"input_bias": input_bias}
            terms.append(input_bias.double().expand_as(x))
        exact = sum(terms)
        error = 2.0**-23 * sum(term.abs() for term in terms)
    found, h, stored = on(device, opdock.ops.norm_mlp)(x, *args, **keywords)
    if added == "nothing":
        assert stored is None
    else:
        Sum(exact, error).check(stored, dtype)
        total = stored
    normalised(total, gamma, beta, norm, 1e-5).check(h, dtype)
    check_mlp(device, found, h, *args, "silu", is_gated, False, True)


def test_norm_mlp_of_any_rows(device, dtype):
    args = parameters(dtype, k=33)
    for x in row_cases.layouts(33, dtype):
        residual = random(x.shape, dtype, 3)
        for more in (None, random(33, dtype, 8)):
            added = {"residual": residual, "input_bias": more}
            found, h, stored = on(device, opdock.ops.norm_mlp)(x, *args, **added)
            assert torch.equal(stored, float_sum(x, residual, more).to(dtype))
            normalised(stored, None, None, "layer", 1e-5).check(h, dtype)
            check_mlp(device, found, h, *args, "gelu", False, False, True)


@pytest.mark.parametrize("length", [64, 1024, 1030, 5000])
def test_lengths_of_sums(device, dtype, length):
    """Lengths of rows for each way to add them up and normalise them."""
    x, residual = (random((3, length), dtype, seed, mean=0.5) for seed in (1, 2))
    w1, w2 = weight(8, length, dtype), weight(4, 8, dtype)
    gamma = random(length, dtype, 4, 0.5, 1.0)
    for more in (None, random(length, dtype, 3)):
        added = {"residual": residual, "input_bias": more}
        op = on(device, opdock.ops.norm_mlp)
        _, h, stored = op(x, w1, w2, gamma=gamma, norm="rms", **added)
        assert torch.equal(stored, float_sum(x, residual, more).to(dtype))
        normalised(stored, gamma, None, "rms", 1e-5).check(h, dtype)


@pytest.mark.parametrize("shape", [(0, 40), (3, 0), (0, 0)])
def test_zero_sizes(device, dtype, shape):
    x, (w1, w2, b1, b2) = torch.empty(shape, dtype=dtype), parameters(dtype, k=shape[1])
    for found in (
        on(device, opdock.ops.mlp)(x, w1, w2, b1, b2),
        on(device, opdock.ops.norm_mlp)(x, w1, w2, b1, b2, residual=x)[0],
    ):
        assert found.shape == (shape[0], 20)
        check_mlp(device, found, x, w1, w2, b1, b2, "gelu", False, False, True)
    found, h = on(device, opdock.ops.norm_linear)(x, w1, b1)
    assert h.shape == shape and found.shape == (shape[0], 24)
    if shape[0] > 0:
        assert torch.equal(found, b1.expand(shape[0], 24))
    assert on(device, opdock.ops.gated_linear)(x, w1, b1).shape == (shape[0], 12)
    # There is nothing between the products, or no result.
    nothing = torch.empty((20, 0), dtype=dtype), torch.empty((0, 24), dtype=dtype)
    y = random((3, 40), dtype, 1)
    empty = torch.empty((0, 40), dtype=dtype)
    found = on(device, opdock.ops.mlp)(y, empty, nothing[0], None, b2)
    assert torch.equal(found, b2.expand(3, 20))
    full = parameters(dtype)[0]
    assert on(device, opdock.ops.mlp)(y, full, nothing[1]).shape == (3, 0)


def test_where_results_go(device, dtype):
    x, (w1, w2, b1, b2) = random((5, 40), dtype, 5), parameters(dtype)
    calls = [
        ((24, 40), on(device, opdock.ops.norm_linear), (x, w1, b1)),
        ((20,), on(device, opdock.ops.mlp), (x, w1, w2, b1, b2)),
        ((12,), on(device, opdock.ops.gated_linear), (x, w1, b1)),
    ]
    for widths, op, args in calls:
        wide = [torch.full((6, n + 5), 7.0, dtype=dtype) for n in widths]
        outs = tuple(w[:5, 2:-3] for w in wide)
        fresh = op(*args)
        op(*args, out=outs if len(outs) > 1 else outs[0])
        fresh = fresh if len(outs) > 1 else (fresh,)
        for out, one, memory in zip(outs, fresh, wide, strict=True):
            torch.testing.assert_close(out, one, rtol=1e-2, atol=1e-2)
            out.fill_(7)
            assert (memory == 7).all()


def test_slopes_are_what_the_bounds_take_them_for():
    x = torch.linspace(-8, 8, 100_001, dtype=torch.float64, requires_grad=True)
    for name in ACTIVATIONS:
        (slope,) = torch.autograd.grad(activate(name, x).sum(), x)
        assert slope.abs().max() <= SLOPE


def bad_inputs():
    x, w, bias = torch.ones(2, 8), torch.ones(6, 8), torch.ones(6)
    w2, eight = torch.ones(5, 6), torch.ones(8)
    gate, norm, mlp, both = "gated_linear", "norm_linear", "mlp", "norm_mlp"
    return [
        ("x", gate, (x.double(), w.double()), {}),
        ("weight", gate, (x, torch.ones(5, 8)), {}),
        ("weight", gate, (x, torch.ones(8, 5)), {"transposed": False}),
        ("weight", gate, (x, w.half()), {}),
        ("bias", gate, (x, w, torch.ones(3)), {}),
        ("activation", gate, (x, w), {"activation": "none"}),
        ("activation", gate, (x, w), {"activation": "swish"}),
        ("x", norm, (x.t(), torch.ones(6, 2)), {}),
        ("weight", norm, (x, w2), {}),
        ("bias", norm, (x, w, eight), {}),
        ("gamma", norm, (x, w), {"gamma": bias}),
        ("gamma", norm, (x, w), {"gamma": eight.half()}),
        ("beta", norm, (x, w), {"beta": torch.ones(16)[::2]}),
        ("beta", norm, (x, w), {"beta": eight, "norm": "rms"}),
        ("norm", norm, (x, w), {"norm": "batch"}),
        ("eps", norm, (x, w), {"eps": -1.0}),
        ("eps", norm, (x, w), {"eps": float("nan")}),
        ("weight1", mlp, (x, w2, w2), {}),
        ("weight1", mlp, (x, torch.ones(5, 8), w2), {"gated": True}),
        ("weight2", mlp, (x, w, w), {}),
        ("weight2", mlp, (x, w, w2), {"gated": True}),
        ("bias1", mlp, (x, w, w2, eight), {}),
        ("bias2", mlp, (x, w, w2, bias, bias), {}),
        ("activation", mlp, (x, w, w2), {"activation": "tanh"}),
        ("activation", mlp, (x, w, w2), {"activation": "none", "gated": True}),
        ("gate_first", mlp, (x, w, w2), {"gate_first": True}),
        ("residual", both, (x, w, w2), {"residual": x[:1]}),
        ("residual", both, (x, w, w2), {"residual": x.half()}),
        ("input_bias", both, (x, w, w2), {"input_bias": eight}),
        ("input_bias", both, (x, w, w2), {"residual": x, "input_bias": bias}),
        ("beta", both, (x, w, w2), {"norm": "rms", "beta": eight}),
        ("weight2", both, (x, w, w), {"residual": x}),
    ]


@pytest.mark.parametrize("number", range(32))
def test_bad_inputs_name_the_argument(device, number):
    name, which, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, getattr(opdock.ops, which)), name, *args, **keywords)


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(cuda):
    args = [t.to(cuda) for t in parameters(torch.float16, 1024, 512, 256)]
    x = random((64, 1024), torch.float16, 1).to(cuda)

    def norm_mlp(y):
        return opdock.ops.norm_mlp(y, *args, residual=y)[0]

    assert torch.equal(row_cases.on_another_stream(norm_mlp, x), norm_mlp(x))
    assert torch.equal(row_cases.in_a_graph(norm_mlp, x), norm_mlp(x))


def errors_of(found, oracle):
    """Returns the roots of the mean squares of the tensors' errors."""
    return [(f.double() - oracle).square().mean().sqrt().item() for f in found]


@pytest.mark.parametrize("shape", [(1, 512, 512), (128, 512, 1232)])
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("is_gated", [False, True])
def test_errors_are_no_larger_than_pytorchs(dtype, shape, norm, is_gated):
    """On the CPU, compares the errors with those of PyTorch doing a layer's steps one after the
    other."""
    m, k, inner = shape
    x, residual = random((m, k), dtype, 5), random((m, k), dtype, 6)
    w1, w2, b1, _ = parameters(dtype, k, inner, k, is_gated)
    act = torch.nn.functional.silu

    def steps(x, residual, w1, w2, b1):
        total = x + residual
        if norm == "layer":
            h = torch.nn.functional.layer_norm(total, (k,), None, None, 1e-5)
        else:
            h = torch.nn.functional.rms_norm(total, (k,), None, 1e-5)
        y = torch.nn.functional.linear(h, w1, b1)
        if is_gated:
            hidden, gate = y.chunk(2, -1)
            return torch.nn.functional.linear(hidden * act(gate), w2)
        return torch.nn.functional.linear(act(y), w2)

    args = (x, residual, w1, w2, b1)
    keywords = {"residual": residual, "norm": norm, "gated": is_gated, "activation": "silu"}
    ours = opdock.ops.norm_mlp(x, w1, w2, b1, **keywords)[0]
    found = errors_of((ours, steps(*args)), steps(*(t.double() for t in args)))
    assert found[0] <= most_ratio(ours.numel()) * found[1], found
