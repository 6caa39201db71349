# SPDX-License-Identifier: Apache-2.0
"""Tests that opdock.fuse gives the dtypes and numbers that NumPy and torch give eagerly, for all
pairs of dtypes that both they and formulas have, and all kinds of numbers."""

import itertools
import operator

import numpy as np
import pytest

import opdock

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
NUMBERS = [2, 2.5, True, np.float32(1.5), np.float64(0.1), np.int8(3), np.int64(2), np.bool_(True)]

BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.pow, operator.lt, operator.ge, operator.eq, operator.ne),
    *(operator.and_, operator.or_, operator.xor),
    *(np.maximum, np.minimum, np.fmax, np.arctan2, np.hypot, np.copysign, np.logaddexp, np.fmod),
    *(np.logical_and, np.logical_or, np.logical_xor, np.divide, np.add, np.multiply, np.power),
]
UNARY = [
    *(
        np.negative,
        np.positive,
        np.absolute,
        np.sign,
        np.square,
        np.sqrt,
        np.exp,
        np.exp2,
        np.expm1,
    ),
    *(np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan, np.arctan, np.sinh, np.cosh),
    *(np.tanh, np.arcsinh, np.floor, np.ceil, np.trunc, np.rint, np.isnan, np.isinf, np.isfinite),
    *(np.logical_not, np.invert, np.radians, np.degrees, np.signbit, np.round),
]
ROWS = ["sum", "prod", "mean", "max", "min", "argmax", "argmin", "any", "all", "var", "std"]


def values(dtype, columns=6, has_no_zeros=False):
    """Returns an array. has_no_zeros: no False either, because an integer's division by zero is
    each library's own matter."""
    numbers = np.arange(1, 2 * columns + 1).reshape(2, columns) % 5 + 1
    if dtype == "bool":
        return numbers > 0 if has_no_zeros else numbers % 2 == 0
    return numbers.astype(dtype) + (np.array(0.25, dtype) if dtype.startswith("float") else 0)


def divides(function):
    return function.__name__ in ("floordiv", "mod", "fmod")


def eager(function, *args):
    """Returns the library's own result, or the type of its error."""
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        return type(error)


def same(found, wanted):
    """Checks dtype, shape and numbers. float16 is computed in float32 here."""
    assert type(found) is type(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    rtol = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-14}[found.dtype.name]
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


def check(fused, function, *args):
    wanted = eager(function, *args)
    if isinstance(wanted, type):
        with pytest.raises(wanted):
            fused(*args)
    elif wanted.dtype.name not in DTYPES:
        with pytest.raises(opdock.InvalidArgumentError, match="found a value of dtype"):
            fused(*args)
    else:
        same(fused(*args), wanted)


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_two_arrays(function):
    fused = opdock.fuse(lambda x, y: function(x, y))
    for a, b in itertools.product(DTYPES, DTYPES):
        check(fused, function, values(a), values(b, has_no_zeros=divides(function))[:, ::-1])


@pytest.mark.parametrize("function", [operator.lshift, operator.rshift], ids=lambda f: f.__name__)
def test_shifts(function):
    fused = opdock.fuse(lambda x, y: function(x, y))
    for a, b in itertools.product(DTYPES[1:6], DTYPES[1:6]):
        check(fused, function, values(a), values(b)[:, ::-1])


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("is_reflected", [False, True])
def test_an_array_and_a_number_as_a_constant(function, is_reflected):
    for a, number in itertools.product(DTYPES, NUMBERS):
        if function.__name__ in ("pow", "power") and is_reflected and a == "int64":
            continue  # NumPy's own overflow
        straight = lambda x, n=number: function(n, x) if is_reflected else function(x, n)  # noqa: E731
        # A constant of the pattern: it is in the function, not an argument.
        x = values(a, has_no_zeros=divides(function))
        check(opdock.fuse(lambda x, f=straight: f(x)), straight, x)


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_an_array_and_a_number_as_an_argument(function):
    fused = opdock.fuse(lambda x, n: function(x, n))
    for a, number in itertools.product(DTYPES, NUMBERS):
        check(fused, function, values(a), number)


@pytest.mark.parametrize(
    "function", [operator.add, operator.mul, np.maximum, operator.lt, np.hypot]
)
def test_an_array_and_one_without_dimensions(function):
    fused = opdock.fuse(lambda x, y: function(x, y))
    for a, b in itertools.product(DTYPES, DTYPES):
        check(fused, function, values(a), np.array(1, b))
        check(fused, function, np.array(1, b), np.array(1, a))


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_one_array(function):
    fused = opdock.fuse(lambda x: function(x))
    for a in DTYPES:
        check(fused, function, values(a))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_rows(name, keepdims):
    def function(x):
        return getattr(x, name)(axis=-1, keepdims=keepdims)

    fused = opdock.fuse(function)
    for a in DTYPES:
        check(fused, function, values(a))
        check(fused, function, values(a)[0])


