# SPDX-License-Identifier: Apache-2.0
"""Tests async_io through the Python package, against files that Python reads and writes itself."""

import ctypes
import mmap
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import opdock

BACKENDS = ["io_uring", "aio", "threads"]
PAGE = mmap.PAGESIZE
random = np.random.default_rng(0)


def new_bytes(count):
    return random.integers(0, 256, count, np.uint8)


def on_pages(count):
    """Returns an array that begins at a page boundary, so that direct I/O can be used."""
    return np.frombuffer(mmap.mmap(-1, max(count, 1)), np.uint8)[:count]


def kernel_has(backend):
    """Returns whether the kernel provides a queue of this kind with 32 places."""
    libc = ctypes.CDLL(None)
    if backend == "io_uring":
        params = (ctypes.c_uint32 * 30)()  # the sixth element holds the features
        queue = libc.syscall(ctypes.c_long(425), ctypes.c_long(32), params)
        if queue >= 0:
            os.close(queue)
        return queue >= 0 and params[5] & 1 == 1  # one mapping holds both rings
    if backend == "aio":
        setup, destroy = {"x86_64": (206, 207), "aarch64": (0, 1)}[os.uname().machine]
        queue = ctypes.c_ulong(0)
        if libc.syscall(ctypes.c_long(setup), ctypes.c_long(32), ctypes.byref(queue)) != 0:
            return False
        libc.syscall(ctypes.c_long(destroy), queue)
    return True


def open_handle(backend="", **options):
    """Returns a handle; skips the test only if the kernel refuses this backend."""
    if not kernel_has(backend):
        pytest.skip(f"this kernel refuses {backend}")
    return opdock.ops.aio_open(64 * 1024, backend=backend, **options)


@pytest.fixture(params=BACKENDS)
def handle(request):
    return open_handle(request.param)


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "data")


def test_a_handle_says_what_it_is(handle):
    assert (handle.type, handle.version, handle.device) == ("aio_handle", 1, "cpu")


