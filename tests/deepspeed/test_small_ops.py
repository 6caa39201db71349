# SPDX-License-Identifier: Apache-2.0
"""Tests pin_memory, spatial_inference, sparse_attn and utils: the ops that need few lines."""

import gc
import itertools
import mmap

import pytest
import torch
from conftest import run_python

import opdock

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


# ---- pin_memory


@pytest.fixture
def pins(compat):
    """Returns two handles, which share the memory of this process."""
    module = compat.PinMemoryBuilder().load()
    return module.pin_handle(), module.pin_handle()


def locked_pages():
    """Returns the kB of memory that this process has locked."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmLck"))


def test_locked_tensors(pins):
    handle, other = pins
    x = handle.new_cpu_locked_tensor(3 * 4096, torch.zeros(1, dtype=F16))
    assert (x.shape, x.dtype, x.any().item()) == ((3 * 4096,), F16, False)
    assert x.data_ptr() % mmap.PAGESIZE == 0 and x._base is None
    assert x[5:]._base is x  # DeepSpeed frees it once nothing leads to it
    assert locked_pages() >= 24
    for part in (x, x[1:], x[-1:], x.view(3, 4096)[1], x.view(torch.uint8)):
        assert handle.is_pinned(part) and other.is_pinned(part)
    assert not handle.is_pinned(torch.zeros(9)) and not handle.is_pinned(x.to("meta"))
    assert other.free_cpu_locked_tensor(x[1:]) is False  # not where the memory begins
    before = locked_pages()
    assert other.free_cpu_locked_tensor(x) is True and locked_pages() <= before - 24
    assert handle.free_cpu_locked_tensor(x) is False and not handle.is_pinned(x)
    x.fill_(1)  # DeepSpeed's memory is gone by now
    assert x.sum() == 3 * 4096


def test_locked_tensors_by_address(pins):
    handle, _ = pins
    x = handle.new_cpu_locked_tensor(1, torch.zeros(1, dtype=torch.int64))
    assert handle.free_cpu_locked_tensor_by_ptr(x.data_ptr() + 8) is False
    assert handle.free_cpu_locked_tensor_by_ptr(x.data_ptr()) is True
    assert handle.free_cpu_locked_tensor_by_ptr(x.data_ptr()) is False
    empty = handle.new_cpu_locked_tensor(0, x)
    assert empty.shape == (0,) and handle.free_cpu_locked_tensor(empty) is False
    with pytest.raises(opdock.InvalidArgumentError, match="'num_elem': found -1"):
        handle.new_cpu_locked_tensor(-1, x)


def test_what_nobody_frees_is_unlocked_with_its_last_view(pins):
    handle, _ = pins
    before = locked_pages()
    x = handle.new_cpu_locked_tensor(1 << 20, torch.zeros(1, dtype=torch.uint8))
    address, view = x.data_ptr(), x[10:20]
    del x
    gc.collect()
    assert handle.is_pinned(view) and locked_pages() >= before + 1024
    del view
    gc.collect()
    assert locked_pages() <= before and not handle.free_cpu_locked_tensor_by_ptr(address)


def test_the_tensors_of_async_io_are_known(compat, pins):
    handle, _ = pins
    files = compat.AsyncIOBuilder().load().aio_handle(1024, 2, False, True, 1)
    x, y = (one.new_cpu_locked_tensor(1000, torch.zeros(1)) for one in (handle, files))
    for one in (handle, files):
        assert one.is_pinned(x[3:]) and one.is_pinned(y[3:])
    assert files.free_cpu_locked_tensor(x) is True and handle.free_cpu_locked_tensor(y) is True
    assert not handle.is_pinned(x) and not files.is_pinned(y)


def test_a_limit_of_locked_memory_is_named_and_children_start_without(tmp_path):
    run_python(
        """
import os, resource, torch, opdock
from opdock.compat.deepspeed import PinMemoryBuilder
handle, byte = PinMemoryBuilder().load().pin_handle(), torch.zeros(1, dtype=torch.uint8)
x = handle.new_cpu_locked_tensor(4096, byte)
child = os.fork()
if child == 0:
    os._exit(handle.is_pinned(x) or handle.free_cpu_locked_tensor(x))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and handle.is_pinned(x)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (8192, 8192))
if os.getuid() == 0:
    os.setuid(65534)    # the limit does not bind root
try:
    handle.new_cpu_locked_tensor(1 << 20, byte)
    raise AssertionError("locked")
except MemoryError as error:
    assert isinstance(error, opdock.OutOfMemoryError)
    for part in ("1048576 bytes", "a limit of 8192 bytes", "4096 bytes locked", "ulimit -l"):
        assert part in str(error), str(error)
