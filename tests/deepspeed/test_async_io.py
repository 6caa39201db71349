# SPDX-License-Identifier: Apache-2.0
"""Tests async_io with DeepSpeed's names, on files that Python reads and writes."""

import os

import pytest
import torch

import opdock


@pytest.fixture
def aio(compat):
    return compat.AsyncIOBuilder().load()


@pytest.fixture(params=[(s, o) for s in (False, True) for o in (False, True)], ids=str)
def handle(aio, request):
    """Returns a handle as in DeepSpeed's own test: blocks of 1 KiB, two in flight."""
    single, overlap = request.param
    return aio.aio_handle(1024, 2, single, overlap, 1)


def some_bytes(count, seed=0):
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=_generator(seed))


def _generator(seed):
    return torch.Generator().manual_seed(seed)


def test_what_was_given_is_what_is_said(aio):
    handle = aio.aio_handle(4096, 16, True, False, 3)
    assert handle.get_block_size() == 4096
    assert handle.get_queue_depth() == 16
    assert handle.get_single_submit() is True
    assert handle.get_overlap_events() is False
    assert handle.get_intra_op_parallelism() == handle.get_thread_count() == 3
    assert handle.get_alignment() == 3 * 512
    usual = aio.aio_handle()
    assert (usual.get_block_size(), usual.get_queue_depth()) == (1 << 20, 128)


def test_written_and_read(handle, tmp_path):
    path, x = tmp_path / "x", some_bytes(4096)
    assert handle.sync_pwrite(x, str(path)) == 1
    assert path.read_bytes() == x.numpy().tobytes()
    y = torch.zeros_like(x)
    assert handle.sync_pread(y, str(path)) == 1
    assert torch.equal(x, y)


def test_in_the_background(handle, tmp_path):
    several = [some_bytes(4096, seed) for seed in range(3)]
    for i, x in enumerate(several):
        assert handle.async_pwrite(x, str(tmp_path / str(i))) == 0
    assert handle.wait() == 3
    back = [torch.zeros_like(x) for x in several]
    for i, y in enumerate(back):
        assert handle.async_pread(y, str(tmp_path / str(i))) == 0
    assert handle.wait() == 3
    assert all(torch.equal(x, y) for x, y in zip(several, back, strict=True))


def test_one_that_waits_waits_for_those_before_it(handle, tmp_path):
    x = some_bytes(4096)
    handle.async_pwrite(x, str(tmp_path / "a"))
    assert handle.sync_pwrite(x, str(tmp_path / "b")) == 2
    assert handle.wait() == 0  # DeepSpeed's wait() ends the process if nothing is pending


def test_read_and_write_return_0(aio, handle, tmp_path):
    path, x = str(tmp_path / "x"), some_bytes(4096)
    assert handle.write(x, path, True) == 0
    y = torch.zeros_like(x)
    assert handle.read(y, path, True) == 0 and torch.equal(x, y)
    assert aio.aio_write(x.flip(0), path, 1024, 2, False, True, True) == 0
    assert aio.aio_read(y, path, 1024, 2, False, True, False) == 0
    assert torch.equal(y, x.flip(0))
    assert handle.pread(y, path, False, True) == 0 and handle.wait() == 1
    assert handle.pwrite(y, path, False, False) == 1


def test_offsets_and_open_files(handle, tmp_path):
    path, x = tmp_path / "x", some_bytes(1000)
    path.write_bytes(bytes(5000))
    handle.sync_pwrite(x, str(path), 123)
    file = os.open(path, os.O_RDWR)
    try:
        assert handle.async_pwrite(x.flip(0).contiguous(), file, 2000) == 0
        assert handle.wait() == 1
    finally:
        os.close(file)
    wanted = bytearray(5000)
    wanted[123:1123] = x.numpy().tobytes()
    wanted[2000:3000] = x.flip(0).numpy().tobytes()
    assert path.read_bytes() == wanted
    y = torch.zeros_like(x)
    handle.sync_pread(y, str(path), 123)
    assert torch.equal(x, y)


@pytest.mark.parametrize("count", [1, 511, 10001])
def test_sizes_that_threads_do_not_divide(aio, tmp_path, count):
    """DeepSpeed returns -1 for these sizes."""
    handle = aio.aio_handle(1024, 4, False, True, 3)
    path, x = tmp_path / "x", some_bytes(count)
    assert handle.sync_pwrite(x, str(path)) == 1
    assert path.read_bytes() == x.numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_dtypes_and_shapes(handle, tmp_path, dtype):
    path, x = tmp_path / "x", torch.arange(60).to(dtype).view(3, 4, 5)
    handle.sync_pwrite(x, str(path))
    assert path.read_bytes() == x.view(-1).view(torch.uint8).numpy().tobytes()


