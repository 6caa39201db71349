# SPDX-License-Identifier: Apache-2.0
"""Tests every operation with every type that it takes, against PyTorch in float64."""

import re
from fractions import Fraction
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, NIGHTLY
from values import INTEGERS, TYPES, assert_near, is_narrow, name_of, pairs, results_of

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r'OPDOCK_OPERATION\(\w+, "(\w+)", (\d), (\w+),')
OPERATIONS = [
    (name, int(arguments), rule)
    for name, arguments, rule in ROW.findall((ROOT / "core/formula/operations.def").read_text())
]


inf = float("inf")


def by_numpy(call):
    """Returns NumPy's function for tensors."""

    def on_tensors(*args):
        with numpy.errstate(all="ignore"):
            return torch.from_numpy(call(*[x.numpy() for x in args]))

    return on_tensors


def fused(a, b, c):
    """Returns a * b + c, rounded once to float64."""
    plain = torch.where(c.isinf() & a.isfinite() & b.isfinite(), c, a * b + c)
    exact = torch.isfinite(a) & torch.isfinite(b) & torch.isfinite(c)
    for i in exact.nonzero().flatten().tolist():
        x, y, z = (float(one[i]) for one in (a, b, c))
        total = Fraction(x) * Fraction(y) + Fraction(z)
        if abs(total) >= 1 << 1024:
            plain[i] = inf if total > 0 else -inf
        elif total != 0:
            plain[i] = float(total)
    return plain


def quotient(whole):
    """Returns the function of two integer tensors as `whole`, but as the language says where
    PyTorch raises an error: a division by 0 gives 0, and that of the least number by -1 wraps."""

    def call(a, b):
        overflow = (b == -1) & (a == torch.iinfo(a.dtype).min)
        safe = whole(a, torch.where((b == 0) | overflow, 1, b))
        over = a if whole is torch.floor_divide else torch.zeros_like(a)
        return torch.where(b == 0, 0, torch.where(overflow, over, safe))

    return call


REFERENCES = {
    "div": torch.true_divide,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "clamp_min": torch.maximum,
    "clamp_max": torch.minimum,
    "fma": fused,
    # PyTorch's in float64 are less exact: sqrt is wrong by 1 unit, sinh and cosh overflow too
    # early, and a remainder is NaN where the quotient overflows.
    **{
        name: by_numpy(getattr(numpy, name))
        for name in ("sqrt", "sinh", "cosh", "fmod", "remainder")
    },
    "where": lambda a, b, c: torch.where(a.bool(), b, c),
}

# Units in the last place of float32. NVIDIA documents these of CUDA's functions; what is not here
# is rounded correctly. The software GPU's functions are the C library's, with less than 1.
ULPS = {
    "exp": 2, "exp2": 2, "expm1": 1, "log": 1, "log2": 1, "log10": 2, "log1p": 1, "sin": 2,
    "cos": 2, "tan": 4, "asin": 2, "acos": 2, "atan": 2, "sinh": 3, "cosh": 2, "tanh": 2,
    "asinh": 3, "acosh": 4, "atanh": 3, "erf": 2, "erfc": 4, "atan2": 3, "hypot": 3, "pow": 4,
    "rsqrt": 2,
    # exp's 2 are up to 4 of a number with a smaller power of 2; a sum and a quotient follow.
    "sigmoid": 5, "silu": 6,
    # log1p of a number that is wrong by 2.
    "softplus": 3,
    # A sum of two rounded numbers, and log1p's error.
    "logaddexp": 2,
    # fmod is exact; adding b rounds.
    "remainder": 0.5,
    # The difference and the quotient are rounded before the result is made whole.
    "floor_divide": 1,
}  # fmt: skip

# The relative errors with which kernels for GPUs compute these where all results have 16 bits,
# without subnormal numbers (opdock/formula_math.cuh, namespace quick). That of gelu is the one of
# the normal distribution in opdock/activation_math.cuh.
QUICK = dict.fromkeys(
    ["exp", "sigmoid", "silu", "gelu_tanh", "div", "reciprocal", "sqrt", "rsqrt"], 1e-5
) | {"gelu": 6e-5}

# Of two zeros IEEE 754 leaves open which one is the larger. A remainder or a quotient that is 0 is
# 0 in PyTorch too, of a sign that depends on the kernel.
ANY_ZERO = {"maximum", "minimum", "clamp_min", "clamp_max", "relu", "remainder", "floor_divide"}


