# SPDX-License-Identifier: Apache-2.0
"""noop and noop_launch through the Python package, on every device and dtype."""

import pytest
import torch

import opdock
from opdock.testing import on

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32"]
DTYPES += ["float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", ["noop", "noop_launch"])
@pytest.mark.parametrize("element", DTYPES)
def test_takes_any_tensor_and_changes_nothing(device, name, element):
    op = on(device, getattr(opdock.ops, name))
    for shape in [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]:
        x = torch.ones(shape, dtype=getattr(torch, element))
        assert op(x) is None
        assert bool((x == 1).all())


@pytest.mark.gpu
def test_launch_in_a_graph(cuda):
    x = torch.ones(3, device=cuda)
    opdock.ops.noop_launch(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        opdock.ops.noop_launch(x)
        y = x * 2
    graph.replay()
    assert y.tolist() == [2, 2, 2]