"""
    )


# ---- spatial_inference


def images(shape, dtype, seed):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.to(memory_format=torch.channels_last) if len(shape) == 4 else made


# Channel counts of DeepSpeed's tests, and others that are no multiple of its vectors.
SHAPES = [(1, 192, 16, 16), (2, 320, 32, 32), (10, 384, 16, 16), (2, 4, 3, 5), (1, 7, 1, 1)]


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
@pytest.mark.parametrize("shape", [*SHAPES, (2, 64, 320), (3, 5, 9)])
def test_biases_of_images(compat, device, shape, dtype):
    """A result has the activation's strides and is rounded once."""
    module = compat.SpatialInferenceBuilder().load()
    x, other = (images(shape, dtype, seed).to(device) for seed in (1, 2))
    channels = shape[1] if len(shape) == 4 else shape[-1]
    bias, other_bias = (images((channels,), dtype, seed).to(device) for seed in (3, 4))
    place = (slice(None), None, None) if len(shape) == 4 else ()
    wide = [t.double() for t in (x, bias[place], other, other_bias[place])]
    found = [
        module.nhwc_bias_add(x, bias),
        module.nhwc_bias_add_add(x, bias, other),
        module.nhwc_bias_add_bias_add(x, bias, other, other_bias),
    ]
    unit = torch.finfo(dtype).eps
    for count, one in zip((2, 3, 4), found, strict=True):
        wanted = sum(wide[:count])
        assert one.dtype == dtype and one.stride() == torch.empty_like(x).stride()
        # float32 sums are rounded at each addition.
        most = wanted.abs() * unit / 2 + (4 * unit if dtype == F32 else 1e-6)
        assert ((one.double() - wanted).abs() <= most).all()


def test_images_of_other_layouts_and_wrong_arguments(compat):
    module = compat.SpatialInferenceBuilder().load()
    x, bias = torch.randn(2, 6, 4, 4), torch.randn(6)
    found = module.nhwc_bias_add_add(x, bias, x.flip(0).to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, x + bias[:, None, None] + x.flip(0))
    for arguments, wanted in (
        ((x, bias[:5]), r"'bias': found shape \(5,\), wanted \(6,\)"),
        ((x, bias.half()), "'bias': found torch.float16 on cpu, wanted the activation's"),
        ((x, bias, x[:1]), r"'other': found shape \(1, 6, 4, 4\), wanted"),
        ((bias, bias), "'activation': found 1 dimensions, wanted 3"),
        ((x, bias, x, bias.to("meta")), "'other_bias': found torch.float32 on meta"),
    ):
        name = ("nhwc_bias_add", "nhwc_bias_add_add", "nhwc_bias_add_bias_add")[len(arguments) - 2]
        with pytest.raises(opdock.InvalidArgumentError, match=rf"{name}\(\): argument {wanted}"):
            getattr(module, name)(*arguments)


# ---- sparse_attn


@pytest.mark.parametrize("density", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("start", [1, 4])
def test_squares_of_a_layout(compat, density, start):
    """Each block is in one square, squares are of adjacent blocks, and no larger one is left."""
    random = torch.Generator().manual_seed(int(10 * density))
    layout = (torch.rand(2, 9, 7, generator=random) < density).int()
    numbers = {tuple(place): i for i, place in enumerate(layout.nonzero().tolist())}
    left = layout.clone()
    found = compat.SparseAttnBuilder().load().sdd_segment(layout, start)
    assert not layout.any()
    assert [width for width, _ in found] == [w for w in (4, 2, 1) if w in dict(found)]
    for width, blocks in found:
        assert blocks.dtype == torch.int32
        for square in blocks.view(-1, width * width, 4).tolist():
            head, row, column, _ = square[0]
            places = itertools.product(
                (head,), range(row, row + width), range(column, column + width)
            )
            assert [tuple(one) for one in square] == [(*at, numbers[at]) for at in places]
            for at in (one[:3] for one in square):
                assert left[tuple(at)] == 1
                left[tuple(at)] = 0
        windows = left.unfold(1, width, 1).unfold(2, width, 1)
        assert not windows.flatten(3).all(3).any()
    assert not left.any()


def test_layouts_are_checked(compat):
    module = compat.SparseAttnBuilder().load()
    with pytest.raises(opdock.InvalidArgumentError, match="'layout': found torch.int64 on cpu"):
        module.sdd_segment(torch.ones(1, 2, 2, dtype=torch.int64), 2)
    with pytest.raises(opdock.InvalidArgumentError, match="'start_width': found 3"):
        module.sdd_segment(torch.ones(1, 2, 2, dtype=torch.int32), 3)


# ---- utils


def test_flatten_and_unflatten(compat):
    """Views of one memory, of any shapes and of tensors without elements."""
    module = compat.UtilsBuilder().load()
    parts = [torch.randn(3, 4), torch.empty(0), torch.randn(()), torch.randn(4, 3).t()]
    flat = module.flatten(parts)
    assert flat.shape == (25,)
    found = module.unflatten(flat, parts)
    for one, part in zip(found, parts, strict=True):
        assert torch.equal(one, part)
    flat.zero_()
    assert not any(one.any() for one in found)
