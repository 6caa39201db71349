"""Tests opname on every device, against the reference in float64: `opdock test .` runs this.

The fixtures come from opdock.testing: each device and dtype in turn, and reference.py in this
folder. Tensors are on the CPU: on(device, op) copies them to the device, and the results back.
`opdock test --device=soft .` runs the same on a software GPU.
"""

import pytest
import torch

import opdock
from opdock.testing import on


@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (3, 5, 7), (100_000,)])
def test_opname(reference, assert_close, device, dtype, shape):
    x = torch.randn(shape).to(dtype)
    oracle = reference.opname(x.double(), a=0.3)
    # Allows for the rounding of a to float32 and of the product; that of the result is allowed
    # anyway.
    assert_close(on(device, opdock.ops.opname)(x, a=0.3), oracle, 2.0**-22)


def test_bad_arguments_are_named(device):
    with pytest.raises(opdock.OpdockError, match="'x'"):
        on(device, opdock.ops.opname)(torch.zeros(4, 6).t())
    with pytest.raises(opdock.OpdockError, match="'x'"):
        on(device, opdock.ops.opname)(torch.zeros(4, dtype=torch.int32))