def extra(name, args):
    """Returns by how much a float32 result may be wrong because of a step in between, or None."""
    tiny = torch.finfo(torch.float64 if args[0].dtype == torch.float64 else torch.float32)
    eps, size = tiny.eps, torch.nan_to_num(args[0].double().abs())
    if name in ("gelu", "gelu_tanh"):
        # 1 + erf(…) and 1 + tanh(…) are rounded as numbers near 1; a factor x follows.
        return size * eps * 4
    if name in ("sigmoid", "silu"):
        # exp(-x) overflows where the result is still a subnormal number.
        return tiny.smallest_normal * (1 + size)
    if name == "logaddexp":
        # The larger one's error remains where the sum is near 0.
        return torch.nan_to_num(torch.maximum(size, args[1].double().abs())) * eps * 2
    return None


def takes(rule, dtype):
    if rule in ("kArithmetic", "kRounding"):
        return dtype != torch.bool
    if rule == "kBits":
        return not dtype.is_floating_point
    return dtype in INTEGERS if rule == "kShift" else True


def wanted(name, rule, args):
    """Returns (the reference's result, the dtype that PyTorch's rules give it)."""
    dtype = args[1 if name == "where" else 0].dtype
    call = REFERENCES.get(name) or getattr(torch, name)
    if rule == "kFloat" and not dtype.is_floating_point:
        args, dtype = [x.float() for x in args], torch.float32
    if rule == "kRounding" and not dtype.is_floating_point:
        return args[0], dtype
    if rule in ("kTest", "kCompare", "kLogical"):
        return call(*args), torch.bool
    if name in ("floor_divide", "remainder", "fmod") and not dtype.is_floating_point:
        return quotient(getattr(torch, name))(*args), dtype
    if dtype.is_floating_point:
        return call(*[x.double() for x in args]), dtype
    return call(*args), dtype


def check(name, rule, args, found):
    reference, dtype = wanted(name, rule, args)
    assert found.dtype == dtype, f"{name} of {args[0].dtype}: {found.dtype}, wanted {dtype}"
    ulps, more = ULPS.get(name, 0.5), extra(name, args)
    if DEVICE != "cpu" and name in QUICK and is_narrow(dtype):
        size = torch.nan_to_num(reference.double().abs())
        more = (0 if more is None else more) + size * QUICK[name]
        more += torch.finfo(torch.float32).smallest_normal
    assert_near(found, reference, ulps, more, name, args)
    if dtype.is_floating_point and name not in ANY_ZERO:
        zero = (found == 0) & (reference == 0)
        same = found.signbit() == reference.signbit()
        assert (same | ~zero).all(), f"{name}: a zero of the wrong sign"


def chunks(names, size=32):
    return [names[i : i + size] for i in range(0, len(names), size)]


#: The types of each device every day. Integers that become floats are one conversion for all
#: operations, which int32 tests.
DAILY = {
    "cuda": [torch.uint8, torch.int32, torch.float32],
    "rocm": [torch.float16],
    "cpu": TYPES,
}


def grid():
    for dtype in TYPES if NIGHTLY else DAILY[DEVICE]:
        is_all = NIGHTLY or dtype.is_floating_point or dtype == torch.int32 or DEVICE == "cpu"
        operations = [
            op
            for op in OPERATIONS
            if takes(op[2], dtype) and op[2][:7] != "kReduce" and (is_all or op[2] != "kFloat")
        ]
        for number, part in enumerate(chunks(operations)):
            yield pytest.param(dtype, part, id=f"{name_of(dtype)}-{number}")


@pytest.mark.parametrize("dtype, operations", list(grid()))
def test_operations(compute, dtype, operations):
    generator = torch.Generator().manual_seed(1)
    a, b = pairs(dtype, generator)
    c = a[torch.randperm(len(a), generator=generator)]
    calls = [f"{name}({', '.join('abc'[:arguments])})" for name, arguments, _ in operations]
    # Every formula has the same three tensors, so that their order is known.
    text = "return " + ", ".join(calls)
    used = [x for x in "abc" if re.search(rf"\b{x}\b", re.sub(r"\w+\(", "(", text))]
    schema = f"f({', '.join(f'Tensor {x}' for x in used)}) -> "
    schema += "(" + ", ".join(["Tensor"] * len(calls)) + ")" if len(calls) > 1 else "Tensor"
    tensors = {"a": a, "b": b, "c": c}
    found = compute(text, *[tensors[x] for x in used], schema=schema)
    for (name, arguments, rule), one in zip(operations, results_of(found), strict=True):
        check(name, rule, [a, b, c][:arguments], one)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=name_of)
@pytest.mark.daily("cpu")
def test_all_numbers_of_16_bits(compute, dtype):
    a = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    unary = [op for op in OPERATIONS if op[1] == 1 and op[2] in ("kFloat", "kRounding")]
    for part in chunks(unary):
        found = compute("return " + ", ".join(f"{name}(a)" for name, _, _ in part), a)
        for (name, _, rule), one in zip(part, results_of(found), strict=True):
            check(name, rule, [a], one)
