# SPDX-License-Identifier: Apache-2.0
"""Tests copy_to_device and copy_to_host through the Python package, between the CPU and every
device, and within the CPU. Results must equal those of PyTorch's Tensor.to() bit by bit; outside an
int type's range, its limits."""

import itertools
import math

import numpy
import pytest
import torch

import opdock
from opdock.testing import move, to_cpu

to_device, to_host = opdock.ops.copy_to_device, opdock.ops.copy_to_host
NAMES = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool"]
DTYPES = [getattr(torch, name) for name in NAMES]
BUFFER = 2 << 20  # size of a pinned buffer

FLOATS = [
    0.0,
    0.49,
    0.5,
    0.99,
    1.0,
    1.5,
    2.5,
    100.7,
    127.5,
    128.0,
    254.9,
    255.0,
    255.9,
    256.0,
    300.0,
]
FLOATS += [1e-8, 6e-8, 2e-5, 1e-40, 5e-324, 1 + 2.0**-9, 1 + 2.0**-11, 1 + 3 * 2.0**-11]
FLOATS += [1 + 2.0**-24 + 2.0**-40, 2049.0, 65504.0, 65519.0, 65520.0, 7e4, 3.3e38, 3.4e38, 3.5e38]
for power in (24, 31, 32, 53, 62, 63, 64):
    FLOATS += [2.0**power, math.nextafter(2.0**power, 0), math.nextafter(2.0**power, math.inf)]
    FLOATS += [2.0**power * (1 - 2.0**-24), 2.0**power * (1 + 2.0**-23), 2.0**power - 1]
FLOATS += [1e300, math.inf, math.nan]
INTS = [0, 1, 2, 127, 128, 255, 256, 257, 2047, 2049, 2051, 65504, 65519, 65520, 65536, 10**6]
INTS += [2**p + d for p in (24, 25, 31, 32, 33, 53, 54, 62) for d in (-1, 0, 1, 3)]
INTS += [2**40 + 2**16, 2**40 + 2**16 + 1, 2**63 - 1, 2**63 - 512, 2**63 - 513]


def numbers(dtype, count=None, seed=0):
    """Returns numbers of the dtype that conversions treat differently; `count` random ones if
    given."""
    if dtype.is_floating_point:
        some = torch.tensor([s * x for x in FLOATS for s in (1, -1)], dtype=torch.float64).to(dtype)
    elif dtype == torch.bool:
        some = torch.tensor([False, True, True])
    else:
        limits = torch.iinfo(dtype)
        all_ints = [s * x for x in INTS for s in (1, -1)] + [limits.min, limits.max]
        some = torch.tensor([x for x in all_ints if limits.min <= x <= limits.max], dtype=dtype)
    if count is None:
        return some
    generator = torch.Generator().manual_seed(seed)
    return some[torch.randint(len(some), (count,), generator=generator)]


def bits(x):
    """Returns the bits to compare; every NaN has the same ones."""
    x = torch.where(x.isnan(), 0, x) if x.is_floating_point() else x
    return x.contiguous().view(-1).view(torch.uint8)


def assert_same(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.is_floating_point():
        assert torch.equal(found.isnan(), wanted.isnan())
    if found.numel() and not torch.equal(bits(found), bits(wanted)):
        wrong = (found != wanted) & ~(found.isnan() & wanted.isnan())
        pytest.fail(
            f"found {found[wrong][:8]}, wanted {wanted[wrong][:8]}, {int(wrong.sum())} in all"
        )


def garbage(shape, dtype):
    return torch.ones(shape, dtype=dtype)


def wanted_of(reference, src, dtype):
    wanted = garbage(src.shape, dtype)
    reference.copy_to_device(wanted, src)
    return wanted


def there(device, dtype, src):
    """Copies src to the device as `dtype`, and back to the CPU by other means."""
    dst = move(garbage(src.shape, dtype), device)
    assert to_device(dst, src) is None
    return to_cpu(dst)


def back(device, dtype, src):
    """Copies src, moved to the device by other means, back to the CPU as `dtype`."""
    dst = garbage(src.shape, dtype)
    assert to_host(dst, move(src, device)) is None
    return dst


WAYS = pytest.mark.parametrize("way", [there, back])


@WAYS
@pytest.mark.parametrize("to", NAMES)
@pytest.mark.parametrize("from_", NAMES)
def test_all_pairs_of_dtypes(reference, device, way, from_, to):
    src, dtype = numbers(getattr(torch, from_)), getattr(torch, to)
    assert_same(way(device, dtype, src), wanted_of(reference, src, dtype))


@pytest.mark.parametrize(
    "from_, to", list(itertools.permutations([x for x in NAMES if x[0] != "b"], 2))
)
def test_numpy_says_the_same_of_what_fits(device, from_, to):
    """NumPy rounds a float64 to a float16 in one step, but for these numbers both give the same
    result."""
    src = numpy.array([0, 1, 2, 3, 100, 127, 200, 255]).astype(from_)
    if from_.startswith("float"):
        src = src + numpy.array([0, 0.25, 0.5, 0.75] * 2).astype(from_)
    found = there(device, getattr(torch, to), torch.from_numpy(src))
    assert found.tolist() == src.astype(to).tolist()


def test_what_no_int_type_holds(device):
    src = torch.tensor([math.nan, math.inf, -math.inf, -0.9, 255.9, 256, 3e9, -3e9, 1e19, -1e19])
    low, high = -(2**31), 2**31 - 1
    wanted = {
        torch.uint8: [0, 255, 0, 0, 255, 255, 255, 0, 255, 0],
        torch.int32: [0, high, low, 0, 255, 256, high, low, high, low],
        torch.int64: [0, 2**63 - 1, -(2**63), 0, 255, 256, 3 * 10**9, -3 * 10**9]
        + [2**63 - 1, -(2**63)],
        torch.bool: [True] * 10,
    }
    for dtype, list_ in wanted.items():
        for way in (there, back):
            assert way(device, dtype, src).tolist() == list_
            assert way(device, dtype, src.double()).tolist() == list_


def test_bytes_of_bool_other_than_0_and_1(device):
    src = torch.tensor([0, 1, 2, 128, 255], dtype=torch.uint8).view(torch.bool)
    for dtype in (torch.uint8, torch.int64, torch.float16, torch.float32):
        for way in (there, back):
            assert way(device, dtype, src).tolist() == [0, 1, 1, 1, 1]


@WAYS
@pytest.mark.parametrize("from_, to", [("float32", "float16"), ("uint8", "float32")])
@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 511, 1023, 1024, 1025, 4099])
def test_sizes(reference, device, way, from_, to, count):
    src, dtype = numbers(getattr(torch, from_), count), getattr(torch, to)
    assert_same(way(device, dtype, src), wanted_of(reference, src, dtype))