def test_no_file_is_an_error_with_its_name(handle, tmp_path):
    """DeepSpeed returns -1 and prints the error."""
    with pytest.raises(opdock.IoError, match=r"nothing.*No such file"):
        handle.sync_pread(some_bytes(16), str(tmp_path / "nothing"))
    assert handle.wait() == 0


@pytest.mark.parametrize("wrong", [None, 1.5, True, object(), ["x"]])
def test_what_is_no_path_is_refused(handle, tmp_path, monkeypatch, wrong):
    """Neither call creates a file named after str() of the argument."""
    monkeypatch.chdir(tmp_path)
    x = some_bytes(16)
    for name, more in (
        ("read", (False,)),
        ("write", (False,)),
        ("pread", (False, True)),
        ("pwrite", (False, True)),
        ("sync_pread", ()),
        ("sync_pwrite", ()),
        ("async_pread", ()),
        ("async_pwrite", ()),
    ):
        with pytest.raises(opdock.ArgumentError, match=rf"^{name}\(\): argument 'filename'"):
            getattr(handle, name)(x, wrong, *more)
    with pytest.raises(opdock.ArgumentError, match=r"sync_pwrite\(\): argument 'buffer'"):
        handle.sync_pwrite(wrong, "x")
    with pytest.raises(opdock.InvalidArgumentError, match=r"'filename': found 'a\\x00b'"):
        handle.sync_pwrite(x, "a\0b")
    if wrong is not True:
        with pytest.raises(opdock.ArgumentError, match="'file_offset'"):
            handle.sync_pwrite(x, "x", wrong)
    assert os.listdir(tmp_path) == [] and handle.wait() == 0


@pytest.mark.parametrize("kind", [str, os.fsencode, lambda path: path])
def test_each_kind_of_path(handle, tmp_path, kind):
    x, path = some_bytes(16), tmp_path / "x\u00e9"
    handle.sync_pwrite(x, kind(path))
    assert path.read_bytes() == x.numpy().tobytes()


def test_a_file_that_is_too_short_is_an_error(handle, tmp_path):
    """DeepSpeed prints the error, and reads beyond the end."""
    path = tmp_path / "short"
    path.write_bytes(bytes(10))
    with pytest.raises(opdock.OpdockError):
        handle.sync_pread(some_bytes(16), str(path))


def test_validation_finds_a_difference(handle, tmp_path, monkeypatch):
    path, x = str(tmp_path / "x"), some_bytes(64)
    handle.sync_pwrite(x, path)
    monkeypatch.setattr(
        opdock.ops,
        "aio_wait_all",
        lambda handle, wait=opdock.ops.aio_wait_all: (wait(handle), x.add_(1)),
    )
    with pytest.raises(opdock.IoError, match="found other bytes"):
        handle.pread(x, path, True, False)


def test_locked_tensors(handle):
    x = handle.new_cpu_locked_tensor(1000, torch.zeros(1, dtype=torch.bfloat16))
    assert x.shape == (1000,) and x.dtype == torch.bfloat16 and not x.any()
    assert x.data_ptr() % 4096 == 0
    assert handle.is_pinned(x) and handle.is_pinned(x[10:]) and not handle.is_pinned(torch.ones(9))
    assert handle.free_cpu_locked_tensor(x) is True
    assert handle.free_cpu_locked_tensor(x) is False and not handle.is_pinned(x)


def test_memcpy(aio):
    """DeepSpeed copies only as many elements as the first dimension has, as float32."""
    x, y = torch.randn(3, 5).double(), torch.zeros(3, 5).double()
    assert aio.deepspeed_memcpy(y, x) == 0 and torch.equal(x, y)


def test_utils(compat):
    utils = compat.UtilsBuilder().load()
    several = [torch.arange(6.0).view(2, 3), torch.ones(()), torch.zeros(0), torch.ones(4)]
    flat = utils.flatten(several)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 1, 1, 1, 1, 1]
    back = utils.unflatten(flat, several)
    assert all(torch.equal(x, y) for x, y in zip(several, back, strict=True))
    back[0][0, 1] = 9
    assert flat[1] == 9  # they are views, as DeepSpeed's are
    found = utils.cast_to_byte_tensor(several[0])
    assert found.numpy().tobytes() == several[0].numpy().tobytes()
    assert found.data_ptr() == several[0].data_ptr()
    one = torch.ones(1, dtype=torch.uint8)
    assert utils.cast_to_byte_tensor([one, several[3]])[0] is one
    with pytest.raises(ValueError, match="contiguous"):
        utils.cast_to_byte_tensor(several[0].t())
