# SPDX-License-Identifier: Apache-2.0
"""Arguments that copy_to_device and copy_to_host refuse."""

import numpy
import pytest
import torch

import opdock
from opdock.testing import move

to_device, to_host = opdock.ops.copy_to_device, opdock.ops.copy_to_host
X = torch.ones(4, 6)
BAD = [
    (torch.ones(6, 4), X, "'dst'.*found shape"),
    (torch.ones(4, 6, 1), X, "'dst'.*found shape"),
    (torch.ones(4, 6, dtype=torch.int8), X, "int8"),
    (X, torch.ones(4, 6, dtype=torch.complex64), "complex64"),
]


@pytest.mark.parametrize("op", [to_device, to_host], ids=["to_device", "to_host"])
@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_inputs_are_told(device, op, number):
    dst, src, text = BAD[number]
    if op is to_device:
        dst = move(dst, device)
    else:
        src = move(src, device)
    with pytest.raises(opdock.OpdockError, match=text):
        op(dst, src)


def test_an_array_that_may_not_be_written(device):
    dst = numpy.zeros((4, 6), numpy.float32)
    dst.flags.writeable = False
    with pytest.raises(opdock.InvalidArgumentError, match="'dst'.*read-only"):
        to_host(dst, move(X, device))
    with pytest.raises(opdock.InvalidArgumentError, match="'dst'"):
        to_host(torch.zeros(4, 1).expand(4, 6), move(X, device))


def test_an_address_that_is_no_elements(device):
    memory = numpy.zeros(97, numpy.uint8)[1:].view(numpy.float32).reshape(4, 6)
    with pytest.raises(opdock.OpdockError, match="'src'.*misaligned"):
        to_device(move(X, device), memory)


def test_strides_on_a_gpu(device):
    if device == "cpu":
        pytest.skip("between tensors of the CPU strides are allowed")
    with pytest.raises(opdock.UnsupportedError, match="'dst'.*contiguous"):
        to_device(move(torch.ones(6, 4).t(), device), X)
    with pytest.raises(opdock.UnsupportedError, match="'src'.*contiguous"):
        to_host(X.clone(), move(torch.ones(6, 4).t(), device))


def test_each_argument_on_the_wrong_device(device):
    if device == "cpu":
        pytest.skip("the CPU has no wrong device for an argument")
    gpu, other = move(torch.ones(4, 6), device), move(torch.ones(4, 6), device)
    told = f"found it on {device}:0, wanted it on the CPU, as the op declares it; move it there"
    for op, dst, src, name in [
        (to_device, gpu, other, "src"),
        (to_device, X, gpu, "src"),
        (to_host, gpu, other, "dst"),
        (to_host, gpu, X, "dst"),
    ]:
        with pytest.raises(opdock.InvalidArgumentError, match=f"'{name}': {told}"):
            op(dst, src)
