# SPDX-License-Identifier: Apache-2.0
"""Tests split_rows and its gradient through the Python package, on every device: results equal
slices of x bit by bit."""

import itertools

import numpy
import pytest
import torch

import opdock
from opdock.testing import move, on, to_cpu

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
FLOATS = ["float32", "float16", "bfloat16", "float64"]
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += [*FLOATS, "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"]


def random_bits(shape, dtype=torch.uint8, seed=0, offset=0):
    """Returns arbitrary bits (for bool 0 or 1), in memory that begins `offset` elements into its
    storage."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(seed)
    most = 2 if dtype == torch.bool else 256
    bits = torch.randint(most, ((count + offset) * size,), generator=generator, dtype=torch.uint8)
    return bits.view(dtype)[offset:].view(shape)


def bits_of(x):
    return x.contiguous().view(-1).view(torch.uint8) if x.numel() else x.new_empty(0).byte()


def check(device, x, sizes):
    found = on(device, opdock.ops.split_rows)(x, sizes)
    assert isinstance(found, list) and len(found) == len(sizes)
    ends = list(itertools.accumulate(sizes))
    for piece, size, end in zip(found, sizes, ends, strict=True):
        wanted = x[end - size : end]
        assert (piece.shape, piece.dtype) == (wanted.shape, wanted.dtype)
        assert piece.is_contiguous() and torch.equal(bits_of(piece), bits_of(wanted))
    return found


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(device, name):
    x = random_bits((7, 5), getattr(torch, name), 1)
    check(device, x, [3, 0, 4])


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3, 2), (7, 2, 1, 1, 1, 2)])
@pytest.mark.parametrize("sizes", [[7], [1] * 7, [0, 3, 0, 0, 4, 0], [7, 0], [6, 1]])
def test_shapes_and_sizes(device, shape, sizes):
    check(device, random_bits(shape, torch.float32, 2), sizes)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 6, 8, 12, 16, 20, 48])
def test_alignment(device, length, offset):
    """Rows and addresses that are multiples of 1, 2, 4, 8 and 16 bytes."""
    check(device, random_bits((29, length), seed=length, offset=offset), [4, 1, 16, 8])


@pytest.mark.parametrize("length", [1, 24, 4096])
def test_pieces_longer_than_a_block_copies(device, length):
    rows = max(40000 // length, 3)
    check(device, random_bits((rows, length), torch.float16, 4), [1, rows - 2, 1])


@pytest.mark.parametrize("count", [127, 128, 129, 256, 700])
def test_many_pieces(device, count):
    sizes = [(7 * i) % 4 for i in range(count)]
    check(device, random_bits((sum(sizes), 6), torch.int16, count), sizes)


def test_thousands_of_pieces():
    check("cpu", random_bits((20_000, 3), seed=5), [0, 1, 2, 3, 4] * 2000)


def test_more_than_one_thread_copies(several_threads, device):
    """On the CPU several threads copy; on a GPU several blocks."""
    rows = 5000 if device == "cpu" else 150
    check(device, random_bits((rows, 1003), seed=6), [rows // 3, 0, 1, rows - rows // 3 - 1])


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_without_elements(device, shape):
    x = torch.empty(shape)
    check(device, x, [shape[0]])
    check(device, x, [0, shape[0], 0])
    if shape[0] == 0:
        assert check(device, x, []) == []


def test_pieces_are_new_tensors(device):
    x = random_bits((4, 8), torch.float32)
    before = x.clone()
    there = move(x, device)
    pieces = [to_cpu(piece) for piece in opdock.ops.split_rows(there, [2, 2])]
    pieces[0].zero_()
    assert torch.equal(bits_of(x), bits_of(before)) and bool((to_cpu(there) == x).any())
    assert torch.equal(bits_of(pieces[1]), bits_of(before[2:]))


def test_numpy_gives_numpy():
    x = numpy.arange(10, dtype=numpy.int32).reshape(5, 2)
    found = opdock.ops.split_rows(x, [2, 3])
    assert all(type(piece) is numpy.ndarray for piece in found)
    assert [piece.tolist() for piece in found] == [x[:2].tolist(), x[2:].tolist()]


X = torch.ones(5, 2)
BAD = [
    (X, [2, 2], "'sizes': found 4 rows in all, wanted 5, the size of 'x' in dimension 0"),
    (X, [], "'sizes': found 0 rows in all, wanted 5"),
    (X, [6, -1], "'sizes'.*-1|negative"),
    (X, [2**62, 2**62, 2**62], "'sizes'|elements|overflow"),
    (torch.ones(()), [1], "'x'.*dimension"),
    (torch.ones(5, 4)[:, :2], [5], "'x'.*contiguous"),
    (X.t(), [2], "'x'.*contiguous"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_inputs_are_told(device, number):
    x, sizes, text = BAD[number]
    with pytest.raises(opdock.OpdockError, match=text):
        on(device, opdock.ops.split_rows)(x, sizes)


# ---- the gradient


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("sizes", [[7], [1] * 7, [0, 3, 0, 4, 0]])
def test_gradient_is_autograds(device, name, sizes):
    x = random_bits((7, 3), torch.uint8).to(getattr(torch, name)).requires_grad_()
    weights = torch.linspace(-2, 2, x.numel(), dtype=x.dtype).view(x.shape)
    grads = [piece.clone() for piece in torch.split(weights, sizes)]
    pieces = torch.split(x * 1, sizes)
    torch.autograd.backward(pieces, grads)
    found = on(device, opdock.ops.split_rows_backward)(grads, x.detach())
    assert found.dtype == x.dtype and torch.equal(found, x.grad)


@pytest.mark.parametrize("count", [128, 129, 300])
def test_gradient_of_many_pieces(device, count):
    grads = [random_bits((i % 3, 5), torch.float16, i) for i in range(count)]
    wanted = torch.cat(grads)
    found = on(device, opdock.ops.split_rows_backward)(grads, torch.empty_like(wanted))
    assert torch.equal(bits_of(found), bits_of(wanted))


def test_gradient_without_elements(device):
    for x in (torch.empty(0, 3), torch.empty(2, 0)):
        found = on(device, opdock.ops.split_rows_backward)([x], x)
        assert found.shape == x.shape
    assert on(device, opdock.ops.split_rows_backward)([], torch.empty(0, 3)).shape == (0, 3)


def test_gradient_is_declared():
    (gradient,) = opdock.ops.split_rows._gradients
    params, op, args = gradient
    incoming, param = 2, 0  # OPDOCK_GRADIENT_INCOMING, OPDOCK_GRADIENT_PARAM
    assert (params, op) == ([(0, 0)], "split_rows_backward")
    assert [arg[:2] for arg in args] == [(incoming, 0), (param, 0)]


BAD_GRADIENTS = [
    ([X[:2], X[:2]], X, "'grads': found 4 rows in all, wanted 5"),
    ([X[:2], torch.ones(3, 3)], X, r"'grads\[1\]'.*size 3 in dimension 1"),
    ([X[:2].half(), X[:3]], X, r"'grads\[0\]'.*float16"),
    ([torch.ones(5, 4)[:, :2]], X, r"'grads\[0\]'.*contiguous"),
    ([torch.ones(5)], X, r"'grads\[0\]'.*dimension"),
    ([torch.ones(5, 2, dtype=torch.int32)], torch.ones(5, 2, dtype=torch.int32), "'x'.*int32"),
]


@pytest.mark.parametrize("number", range(len(BAD_GRADIENTS)))
def test_bad_gradients_are_told(device, number):
    grads, x, text = BAD_GRADIENTS[number]
    with pytest.raises(opdock.OpdockError, match=text):
        on(device, opdock.ops.split_rows_backward)(grads, x)


# ---- on a GPU that torch reaches


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(cuda):
    x, sizes = torch.randn(200, 33, device=cuda), [50, 0, 150]
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10_000_000)
        y = x + 1
        found = opdock.ops.split_rows(y, sizes)
    torch.cuda.synchronize()
    assert all(map(torch.equal, found, torch.split(x + 1, sizes)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = opdock.ops.split_rows(x, sizes)
        whole = opdock.ops.split_rows_backward(found, x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert all(map(torch.equal, found, torch.split(x, sizes))) and torch.equal(whole, x)


@pytest.mark.gpu
def test_thousands_of_pieces_on_a_gpu(cuda):
    x, sizes = torch.randn(20_000, 3, device=cuda), [0, 1, 2, 3, 4] * 2000
    found = opdock.ops.split_rows(x, sizes)
    assert all(map(torch.equal, found, torch.split(x, sizes)))
    assert torch.equal(opdock.ops.split_rows_backward(found, x), x)


@pytest.mark.gpu
def test_more_than_2_to_the_31_bytes(cuda):
    if torch.cuda.mem_get_info()[0] < 11e9:
        pytest.skip("needs 11 GB of free GPU memory")
    x = torch.zeros(2**32 + 3, dtype=torch.uint8, device=cuda)
    x[-5:] = torch.arange(5, device=cuda)
    found = opdock.ops.split_rows(x, [1, 2**32 - 2, 4])
    assert found[2].tolist() == [1, 2, 3, 4] and int(found[1][-1]) == 0
