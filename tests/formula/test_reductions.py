# SPDX-License-Identifier: Apache-2.0
"""Tests reductions: of a warp's rows and of a block's, of rows that are held and that are not."""

import math

import pytest
import torch
from conftest import DEVICE, NIGHTLY
from values import FLOATS, INTEGERS, TYPES, name_of, results_of

import opdock

COLUMNS = [1, 2, 31, 32, 33, 63, 64, 65, 127, 255, 1000, 4097, 40000]
REDUCTIONS = ["sum", "mean", "prod", "amax", "amin", "logsumexp", "argmax", "argmin", "any", "all"]


def takes(name, dtype):
    if name in ("mean", "logsumexp"):
        return dtype.is_floating_point
    if name in ("amax", "amin", "argmax", "argmin"):
        return dtype != torch.bool
    return True


def reference(name, x):
    if name in ("any", "all"):
        return getattr(torch, name)(x.bool(), -1)  # of uint8 they would be uint8
    if name in ("argmax", "argmin", "amax", "amin"):
        return getattr(torch, name)(x, -1)
    if not x.dtype.is_floating_point:
        return getattr(torch, name)(x.long(), -1)
    if name == "logsumexp":
        return torch.logsumexp(x.double(), -1)
    return getattr(torch, name)(x.double(), -1)


def numbers(dtype, rows, columns):
    generator = torch.Generator().manual_seed(columns)
    if dtype == torch.bool:
        return torch.randint(0, 2, (rows, columns), generator=generator).bool()
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    if dtype.is_floating_point:
        # Products of all columns stay within the dtype.
        return (x.sign() * torch.exp2(x / math.sqrt(columns) * 2)).to(dtype)
    return (x * 30).abs().to(dtype) if dtype == torch.uint8 else (x * 30).to(dtype)


def assert_reduced(name, found, x):
    wanted = reference(name, x)
    assert found.shape == wanted.shape, name
    if not x.dtype.is_floating_point or name in ("argmax", "argmin", "any", "all", "amax", "amin"):
        same = (found == wanted) | ((found != found) & (wanted != wanted))
        assert found.dtype == wanted.dtype and same.all(), (name, x.dtype, x.shape)
        return
    assert found.dtype == x.dtype
    # Each of the partial sums rounds: fewer than one for 8 columns, and the tree of the threads. In
    # the worst case their errors add up.
    columns = x.shape[-1]
    eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    size = x.double().abs()
    sums = {"sum": size.sum(-1), "mean": size.mean(-1)}
    scale = sums.get(name, wanted.abs() + (1 if name == "logsumexp" else 0))
    steps = columns if name == "prod" else 12 + columns / 64
    limit = scale * eps * steps + (wanted.abs() * torch.finfo(x.dtype).eps * 0.5)
    good = (found.double() - wanted).abs() <= limit
    good |= (found.double() == wanted) | (found.isnan() & wanted.isnan())
    assert good.all(), (name, x.dtype, x.shape, found[~good][0], wanted[~good][0])


#: The types of each device every day.
DAILY = {"cuda": [torch.float32], "rocm": [torch.bfloat16]}


@pytest.mark.parametrize("dtype", TYPES if NIGHTLY else DAILY.get(DEVICE, TYPES), ids=name_of)
def test_reductions(compute, dtype):
    names = [name for name in REDUCTIONS if takes(name, dtype)]
    text = "return " + ", ".join(f"{name}(x)" for name in names)
    is_all = NIGHTLY or DEVICE == "cpu" or dtype == torch.float32
    for columns in COLUMNS if is_all else [31, 65, 4097, 40000]:
        for rows in (
            (1, 1000) if columns <= 1000 and (NIGHTLY or columns in (31, 33, 127)) else (1, 5)
        ):
            x = numbers(dtype, rows, columns)
            for name, found in zip(names, results_of(compute(text, x)), strict=True):
                assert_reduced(name, found, x)


@pytest.mark.daily("cpu", "cuda")
@pytest.mark.parametrize("columns", [5, 65, 3000, 40000])
def test_nan_and_infinities(compute, columns):
    inf, nan = float("inf"), float("nan")
    x = torch.randn(12, columns)
    x[0, -1] = nan
    x[1, columns // 2] = nan
    x[1, 0] = inf
    x[2] = nan
    x[3] = -inf
    x[4] = inf
    x[5, 1] = inf
    x[6, 1] = -inf
    x[7, 2], x[7, 3] = inf, -inf
    x[8] = 0.0
    x[9, -2:] = 9.0  # the first of equal ones
    x[10, [0, 4]] = nan
    x[11] = -0.0
    names = [name for name in REDUCTIONS if name != "prod"]
    found = compute("return " + ", ".join(f"{name}(x)" for name in names), x)
    for name, one in zip(names, found, strict=True):
        assert_reduced(name, one, x)


FORMULAS = {
    "variance": ("var(x, correction=1)", lambda x: x.var(-1)),
    "softmax": ("softmax(x)", lambda x: x.softmax(-1)),
    "log_softmax": ("log_softmax(x)", lambda x: x.log_softmax(-1)),
    "two levels": (
        "m = mean(x); v = var(x); return (x - m) * rsqrt(v + 1e-5), m, v, amax(x)",
        lambda x: (
            (x - x.mean(-1, keepdim=True))
            * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5),
            x.mean(-1), x.var(-1, correction=0), x.amax(-1),
        ),
    ),
    "three levels": (
        "y = x - amax(x)\nz = exp(y) / sum(exp(y))\nreturn z * x - sum(z * x), any(z > 0.5)",
        lambda x: (
            x.softmax(-1) * x - (x.softmax(-1) * x).sum(-1, keepdim=True),
            (x.softmax(-1) > 0.5).any(-1),
        ),
    ),
    "places": ("sum(where(column() == argmax(x), 0, x))", lambda x: x.sum(-1) - x.amax(-1)),
}  # fmt: skip


