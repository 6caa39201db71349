# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module async_io, by the plugin of the same name.

What DeepSpeed answers by -1, an abort or a message (no file, a file that is too short, memory that
it cannot use) is an exception here, opdock.IoError among them. Files begin and end at any byte, and
a number of bytes need not be a multiple of the threads.
"""

import operator
import os
import threading
import weakref

import torch

import opdock
from opdock import _names
from opdock._errors import ArgumentError, IoError

_locked = {}  # address -> bytes, of living tensors of new_cpu_locked_tensor()
_ALIGNMENT = 512


def _forget(address):
    _locked.pop(address, None)


def _locked_tensor(count, dtype):
    model = torch.empty(1, dtype=dtype).expand(count)
    tensor = opdock.ops.aio_zeros_like(model)
    address = tensor.data_ptr()
    _locked[address] = tensor.numel() * tensor.element_size()
    weakref.finalize(tensor, _forget, address)
    return tensor


def _is_locked(tensor):
    address = tensor.data_ptr()
    return any(begin <= address < begin + size for begin, size in list(_locked.items()))


def _refuse(function, argument, found, wanted):
    raise ArgumentError(
        f"{function}(): argument {argument!r}: found an object of type {type(found).__name__}, "
        f"wanted {wanted}"
    )


def _whole(function, argument, number):
    try:
        return operator.index(number)
    except TypeError:
        _refuse(function, argument, number, "a whole number")


def _path(function, file):
    """A file's name; of an open one by its number."""
    if isinstance(file, int) and not isinstance(file, bool):
        return f"/proc/self/fd/{file}"
    if not isinstance(file, (str, bytes, os.PathLike)):
        wanted = "a path (a str, bytes or an os.PathLike) or the number of an open file"
        _refuse(function, "filename", file, wanted)
    return _names.text(function, "filename", os.fsdecode(file), "a path")


def _same_bytes(tensor, path, offset):
    """Whether the file has the tensor's bytes from `offset` on, as Python reads it."""
    view = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    with open(path, "rb") as stream:
        stream.seek(offset)
        return stream.read(view.numel()) == view.numpy().tobytes()


class _Transfer:
    """A transfer that wait() has to finish: what the plugin reads or writes, and what for."""

    def __init__(self, is_read, buffer, memory, path, offset, validate):
        self.is_read, self.buffer, self.memory = is_read, buffer, memory
        self.path, self.offset, self.validate = path, offset, validate

    def finish(self):
        if self.is_read and self.memory is not self.buffer:
            with torch.no_grad():
                self.buffer.copy_(self.memory)
        if self.validate and not _same_bytes(self.memory, self.path, self.offset):
            raise IoError(
                f"{self.path}: found other bytes than the buffer's from byte {self.offset} "
                "on, wanted the same; the file was changed meanwhile, or the storage is faulty"
            )