class Copies:
    """An array whose export is a copy, which only the importer holds."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.copy().__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_an_export_lives_until_it_has_been_written(handle, file):
    x = new_bytes(32 << 20)  # so large that its pages go back to the kernel when they are freed
    ticket = opdock.ops.aio_submit_write(handle, Copies(x), file)
    opdock.ops.aio_wait(handle, ticket)
    with open(file, "rb") as written:
        assert written.read() == x.tobytes()


@pytest.mark.parametrize("make", [np.empty, on_pages])
@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, 5 * PAGE + 3, 1 << 20])
def test_what_is_written_is_read(handle, file, size, make):
    x = make(size) if make is on_pages else make(size, np.uint8)
    x[:] = new_bytes(size)
    opdock.ops.aio_write(handle, x, file)
    with open(file, "rb") as written:
        assert written.read() == x.tobytes()
    y = on_pages(size)
    opdock.ops.aio_read(handle, y, file)
    assert np.array_equal(x, y)


@pytest.mark.parametrize("offset", [1, PAGE, 3 * PAGE + 7])
def test_offsets(handle, file, offset):
    whole = new_bytes(8 * PAGE)
    whole.tofile(file)
    x = np.empty(2 * PAGE + 5, np.uint8)
    opdock.ops.aio_read(handle, x, file, offset)
    assert np.array_equal(x, whole[offset : offset + x.size])
    x[:] = 9
    opdock.ops.aio_write(handle, x, file, offset)
    whole[offset : offset + x.size] = 9
    assert np.array_equal(np.fromfile(file, np.uint8), whole)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex128"])
def test_tensors_of_any_dtype(file, dtype):
    handle = open_handle()
    x = torch.from_numpy(new_bytes(16 * 33) % 2).view(getattr(torch, dtype)).reshape(-1, 3)
    opdock.ops.aio_write(handle, x, file)
    y = torch.zeros_like(x)
    opdock.ops.aio_read(handle, y, file)
    assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def test_file_size_cuts_and_extends(file):
    handle = open_handle()
    new_bytes(100).tofile(file)
    x = np.ones(10, np.uint8)
    opdock.ops.aio_write(handle, x, file, file_size=20)
    assert os.path.getsize(file) == 20
    opdock.ops.aio_write(handle, x, file)
    assert os.path.getsize(file) == 20
    opdock.ops.aio_write(handle, x, file, 5, file_size=4096)
    assert os.path.getsize(file) == 4096
    with pytest.raises(opdock.InvalidArgumentError, match="argument 'file_size': found 14, .* 15"):
        opdock.ops.aio_write(handle, x, file, 5, file_size=14)


def test_requests_in_the_background(handle, tmp_path):
    parts = [on_pages(3 * PAGE + 17 * i) for i in range(20)]
    for part in parts:
        part[:] = new_bytes(part.size)
    tickets = [
        opdock.ops.aio_submit_write(handle, part, str(tmp_path / str(i)))
        for i, part in enumerate(parts)
    ]
    assert len(set(tickets)) == len(tickets)
    for ticket in reversed(tickets):
        opdock.ops.aio_wait(handle, ticket)
    found = [np.zeros_like(part) for part in parts]
    for i, part in enumerate(found):
        opdock.ops.aio_submit_read(handle, part, str(tmp_path / str(i)))
    assert opdock.ops.aio_wait_all(handle) == len(parts)
    assert all(map(np.array_equal, parts, found))
    assert opdock.ops.aio_wait_all(handle) == 0


def test_an_array_lives_until_it_has_been_written(tmp_path):
    """Each array is released at once, so that the next ones would reuse its memory."""
    handle = open_handle(threads=2)
    for i in range(64):
        opdock.ops.aio_submit_write(handle, np.full(300_000, i, np.uint8), str(tmp_path / str(i)))
    assert opdock.ops.aio_wait_all(handle) == 64
    for i in range(64):
        assert np.array_equal(
            np.fromfile(tmp_path / str(i), np.uint8), np.full(300_000, i, np.uint8)
        )


def test_a_handle_that_goes_finishes_what_was_submitted(file):
    handle = open_handle()
    x = new_bytes(3_000_000)
    opdock.ops.aio_submit_write(handle, x, file)
    del handle
    assert np.array_equal(np.fromfile(file, np.uint8), x)


@pytest.fixture
def interrupted():
    """Returns interrupted(work), which tells whether Ctrl-C, a moment after work has begun, ends
    it."""

    def call(work):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            work()
            time.sleep(0)  # a pending KeyboardInterrupt is raised here
        except KeyboardInterrupt:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return False

    return call


def test_ctrl_c_ends_a_wait_and_not_the_io(file, interrupted):
    """The I/O is of many gigabytes, and ends at once when the file is truncated."""
    handles = [opdock.ops.aio_open(1 << 20, threads=1, backend="threads")]
    x, last = np.empty(64 << 20, np.uint8), np.ones(1, np.uint8)

    def submit():
        with open(file, "wb") as hole:
            hole.truncate(x.size)
        for _ in range(1000):
            opdock.ops.aio_submit_read(handles[0], x, file)
        return opdock.ops.aio_submit_read(handles[0], last, file)

    ticket = submit()
    assert interrupted(lambda: opdock.ops.aio_wait(handles[0], ticket))
    assert interrupted(lambda: opdock.ops.aio_wait_all(handles[0]))
    assert last[0] == 1
    os.truncate(file, 0)
    with pytest.raises(opdock.IoError, match="wanted 1 bytes"):
        opdock.ops.aio_wait(handles[0], ticket)
    with pytest.raises(opdock.IoError):
        opdock.ops.aio_wait_all(handles[0])
    assert opdock.ops.aio_wait_all(handles[0]) == 0
    submit()
    assert interrupted(handles.clear)
    assert last[0] == 1
    os.truncate(file, 0)


def test_ten_thousand_requests_give_their_arrays_back(file):
    handle = open_handle()
    new_bytes(1).tofile(file)
    kept = []
    for _ in range(10_000):
        x = np.zeros(1, np.uint8)
        kept.append(weakref.ref(x))
        opdock.ops.aio_submit_read(handle, x, file)
    del x
    assert opdock.ops.aio_wait_all(handle) == 10_000
    assert opdock.ops.aio_wait_all(handle) == 0  # this call releases what was kept
    assert not any(reference() is not None for reference in kept)


def test_threads_share_a_handle(tmp_path):
    handle = open_handle(threads=2)
    failed = []

    def work(own):
        path = str(tmp_path / str(own))
        for size in (10, PAGE, 70_000):
            x, y = new_bytes(size), np.empty(size, np.uint8)
            opdock.ops.aio_wait(handle, opdock.ops.aio_submit_write(handle, x, path))
            opdock.ops.aio_wait(handle, opdock.ops.aio_submit_read(handle, y, path))
            if not np.array_equal(x, y):
                failed.append((own, size))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_what_fails_says_so_when_it_is_waited_for(handle, file, tmp_path):
    x = np.zeros(100, np.uint8)
    for path, found in [(file, "No such file"), (str(tmp_path), "found a folder")]:
        with pytest.raises(opdock.IoError, match=found) as told:
            opdock.ops.aio_read(handle, x, path)
        assert isinstance(told.value, OSError) and path in str(told.value)
        ticket = opdock.ops.aio_submit_read(handle, x, path)
        with pytest.raises(opdock.IoError, match=found):
            opdock.ops.aio_wait(handle, ticket)
    new_bytes(99).tofile(file)
    with pytest.raises(opdock.IoError, match="99"):
        opdock.ops.aio_read(handle, x, file)
    opdock.ops.aio_submit_read(handle, x, file)
    opdock.ops.aio_submit_read(handle, x[:9], file)
    with pytest.raises(opdock.IoError, match="99"):
        opdock.ops.aio_wait_all(handle)
    assert opdock.ops.aio_wait_all(handle) == 0


def test_every_dtype_has_bytes(file):
    handle = open_handle()
    for dtype in (torch.float8_e4m3fn, torch.complex32, torch.float4_e2m1fn_x2, torch.bool):
        x = torch.from_numpy(new_bytes(64)).clamp(0, 1).view(dtype)
        opdock.ops.aio_write(handle, x, file)
        y = opdock.ops.aio_zeros_like(x)
        opdock.ops.aio_read(handle, y, file)
        assert y.dtype == dtype
        assert torch.equal(y.view(torch.uint8), x.view(torch.uint8))


def test_wrong_arguments_are_refused(file):
    handle = open_handle()
    x = np.zeros((8, 8), np.uint8)
    for bad, named in [
        ((x.T, file), "x"),
        ((x, ""), "path': found '', wanted a file's path"),
        ((x, "a\0b"), "path"),
        ((x, file, -1), f"offset': found -1, .*: 0 to {2**63 - 65}"),
        ((x, file, 2**63 - 64), f"offset': found {2**63 - 64}, .*: 0 to {2**63 - 65}"),
    ]:
        for op in (opdock.ops.aio_read, opdock.ops.aio_submit_write):
            wanted = (opdock.InvalidArgumentError, opdock.UnsupportedError)
            with pytest.raises(wanted, match=f"'{named}"):
                op(handle, *bad)
    assert not os.path.exists(file)
    for bad in (-1, 0, 12345):
        with pytest.raises(opdock.InvalidArgumentError, match="ticket"):
            opdock.ops.aio_wait(handle, bad)
    ticket = opdock.ops.aio_submit_write(handle, x, file)
    opdock.ops.aio_wait(handle, ticket)
    with pytest.raises(opdock.InvalidArgumentError, match="ticket"):
        opdock.ops.aio_wait(handle, ticket)


@pytest.mark.parametrize(
    "bad", [{"block_size": 0}, {"queue_depth": 32769}, {"threads": 0}, {"backend": "posix"}]
)
def test_wrong_options_are_refused(bad):
    (name,) = bad
    with pytest.raises(opdock.InvalidArgumentError, match=f"'{name}'"):
        opdock.ops.aio_open(**bad)


def test_a_forked_child_is_refused_and_the_parent_goes_on(file):
    handle = open_handle()
    x = new_bytes(1000)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            opdock.ops.aio_write(handle, x, file)
        except opdock.UnsupportedError as error:
            status = 0 if "fork" in str(error) else 2
        del handle  # must not wait for threads that do not exist in the child
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    opdock.ops.aio_write(handle, x, file)
    assert np.array_equal(np.fromfile(file, np.uint8), x)


HUGE_PAGE = 2 << 20


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("count", [0, 1, PAGE, HUGE_PAGE // 4, HUGE_PAGE // 2 + 1])
def test_zeros_lie_in_pages(library, count):
    x = library.ones(count, dtype=library.float32)
    zeros = opdock.ops.aio_zeros_like(x)
    assert type(zeros) is type(x)
    assert (zeros.shape, zeros.dtype) == (x.shape, x.dtype)
    array = np.asarray(zeros)
    assert array.flags.writeable and not array.any()
    assert count == 0 or array.ctypes.data % (HUGE_PAGE if 4 * count >= HUGE_PAGE else PAGE) == 0
    array[:] = 3  # the memory is writable and not shared
    assert library.all(zeros == 3)


def test_zeros_like_a_transposed_array_are_contiguous():
    zeros = opdock.ops.aio_zeros_like(np.ones((3, 5), np.int16).T)
    assert zeros.shape == (5, 3) and zeros.flags.c_contiguous


def test_zeros_in_memory_of_the_callers_need_its_alignment():
    out = on_pages(PAGE)
    out[:] = 7
    assert opdock.ops.aio_zeros_like(np.empty(PAGE, np.uint8), out=out) is out
    assert not out.any()
    message = "found memory 8 bytes past a multiple of"
    with pytest.raises(opdock.InvalidArgumentError, match=message):
        opdock.ops.aio_zeros_like(np.empty(16, np.uint8), out=on_pages(PAGE)[8:24])


def test_what_lies_in_pages_is_written_and_read(handle, file):
    x = opdock.ops.aio_zeros_like(np.empty(5 * PAGE + 3, np.uint8))
    x[:] = new_bytes(x.size)
    opdock.ops.aio_write(handle, x, file)
    y = opdock.ops.aio_zeros_like(x)
    opdock.ops.aio_read(handle, y, file)
    assert np.array_equal(x, y)