def assert_all_close(found, wanted, columns):
    for one, right in zip(results_of(found), results_of(wanted), strict=True):
        assert one.shape == right.shape
        if not one.dtype.is_floating_point:
            assert torch.equal(one, right)
        else:
            assert torch.allclose(one.double(), right, rtol=1e-5, atol=1e-6 * columns), one - right


#: Every day on AMD's GPUs, whose warps are wider: all levels, and the reductions of each.
WIDE = ["two levels", "three levels"]


@pytest.mark.parametrize("formula", FORMULAS if NIGHTLY or DEVICE != "rocm" else WIDE)
def test_reductions_of_reductions(compute, formula):
    text, reference = FORMULAS[formula]
    for columns in (2, 33, 1000, 40000) if NIGHTLY else (33, 40000):
        x = torch.randn(3, 2, columns)
        assert_all_close(compute(text, x), reference(x.double()), columns)


@pytest.mark.daily("cpu", "cuda")
def test_rows_and_columns_inside(compute):
    """Tensors of one row, of one column and without dimensions, in the reduction and behind it."""
    for columns in (7, 300, 30000):
        x, w = torch.randn(6, columns), torch.randn(columns)
        b, c = torch.randn(6, 1), torch.tensor(0.5)
        text = "y = x * w + b * c\ns = sum(y * w)\nreturn s, y - s * b, sum(w + b), w * c, b + 1"
        found = compute(text, x, w, b, c)
        x, w, b, c = (one.double() for one in (x, w, b, c))
        y = x * w + b * c
        s = (y * w).sum(-1, keepdim=True)
        wanted = (
            s[:, 0],
            y - s * b,
            (w + b).sum(-1),
            (w * c).expand(6, -1),
            (b + 1).expand(6, columns),
        )
        assert_all_close(found, wanted, columns)


@pytest.mark.daily("cpu", "cuda")
def test_two_long_rows(compute):
    """Rows of two tensors that no block holds; a cluster does, all of whose threads are full."""
    y, grad = torch.randn(3, 32768).softmax(-1), torch.randn(3, 32768)
    place, found = compute("return argmax(grad), y * (grad - sum(grad * y))", grad, y)
    assert torch.equal(place, grad.argmax(-1))
    y, grad = y.double(), grad.double()
    wanted = y * (grad - (grad * y).sum(-1, keepdim=True))
    assert torch.allclose(found.double(), wanted, rtol=1e-5, atol=1e-9)


@pytest.mark.daily("cpu", "cuda")
def test_cross_entropy(compute):
    x, target = torch.randn(9, 501), torch.randint(0, 501, (9, 1))
    found = compute("logsumexp(x) - sum(where(column() == t, x, 0))", x, target)
    wanted = torch.nn.functional.cross_entropy(x.double(), target[:, 0], reduction="none")
    assert_all_close(found, wanted, 1)


@pytest.mark.daily("cpu", "cuda")
def test_one_dimension_gives_none(compute):
    x = torch.arange(10.0)
    found = compute("return sum(x), x / sum(x)", x)
    assert found[0].shape == () and found[0] == 45 and torch.equal(found[1], x / 45)


@pytest.mark.daily("cpu", "cuda")
def test_rows_without_columns(compute):
    x = torch.zeros(5, 0)
    names = ["sum", "mean", "prod", "logsumexp", "any", "all"]
    found = compute("return " + ", ".join(f"{name}(x)" for name in names), x)
    for name, one in zip(names, found, strict=True):
        wanted = getattr(torch, name)(x, -1)
        assert one.shape == (5,) and torch.equal(one.nan_to_num(7), wanted.nan_to_num(7)), name
    for name in ("amax", "amin", "argmax", "argmin"):
        with pytest.raises(opdock.InvalidArgumentError) as problem:
            compute(f"{name}(x)", x)
        assert f"{name}: found rows without columns, wanted at least one column" in str(
            problem.value
        )


@pytest.mark.daily("cpu", "cuda")
def test_no_rows(compute):
    found = compute("return sum(x), softmax(x)", torch.zeros(0, 5))
    assert found[0].shape == (0,) and found[1].shape == (0, 5)


@pytest.mark.daily("cpu")
def test_integers_do_not_overflow(compute):
    for dtype in INTEGERS:
        x = torch.full((2, 3000), torch.iinfo(dtype).max, dtype=dtype)
        assert torch.equal(compute("sum(x)", x), x.sum(-1))


@pytest.mark.parametrize("dtype", FLOATS if NIGHTLY else FLOATS[:1], ids=name_of)
def test_sums_of_16_bits_are_float32(compute, dtype):
    x = torch.full((2, 4096), 1.0, dtype=dtype)
    assert torch.equal(compute("sum(x)", x), torch.full((2,), 4096.0, dtype=dtype))
    found = compute("mean(x * x)", torch.full((2, 64), 300.0, dtype=dtype).clamp(max=300))
    limit = torch.tensor(90000.0).to(dtype)
    assert torch.equal(found, limit.expand(2))