class aio_handle:
    """Threads that read and write files in the background, and end with the handle.

    block_size: bytes of one I/O. queue_depth: I/Os that one thread has in flight. single_submit:
    one system call for each. overlap_events: new I/Os are handed over as soon as some have ended.
    intra_op_parallelism: threads. Any thread may call; a forked child cannot.
    """

    def __init__(
        self,
        block_size=1024 * 1024,
        queue_depth=128,
        single_submit=False,
        overlap_events=False,
        intra_op_parallelism=1,
    ):
        block_size = _whole("aio_handle", "block_size", block_size)
        queue_depth = _whole("aio_handle", "queue_depth", queue_depth)
        threads = _whole("aio_handle", "intra_op_parallelism", intra_op_parallelism)
        flags = bool(single_submit), bool(overlap_events)
        self._settings = (block_size, queue_depth, *flags, threads)
        self._handle = opdock.ops.aio_open(
            block_size,
            queue_depth,
            threads=threads,
            single_submit=flags[0],
            overlap_events=flags[1],
        )
        self._lock = threading.Lock()  # of _pending
        self._pending = []

    def get_block_size(self):
        """Bytes of one I/O, as given."""
        return self._settings[0]

    def get_queue_depth(self):
        """I/Os in flight for each thread."""
        return self._settings[1]

    def get_single_submit(self):
        """Whether each I/O has a system call of its own."""
        return self._settings[2]

    def get_overlap_events(self):
        """Whether new I/Os follow before all before them have ended."""
        return self._settings[3]

    def get_intra_op_parallelism(self):
        """The number of threads; DeepSpeed 0.7.7 calls it get_thread_count()."""
        return self._settings[4]

    get_thread_count = get_intra_op_parallelism

    def get_alignment(self):
        """Bytes of which a buffer's size is best a multiple; any other works too."""
        return self._settings[4] * _ALIGNMENT

    def read(self, buffer, filename, validate, file_offset=0):
        """Reads as many bytes as `buffer` has into it. Returns 0 when they are there."""
        self._submit("read", True, buffer, filename, validate, file_offset)
        self.wait()
        return 0

    def write(self, buffer, filename, validate, file_offset=0):
        """Writes the buffer's bytes. Returns 0 when the file has them."""
        self._submit("write", False, buffer, filename, validate, file_offset)
        self.wait()
        return 0

    def pread(self, buffer, filename, validate, asynchronous, file_offset=0):
        """As read(); asynchronous: returns 0 at once, wait() waits. Else what wait() returns."""
        self._submit("pread", True, buffer, filename, validate, file_offset)
        return 0 if asynchronous else self.wait()

    def pwrite(self, buffer, filename, validate, asynchronous, file_offset=0):
        """As write(); asynchronous: returns 0 at once, wait() waits. Else what wait() returns."""
        self._submit("pwrite", False, buffer, filename, validate, file_offset)
        return 0 if asynchronous else self.wait()

    def sync_pread(self, buffer, filename, file_offset=0):
        """pread() that waits."""
        self._submit("sync_pread", True, buffer, filename, False, file_offset)
        return self.wait()

    def sync_pwrite(self, buffer, filename, file_offset=0):
        """pwrite() that waits."""
        self._submit("sync_pwrite", False, buffer, filename, False, file_offset)
        return self.wait()

    def async_pread(self, buffer, filename, file_offset=0):
        """pread() that does not wait. The buffer is not to be used before wait()."""
        self._submit("async_pread", True, buffer, filename, False, file_offset)
        return 0

    def async_pwrite(self, buffer, filename, file_offset=0):
        """pwrite() that does not wait. filename: also the number of an open file."""
        self._submit("async_pwrite", False, buffer, filename, False, file_offset)
        return 0

    def wait(self):
        """Waits for everything submitted before, and returns the number of transfers; 0 for none.

        Raises opdock.IoError for the first of those that failed, after all have ended.
        """
        with self._lock:
            pending, self._pending = self._pending, []
        opdock.ops.aio_wait_all(self._handle)
        for transfer in pending:
            transfer.finish()
        return len(pending)

    def new_cpu_locked_tensor(self, num_elem, example_tensor):
        """A CPU tensor of num_elem zeros of the example's dtype, in memory for direct I/O."""
        return _locked_tensor(num_elem, example_tensor.dtype)

    def free_cpu_locked_tensor(self, tensor):
        """Whether the tensor is one of new_cpu_locked_tensor(); its memory goes with the tensor."""
        return _locked.pop(tensor.data_ptr(), None) is not None

    def is_pinned(self, buffer):
        """Whether the plugin moves the buffer's bytes without a copy in between."""
        return buffer.device.type == "cpu" and (_is_locked(buffer) or buffer.is_pinned())

    def _submit(self, function, is_read, buffer, file, validate, offset):
        if not isinstance(buffer, torch.Tensor):
            _refuse(function, "buffer", buffer, "a torch.Tensor")
        path, offset = _path(function, file), _whole(function, "file_offset", offset)
        memory = buffer
        if buffer.device.type != "cpu":
            memory = _locked_tensor(buffer.numel(), buffer.dtype).view(buffer.shape)
            if not is_read:
                memory.copy_(buffer.detach())
        transfer = _Transfer(is_read, buffer, memory, path, offset, bool(validate))
        submit = opdock.ops.aio_submit_read if is_read else opdock.ops.aio_submit_write
        with self._lock:
            submit(self._handle, memory.detach(), path, offset)
            self._pending.append(transfer)


def _once(
    is_read,
    buffer,
    filename,
    block_size,
    queue_depth,
    single_submit,
    overlap_events,
    validate,
):
    handle = aio_handle(block_size, queue_depth, single_submit, overlap_events, 1)
    return (handle.read if is_read else handle.write)(buffer, filename, validate)


def aio_read(buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate):
    """Reads the file into `buffer`, of its size at most, by a handle of its own. Returns 0."""
    return _once(
        True, buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate
    )


def aio_write(buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate):
    """Writes the bytes of `buffer` into the file by a handle of its own. Returns 0."""
    return _once(
        False, buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate
    )


def deepspeed_memcpy(dest, src):
    """Copies src to dest, tensors of the same shape. Returns 0."""
    with torch.no_grad():
        dest.copy_(src)
    return 0
