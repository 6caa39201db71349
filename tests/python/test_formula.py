# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.formula from Python: arrays, results, errors, and torch's autograd."""

import threading

import numpy
import pytest
from conftest import requires_torch

import opdock

try:
    import torch
except ImportError:
    torch = None

RMS_NORM = "rms_norm(Tensor x, Tensor? weight=None, *, float eps=1e-5) -> Tensor"
RMS_NORM_TEXT = "y = x * rsqrt(mean(x * x) + eps)\nreturn y * weight if weight else y"


def test_numpy_arrays_in_and_out():
    x = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(4, 6)
    bias = numpy.arange(6, dtype=numpy.float32)
    f = opdock.formula("max(x + bias, 0)")
    found = f(x, bias)
    assert isinstance(found, numpy.ndarray) and found.dtype == numpy.float32
    assert numpy.array_equal(found, numpy.maximum(x + bias, 0))
    assert numpy.array_equal(f(bias=bias, x=x[:, ::-1]), numpy.maximum(x[:, ::-1] + bias, 0))
    out = numpy.empty((6, 4), numpy.float32).T
    assert f(x, bias, out=out) is out and numpy.array_equal(out, found)


def test_a_schema_gives_defaults_numbers_and_choices():
    x = numpy.random.default_rng(1).standard_normal((3, 5))
    f = opdock.formula(RMS_NORM_TEXT, RMS_NORM)
    wanted = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 0.5)
    assert numpy.allclose(f(x, eps=0.5), wanted, rtol=1e-14)
    assert numpy.allclose(f(x, numpy.full(5, 2.0), eps=0.5), 2 * wanted, rtol=1e-14)
    g = opdock.formula(
        'y = gelu(x, approximate="tanh") if approximate == "tanh" else gelu(x)\n'
        "return y, x * n if n2 else x",
        "g(Tensor x, str approximate, int n, bool n2=False) -> (Tensor, Tensor)",
    )
    both = g(x, "tanh", 3), g(x, "none", 3, True)
    assert not numpy.array_equal(both[0][0], both[1][0])
    assert numpy.array_equal(both[0][1], x) and numpy.array_equal(both[1][1], 3 * x)


