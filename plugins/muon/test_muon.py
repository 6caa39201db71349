# SPDX-License-Identifier: Apache-2.0
"""Tests newton_schulz on every device: each step against its definition in float64, and what the
steps do to singular values."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

COEFFICIENTS = (3.4445, -4.775, 2.0315)
SHAPES = [(1, 1), (3, 5), (5, 3), (2, 16, 16), (2, 3, 9, 33), (3, 40, 17)]
# The errors of a step relative to the largest element: roundings of A, of b A + c A A and of x, by
# up to two kernels each.
ERRORS = {torch.float32: 2e-6, torch.float16: 6e-3, torch.bfloat16: 4e-2}


def small(shape, dtype, seed=0):
    """Returns matrices whose singular values are at most 1."""
    x = random(shape, torch.float64, seed)
    return (x / torch.linalg.matrix_norm(x, keepdim=True)).to(dtype)


def one_step(x, a, b, c):
    gram = x @ x.mT
    return a * x + (b * gram + c * (gram @ gram)) @ x


def check(found, wanted, dtype, times=1):
    assert (found.shape, found.dtype, found.is_contiguous()) == (wanted.shape, dtype, True)
    scale = max(1.0, wanted.abs().max().item())
    assert (found.double() - wanted).abs().max().item() <= times * ERRORS[dtype] * scale


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_step(device, dtype, shape):
    """With the usual coefficients, and with others that each make one product matter alone."""
    x = small(shape, dtype)
    for by in (COEFFICIENTS, (0.0, 0.0, 2.0), (0.0, 3.0, 0.0), (-1.5, 0.0, 0.0)):
        named = dict(zip("abc", by, strict=True))
        found = on(device, opdock.ops.newton_schulz)(x, steps=1, **named)
        check(found, one_step(x.double(), *by), dtype)


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("steps", [2, 3])
def test_several_steps(device, dtype, steps):
    """An odd and an even number, which end in the op's result from different places."""
    for shape in ((9, 20), (2, 20, 9)):
        x = wanted = small(shape, dtype, steps)
        wanted = wanted.double()
        for _ in range(steps):
            wanted = one_step(wanted, *COEFFICIENTS)
        before = x.clone()
        found = on(device, opdock.ops.newton_schulz)(x, steps=steps)
        # An error grows in the next step by the iteration's slope, at most a.
        check(found, wanted, dtype, sum(COEFFICIENTS[0] ** k for k in range(steps)))
        assert torch.equal(x, before)


def test_singular_values_end_near_one(device):
    """What Muon uses it for: five steps make a matrix nearly orthogonal and keep its vectors."""
    rows, columns = (torch.linalg.qr(random((30, 12), torch.float64, seed))[0] for seed in (1, 2))
    x = rows @ torch.diag(torch.linspace(0.01, 1, 12, dtype=torch.float64)) @ columns.mT
    found = on(device, opdock.ops.newton_schulz)(x.float()).double()
    values = rows.mT @ found @ columns
    assert values.diagonal().min() > 0.68 and values.diagonal().max() < 1.14
    assert (values - torch.diag(values.diagonal())).abs().max() < 1e-4
    assert (found - rows @ values @ columns.mT).abs().max() < 1e-4


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 2, 3), (2, 0, 0)])
def test_nothing(device, shape):
    found = on(device, opdock.ops.newton_schulz)(torch.ones(shape))
    assert found.shape == shape and found.dtype == torch.float32


def test_bad_inputs_name_the_argument(device):
    x = torch.ones(2, 4, 6)
    for name, args, named in [
        ("x", (x.double(),), {}),
        ("x", (x[0, 0],), {}),
        ("x", (x.mT,), {}),
        ("steps", (x,), {"steps": 0}),
        ("steps", (x,), {"steps": 100}),
        ("b", (x,), {"b": float("nan")}),
        ("c", (x,), {"c": 1e39}),
    ]:
        row_cases.assert_refused(on(device, opdock.ops.newton_schulz), name, *args, **named)
