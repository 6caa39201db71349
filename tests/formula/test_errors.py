# SPDX-License-Identifier: Apache-2.0
"""Tests what is said about faulty formulas and calls, through the whole stack."""

import sys
import types

import pytest
import torch

import opdock

#: Only a GPU's driver differs.
pytestmark = pytest.mark.daily("cpu", "cuda")


def error(call, *arguments, kind=opdock.InvalidArgumentError, **keywords):
    with pytest.raises(kind) as problem:
        call(*arguments, **keywords)
    return str(problem.value)


def test_shapes(compute):
    x, y, z = torch.ones(3, 4), torch.ones(5), torch.ones(2, 4)
    assert error(compute, "x + y", x, y) == (
        'formula: "y": found the shape [5], wanted one that can be broadcast with [3, 4] of "x"'
    )
    assert error(compute, "x * 2 + z", x, z) == (
        'formula: "z": found the shape [2, 4], wanted one that can be broadcast with [3, 4] of "x"'
    )
    assert error(compute, "x + y", torch.zeros([1] * 17), y) == (
        "formula(): argument 'x': found 17 dimensions, wanted at most 16; reshape it"
    )


def test_a_reduction_of_one_column(compute):
    text = error(compute, "return x - sum(b), amax(x)", torch.ones(3, 4), torch.ones(3, 1))
    assert text == (
        "formula: sum: found an argument with 1 column, wanted one with the 4 columns of the "
        "formula; reduce it in a formula of its own"
    )
    text = error(compute, "x - sum(c)", torch.ones(3, 4), torch.tensor(1.0))
    assert "found an argument that is the same in the whole row" in text


def test_dtypes(compute):
    x = torch.ones(3, dtype=torch.complex64)
    assert error(compute, "x + y", torch.ones(3), x) == (
        "formula: argument 'y': found complex64, wanted bool, uint8, int8 to int64, float16, "
        "bfloat16, float32 or float64; convert it first"
    )
    text = error(compute, "y = x * 2\nz & y", torch.ones(3), torch.ones(3))
    assert text.startswith(
        'formula: line 2, column 3: "bitwise_and": found float32, wanted integers or bools'
    ), text
    assert "\n  z & y\n    ^" in text


def test_results_that_cannot_be_written(compute):
    schema = "f(Tensor(a!) x, Tensor y) -> Tensor(a!)"
    assert error(compute, "x + y", torch.ones(3), torch.ones(2, 3), schema=schema) == (
        "f: argument 'x': found float32 of shape [3], wanted float32 of shape [2, 3], because the "
        "result is written into it"
    )
    x = torch.ones(3, dtype=torch.int32)
    assert error(compute, "x + y", x, torch.ones(3), schema=schema) == (
        "f: argument 'x': found int32 of shape [3], wanted float32 of shape [3], because the "
        "result is written into it"
    )


def test_out_of_another_shape(compute):
    text = error(compute, "x + 1", torch.ones(3), out=torch.ones(4))
    assert "[3]" in text and "[4]" in text and "out" in text


@pytest.mark.gpu
def test_a_parameter_that_is_too_large(compute):
    """A kernel's parameter has the strides of all tensors."""
    shape = [2] * 12
    inputs = [torch.zeros(shape).permute(*torch.randperm(12).tolist()) for _ in range(44)]
    names = [f"a{i}" for i in range(44)]
    assert error(compute, "+".join(names), *inputs) == (
        "formula: found 45 tensors in 11 dimensions, wanted fewer of one of them for a GPU; make "
        "the tensors contiguous"
    )
    inputs = [x.contiguous() for x in inputs]
    assert (compute("+".join(names), *inputs) == 0).all()


@pytest.mark.gpu
def test_two_devices(device):
    from opdock.testing import move, to_cpu

    if device == "cuda" and torch.cuda.is_available() and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    add = opdock.formula("x + y")
    x = torch.ones(5)
    text = error(add, move(x, f"{device}:0"), move(x, f"{device}:1"))
    assert f"{device}:0" in text and f"{device}:1" in text and "y" in text
    for index in (0, 1):
        there = move(x, f"{device}:{index}")
        found = add(there, there)
        assert found.device == f"{device}:{index}" and torch.equal(to_cpu(found), x + x)


@pytest.mark.gpu
def test_a_first_use_in_a_capture(device, monkeypatch):
    """Compiling would end the capture. Opdock takes the stream from the arrays' library, for which
    this stand-in has as much of CuPy as Opdock uses."""
    from opdock._author import driver
    from opdock._author.device_array import DeviceArray, to_gpu

    gpu = driver.gpu(device)
    stream = gpu.stream()
    cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
    cupy.ndarray, cupy.cuda = type("ndarray", (DeviceArray,), {}), cuda
    cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    x, out = to_gpu(torch.full((6,), 2.0), gpu), to_gpu(torch.zeros(6), gpu)
    x.__class__ = out.__class__ = cupy.ndarray
    gpu.order(0, stream)
    cube = opdock.formula("x * x * x + 0.125")
    said = []

    def work():
        said.append(error(cube, x, out=out, kind=opdock.OpdockError))

    gpu.capture(stream, work)
    assert said == [
        "formula: found the stream being captured before the formula's kernel for these dtypes and "
        "this layout exists, wanted one call before the capture"
    ]
    cube(x, out=out)
    gpu.synchronize(stream)
    gpu.to_device(out.address, torch.zeros(6).data_ptr(), 24, stream)
    graph = gpu.capture(stream, lambda: cube(x, out=out))
    gpu.launch_graph(graph, stream)
    gpu.synchronize(stream)
    assert torch.equal(out.to_host(), torch.full((6,), 8.125))


def test_faulty_texts():
    assert error(opdock.formula, "y = x *\nreturn y").startswith("formula: line 1, column 8: ")
    text = error(opdock.formula, "y = x\nreturn frobnicate(y)")
    assert text.startswith("formula: line 2, column 8: found ") and "frobnicate" in text
    assert "\n  return frobnicate(y)\n         ^" in text
    text = error(opdock.formula, "x + 1", "f(Tensor x, Tensor y) -> Tensor")
    assert '"y"' in text
    assert error(opdock.formula, "x + 1", "f(Tensor x) -> (Tensor, Tensor)") == (
        "formula: found 1 result of the formula, wanted the 2 of the schema"
    )
    assert error(opdock.formula, "x + 1", "f(Tensor[] x) -> Tensor") == (
        "parameter 'x': found Tensor[], wanted Tensor, float, int, bool, str or ScalarType, which "
        "formulas take"
    )
    assert error(opdock.formula, "s + 1", "f(float s) -> Tensor") == (
        "formula: found no tensor among the parameters, wanted at least one"
    )