def test_where_and_clip():
    where = opdock.fuse(lambda c, x, y: np.where(c, x, y))
    clip = opdock.fuse(lambda x, y: np.clip(x, y, 4))
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = values(a), values(b)[:, ::-1]
        check(where, np.where, x > 2, x, y)
        if "bool" not in (a, b):
            check(clip, lambda x, y: np.clip(x, y, 4), x, y)
    for a in DTYPES:
        x = values(a)
        check(where, np.where, x > 2, x, 1.5)
        check(where, np.where, x > 2, 1, x)
        check(where, np.where, x > 2, 1.5, 2)
        check(where, np.where, x, 1, 2)


def test_conversions():
    for a, b in itertools.product(DTYPES, DTYPES):
        fused = opdock.fuse(lambda x, to=b: x.astype(to))
        same(fused(values(a)), values(a).astype(b))


def test_a_comparison_with_a_number_that_the_dtype_does_not_hold():
    x = values("uint8")
    fused = opdock.fuse(lambda x: (x < 300, x > -1, x == 2**40))
    for found, wanted in zip(fused(x), (x < 300, x > -1, x == 2**40), strict=True):
        same(found, wanted)


# ---- torch

TORCH_BINARY = [
    *("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum"),
    *("lt", "ge", "eq", "logical_and", "bitwise_and", "bitwise_or", "atan2", "hypot", "copysign"),
]
TORCH_UNARY = [
    *("neg", "abs", "sign", "square", "sqrt", "rsqrt", "exp", "log", "sigmoid", "tanh", "floor"),
    *("round", "trunc", "isnan", "logical_not", "bitwise_not", "reciprocal", "erf", "relu"),
]
TORCH_ROWS = ["sum", "prod", "mean", "amax", "amin", "argmax", "any", "all", "logsumexp", "softmax"]


def torch_check(torch, fused, function, *args):
    wanted = eager(function, *args)
    if isinstance(wanted, type):
        with pytest.raises((wanted, opdock.InvalidArgumentError)):
            fused(*args)
        return
    found = fused(*args)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    rtol = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(wanted.dtype)
    exact = {} if rtol is None else {"rtol": rtol, "atol": rtol}
    torch.testing.assert_close(found, wanted, equal_nan=True, **exact)


@pytest.fixture
def tensors(torch):
    made = {dtype: torch.from_numpy(values(dtype)) for dtype in DTYPES}
    return {**made, "bfloat16": made["float32"].bfloat16()}


@pytest.mark.parametrize("name", TORCH_BINARY)
def test_two_tensors(torch, tensors, name):
    function = getattr(torch, name)
    fused = opdock.fuse(lambda x, y: function(x, y))
    divides = name in ("floor_divide", "remainder", "fmod")
    for a, b in itertools.product(tensors, tensors):
        if divides and b == "bool":
            continue  # by False
        torch_check(torch, fused, function, tensors[a], tensors[b].flip(-1))
        torch_check(torch, fused, function, tensors[a], tensors[b][0, 0])


@pytest.mark.parametrize("name", TORCH_BINARY)
def test_a_tensor_and_a_number(torch, tensors, name):
    function = getattr(torch, name)
    fused = opdock.fuse(lambda x, y: function(x, y))
    for a, number in itertools.product(tensors, [2, 2.5]):
        torch_check(torch, fused, function, tensors[a], number)


@pytest.mark.parametrize("name", TORCH_UNARY)
def test_one_tensor(torch, tensors, name):
    function = getattr(torch, name)
    fused = opdock.fuse(lambda x: function(x))
    for x in tensors.values():
        torch_check(torch, fused, function, x)


@pytest.mark.parametrize("name", TORCH_ROWS)
def test_rows_of_tensors(torch, tensors, name):
    def function(x):
        return getattr(torch, name)(x, -1)

    fused = opdock.fuse(function)
    for x in tensors.values():
        torch_check(torch, fused, function, x)


def test_torch_default_dtype(torch):
    def function(x):
        return torch.sqrt(x) + x / 2

    x = torch.arange(1, 7).reshape(2, 3)
    torch.set_default_dtype(torch.float64)
    try:
        torch_check(torch, opdock.fuse(function), function, x)
    finally:
        torch.set_default_dtype(torch.float32)