def test_a_result_may_be_written_into_a_parameter():
    x, y = numpy.ones((2, 3)), numpy.arange(3.0)
    f = opdock.formula("x + y", "add_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    assert f(x, y) is x and numpy.array_equal(x, [[1, 2, 3]] * 2)
    with pytest.raises(
        opdock.InvalidArgumentError,
        match=r"argument 'x': found float64 of shape \[3\], wanted float64 of shape \[2, 3\], "
        "because the result is written into it",
    ):
        f(y, x)


@pytest.mark.parametrize(
    ("text", "schema", "found"),
    [
        ("x +", None, "line 1, column 4"),
        ("sine(x)", None, 'found "sine", wanted a function; did you mean sin or'),
        ("x", "f(Tensor x) -> (Tensor, Tensor)", "found 1 result of the formula, wanted the 2"),
        ("x", "f(Device x) -> Tensor", "parameter 'x': found Device, wanted Tensor, float, int"),
        ("x", "f(Tensor x", "schema-invalid|found"),
        ("1.0", None, "found no tensor among the parameters"),
    ],
)
def test_a_faulty_text_is_refused(text, schema, found):
    with pytest.raises(opdock.InvalidArgumentError, match=found):
        opdock.formula(text, schema)


def test_shapes_and_dtypes_that_do_not_fit_are_named():
    f = opdock.formula("x * y")
    with pytest.raises(
        opdock.InvalidArgumentError,
        match=r'"y": found the shape \[4\], wanted one that can be broadcast with \[2, 3\] of "x"',
    ):
        f(numpy.ones((2, 3)), numpy.ones(4))
    with pytest.raises(opdock.InvalidArgumentError, match="argument 'x': found complex128, wanted"):
        f(numpy.ones(3, complex), numpy.ones(3))


def test_the_same_texts_give_the_same_function():
    a, b = opdock.formula("x * 7"), opdock.formula("x * 7")
    assert a.schema == b.schema == "formula(Tensor x) -> Tensor"
    found = []
    x = numpy.ones(1000, numpy.float32)

    def work():
        f = opdock.formula("x * 7 + exp(x)")
        found.append(bool(numpy.allclose(f(x), 7 + numpy.e)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def _random(*shape, dtype=None, grad=True):
    x = torch.randn(shape, dtype=dtype or torch.float64)
    return x.requires_grad_() if grad else x


@requires_torch
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("gate * sigmoid(gate) * up", [(3, 5), (3, 5)]),
        ("gelu(x + bias)", [(2, 3, 4), (4,)]),
        ("x * y", [(3, 1), (1, 4)]),
        ("x * scale", [(3, 4), ()]),
        ("e = exp(x - amax(x))\nreturn e / sum(e)", [(3, 5)]),
        ("x * rsqrt(mean(x * x) + 0.1) * w", [(2, 3, 4), (4,)]),
        ("return logsumexp(x), x * sum(y)", [(3, 4), (3, 4)]),
        ("logsumexp(x) * mean(y * w)", [(3, 4), (3, 4), (4,)]),
        ("where(x > y, x, y * y)", [(3, 4), (4,)]),
        ("a, b = chunk(x, 2)\nreturn a * sigmoid(b)", [(3, 8)]),
        ("a, b = chunk(x, 2)\nc, d = chunk(y, 2)\nreturn (a + c) * tanh(b + d)", [(3, 8), (8,)]),
        ("a, _, c = chunk(x, 3)\nreturn a * c + y * mean(a)", [(2, 9), (3,)]),
        ("a, b = chunk(x, 2)\nreturn sum(a) * sum(b)", [(3, 8)]),
        ("a, b = chunk(x, 2)\nreturn cat(a * b, y, b), sum(a)", [(3, 8), (3, 1)]),
        ("return cat(x * y, exp(y))", [(3, 4), (4,)]),
    ],
)
def test_gradients_by_autograd(text, shapes):
    torch.manual_seed(1)
    assert torch.autograd.gradcheck(opdock.formula(text), [_random(*shape) for shape in shapes])


@requires_torch
def test_only_what_needs_a_gradient_gets_one():
    f = opdock.formula("x * w + n")
    x, w = _random(3, 4), _random(4, grad=False)
    n = torch.arange(4)
    y = f(x, w, n)
    y.sum().backward()
    assert torch.equal(x.grad, w.expand(3, 4)) and w.grad is None
    assert not opdock.formula("x > 0")(x).requires_grad
    with torch.no_grad():
        assert not f(x, w, n).requires_grad


@requires_torch
def test_what_has_no_gradient_is_refused():
    f = opdock.formula("x * x")
    x = _random(3)
    (first,) = torch.autograd.grad(f(x), x, x.detach().requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
    with pytest.raises(opdock.UnsupportedError, match="written into a tensor, wanted one or the"):
        f(x, out=torch.empty(3, dtype=torch.float64))


@requires_torch
def test_a_test_of_integers_has_a_number_for_each_column():
    x = torch.tensor([[5, 97, 120], [0, 1, 2]], dtype=torch.uint8)
    found, count = opdock.formula("isfinite(x) + 0.5 * amin(x), sum(isfinite(x))")(x)
    assert torch.equal(found, torch.tensor([[3.5] * 3, [1.0] * 3]))
    assert torch.equal(count, torch.tensor([3, 3]))


@requires_torch
@pytest.mark.parametrize(
    "text", ["a + x, exp(b)", "exp(a) * b, x", "sin(a) * b - mean(x * 0 + 1)", "a * sum(x), b * x"]
)
def test_gradients_of_numbers_count_each_element_once(text):
    a, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.3, -0.7))
    x = torch.linspace(-1, 2, 15, dtype=torch.float64).reshape(3, 5)
    f = opdock.formula(text, f"f(Tensor a, Tensor b, Tensor x) -> ({_tensors(text)})")
    found = f(a, b, x)
    found = found if isinstance(found, tuple) else (found,)
    space = {
        "sin": torch.sin,
        "exp": torch.exp,
        "sum": lambda x: x.sum(-1),
        "mean": lambda x: x.mean(-1),
    }
    wanted = eval(text, space, {"a": a, "b": b, "x": x})
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    weights = [torch.arange(1.0, y.numel() + 1).double().reshape(y.shape) for y in found]
    wanted = [y.expand(w.shape) for y, w in zip(wanted, weights, strict=True)]
    got = torch.autograd.grad(found, (a, b), weights, allow_unused=True)
    want = torch.autograd.grad(
        [y for y in wanted if y.requires_grad],
        (a, b),
        [w for y, w in zip(wanted, weights, strict=True) if y.requires_grad],
        allow_unused=True,
    )
    for one, other in zip(got, want, strict=True):
        assert torch.allclose(one, other, rtol=1e-13)


def _tensors(text):
    return ", ".join(["Tensor"] * (1 + text.count(", ")))