@WAYS
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (0,), (0, 5), (5, 0, 2), (3, 1, 5)])
def test_shapes(reference, device, way, shape):
    src = numbers(torch.float64, torch.Size(shape).numel()).view(shape)
    assert_same(way(device, torch.float32, src), wanted_of(reference, src, torch.float32))


# Lengths that need one buffer and several: without a conversion, converted by the CPU, and
# converted by the GPU, which receives the smaller dtype.
LONG = [("uint8", "uint8", 2 * BUFFER + 3), ("float64", "float64", BUFFER // 8)]
LONG += [("float64", "float32", BUFFER // 4 + 1), ("int32", "float32", BUFFER + 7)]


@WAYS
@pytest.mark.parametrize("from_, to, count", LONG)
def test_more_than_a_buffer(reference, device, way, from_, to, count):
    src, dtype = numbers(getattr(torch, from_), count), getattr(torch, to)
    assert_same(way(device, dtype, src), wanted_of(reference, src, dtype))


@pytest.mark.parametrize(
    "way, from_, to", [(there, "float32", "float64"), (back, "int64", "int32")]
)
def test_more_than_a_buffer_converted_by_the_gpu(reference, device, way, from_, to):
    src, dtype = numbers(getattr(torch, from_), BUFFER // 4 + 1000), getattr(torch, to)
    assert_same(way(device, dtype, src), wanted_of(reference, src, dtype))


@WAYS
def test_more_than_all_buffers(device, way):
    src = numbers(torch.int64, 11 * BUFFER // 8 + 1)
    assert_same(way(device, torch.int64, src), src)


def views(dtype):
    """Yields CPU tensors that are not contiguous."""
    base = numbers(dtype, 6000, 1)
    yield base[:5000].view(50, 100).t()
    yield base[:5000:3]
    yield base[7:5007].view(50, 100)[3:44, 1:99:2]
    yield base[:1800].view(2, 3, 5, 60).permute(3, 1, 0, 2)
    yield base[:1800].view(2, 3, 1, 5, 1, 60)[:, ::2].transpose(0, 3)
    yield base[:3].view(3, 1, 1)
    yield base[:1]


@pytest.mark.parametrize("name", NAMES)
def test_strides_on_the_host(reference, device, name):
    dtype = getattr(torch, name)
    for to in (dtype, torch.float64, torch.float16, torch.uint8):
        for src in views(dtype):
            for view in (src, src[:1].expand(7, *src.shape[1:])):
                assert_same(there(device, to, view), wanted_of(reference, view, to))
        for dst in views(to):
            src = numbers(dtype, dst.numel(), 2).view(dst.shape)
            assert to_host(dst, move(src, device)) is None
            assert_same(dst, wanted_of(reference, src, to))


@pytest.mark.parametrize("length", [1023, 1024, 1500, 2049])
def test_long_rows_with_gaps(reference, device, length):
    """Rows longer than what a CPU thread converts at once."""
    src = numbers(torch.float32, 5 * 2100).view(5, 2100)[:, 7 : 7 + length]
    assert_same(there(device, torch.float16, src), wanted_of(reference, src, torch.float16))
    dst = torch.ones(5, 2100, dtype=torch.float64)[:, 3 : 3 + length]
    assert to_host(dst, move(src.contiguous(), device)) is None
    assert_same(dst, src.double())


def test_nothing_beside_the_elements_is_written(device):
    base = torch.zeros(10, 10, dtype=torch.int64)
    to_host(base[1:9:2, 2:9:3], move(torch.ones(4, 3), device))
    wanted = torch.zeros(10, 10, dtype=torch.int64)
    wanted[1:9:2, 2:9:3] = 1
    assert torch.equal(base, wanted)


def test_numpy_arrays_with_negative_strides(device):
    src = numpy.arange(24, dtype=numpy.int32).reshape(4, 6)[::-1, ::-2]
    dst = move(torch.zeros(4, 3), device)
    to_device(dst, src)
    assert to_cpu(dst).tolist() == src.tolist()
    back_again = numpy.zeros((8, 3), numpy.uint8)
    to_host(back_again[::-2], dst)
    assert back_again[::-2].tolist() == src.tolist() and not back_again[::2].any()


@pytest.mark.parametrize("name", NAMES)
def test_strides_on_the_cpu_alone(reference, name):
    """On the CPU both tensors may have any strides."""
    dtype = getattr(torch, name)
    for src, dst in itertools.product(views(dtype), views(torch.float32)):
        if src.shape == dst.shape:
            to_device(dst, src)
            assert torch.equal(bits(dst), bits(wanted_of(reference, src, torch.float32)))
