# SPDX-License-Identifier: Apache-2.0
"""Checks ops that are formulas: `opdock test` runs this file by pytest for a plugin that has some.

The oracle is the op's function in the plugin's reference.py, if it has one, called in float64; else
the formula is evaluated in float64 by code that makes no kernels. OPDOCK_TEST_FORMULAS has the
checked ops and their dtypes, as JSON, and OPDOCK_TEST_REFERENCE the file.
"""

import json
import os
import re
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch

import opdock
from opdock import _opdock, _runtime
from opdock._describe import OPTIONAL, TENSOR
from opdock.testing import on

FORMULAS = json.loads(os.environ["OPDOCK_TEST_FORMULAS"])
CASES = [(op, dtype) for op, dtypes in FORMULAS.items() for dtype in dtypes]
FLOATS = [(op, dtype) for op, dtype in CASES if getattr(torch, dtype).is_floating_point]
OPTIONALS = [
    (op, dtype)
    for op, dtype in CASES
    if any(tag == TENSOR and flags & OPTIONAL for _, tag, flags, _ in opdock.load(op)._params)
]
# Relative to the largest number of a result: roundings of a row's sum count as one number's.
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}
NUMBERS = {1: True, 2: 2, 3: 0.5, 5: ""}  # for parameters without a default, by opdock.h's tags


def transposed(x):
    return x.t().contiguous().t()


def every_other_column(x):
    return torch.stack([x, x], dim=-1).flatten(-2)[..., ::2]


def not_aligned(x):
    """Begins one element behind an aligned address, with rows that are further apart."""
    return torch.cat([x, x[..., :1]], dim=-1).roll(1, -1)[..., 1:]


LAYOUTS = {one.__name__: one for one in (transposed, every_other_column, not_aligned)}
SPECIAL = [float("inf"), float("-inf"), float("nan"), 0.0, -0.0]


def random(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


def arguments(op, shape, dtype, with_optional=True):
    """Returns a call's arguments by their names, with random tensors of this shape."""
    made = {}
    for name, tag, flags, default in op._params:
        if tag == TENSOR:
            made[name] = None if flags & OPTIONAL and not with_optional else random(shape, dtype)
        elif default is None and not flags & OPTIONAL:
            made[name] = NUMBERS[tag]
    return made


def converted(made, change):
    return {name: change(x) if isinstance(x, torch.Tensor) else x for name, x in made.items()}


def results(found):
    return found if isinstance(found, tuple) else (found,)


def reference(name):
    """Returns the op's function in reference.py; None if there is none."""
    if path := os.environ.get("OPDOCK_TEST_REFERENCE"):
        spec = spec_from_file_location("reference", path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, name):
            return getattr(module, name)
    return None


def wanted_results(op, name, made):
    """Returns what the op should compute, with floats in float64 or as reference.py rounds them."""
    if function := reference(name):
        wide = converted(made, lambda x: x.double() if x.is_floating_point() else x.clone())
        return results(function(**wide))
    fresh = re.sub(r"Tensor\(\w+!\)", "Tensor", op.schema)
    return results(_opdock.make_evaluator(_runtime.default(), op, fresh)(**made))


def check(name, dtype, device, made, layout=lambda x: x):
    """Calls the op with these arguments in that layout, and compares it with the oracle."""
    op = opdock.load(name)
    wanted = wanted_results(op, name, made)
    found = results(on(device, op)(**converted(made, lambda x: layout(x.clone()))))
    assert len(found) == len(wanted)
    for one, exact in zip(found, wanted, strict=True):
        if not one.is_floating_point():
            assert torch.equal(one, exact.to(one.dtype)), f"found {one}, wanted {exact}"
            continue
        rounded = exact.to(one.dtype)
        sizes = exact.double().abs()
        largest = float(sizes[sizes.isfinite()].max()) if sizes.isfinite().any() else 0.0
        tolerance = TOLERANCES[dtype]
        torch.testing.assert_close(
            one, rounded, rtol=tolerance, atol=tolerance * max(largest, 1.0), equal_nan=True
        )


@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (1000,), (3, 5, 7), (5, 1030)], ids=str)
@pytest.mark.parametrize("name, dtype", CASES)
def test_shapes(name, dtype, device, shape):
    made = arguments(opdock.load(name), shape, getattr(torch, dtype))
    check(name, dtype, device, made)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name, dtype", CASES)
def test_layouts(name, dtype, device, layout):
    made = arguments(opdock.load(name), (6, 70), getattr(torch, dtype))
    check(name, dtype, device, made, LAYOUTS[layout])


@pytest.mark.parametrize("name, dtype", FLOATS)
def test_special_values(name, dtype, device):
    made = arguments(opdock.load(name), (len(SPECIAL) + 1, 40), getattr(torch, dtype))
    for number, x in enumerate(x for x in made.values() if isinstance(x, torch.Tensor)):
        for row, value in enumerate(SPECIAL):  # one kind in a row, as a nan makes a sum nan
            x[row, number] = value
    check(name, dtype, device, made)


@pytest.mark.parametrize("name, dtype", OPTIONALS)
def test_without_optional_tensors(name, dtype, device):
    made = arguments(opdock.load(name), (4, 70), getattr(torch, dtype), False)
    check(name, dtype, device, made)
