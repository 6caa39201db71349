# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module async_io, on the plugin of the same name.

Where DeepSpeed returns -1, aborts or prints a message (a missing file, a file that is too short,
memory that it cannot use), an exception is raised here, often opdock.IoError. Transfers may begin
and end at any byte, and the number of bytes need not be a multiple of the number of threads.
"""

import operator
import os
import threading
import weakref

import torch

from opdock import _names, ops
from opdock._errors import ArgumentError, IoError
from opdock.compat.deepspeed import _pinned

_ALIGNMENT = 512


def _locked_tensor(count, dtype):
    model = torch.empty(1, dtype=dtype).expand(count)
    tensor = ops.aio_zeros_like(model)
    address = tensor.data_ptr()
    _pinned.add(address, tensor.numel() * tensor.element_size())
    weakref.finalize(tensor, _pinned.free, address).atexit = False
    return tensor


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
    """Returns the path of a file, which is given by its path or by the number of an open file."""
    if isinstance(file, int) and not isinstance(file, bool):
        return f"/proc/self/fd/{file}"
    if not isinstance(file, (str, bytes, os.PathLike)):
        wanted = "a path (a str, bytes or an os.PathLike) or the number of an open file"
        _refuse(function, "filename", file, wanted)
    return _names.text(function, "filename", os.fsdecode(file), "a path")


def _same_bytes(tensor, path, offset):
    """Returns whether the file has the tensor's bytes from `offset` on, read by Python."""
    view = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    with open(path, "rb") as stream:
        stream.seek(offset)
        return stream.read(view.numel()) == view.numpy().tobytes()


class _Transfer:
    """A submitted transfer, which wait() finishes. buffer: the caller's tensor. memory: the CPU
    tensor that the plugin reads or writes; the buffer itself if that is on the CPU."""

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
    """A set of threads that read and write files in the background. They end with the handle.

    block_size: the bytes of one I/O. queue_depth: the number of I/Os that one thread has in flight.
    single_submit: use one system call for each I/O. overlap_events: submit new I/Os as soon as some
    have ended. intra_op_parallelism: the number of threads. Any thread may call the methods; a
    forked child cannot.
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
        self._handle = ops.aio_open(
            block_size,
            queue_depth,
            threads=threads,
            single_submit=flags[0],
            overlap_events=flags[1],
        )
        self._lock = threading.Lock()  # guards _pending
        self._pending = []

    def get_block_size(self):
        """Returns the bytes of one I/O."""
        return self._settings[0]

    def get_queue_depth(self):
        """Returns the number of I/Os in flight for each thread."""
        return self._settings[1]

    def get_single_submit(self):
        """Returns whether each I/O has its own system call."""
        return self._settings[2]

    def get_overlap_events(self):
        """Returns whether new I/Os are submitted before all earlier ones have ended."""
        return self._settings[3]

    def get_intra_op_parallelism(self):
        """Returns the number of threads. DeepSpeed 0.7.7 calls this get_thread_count()."""
        return self._settings[4]

    get_thread_count = get_intra_op_parallelism

    def get_alignment(self):
        """Returns the bytes that a buffer's size should be a multiple of for speed; any size
        works."""
        return self._settings[4] * _ALIGNMENT

    def read(self, buffer, filename, validate, file_offset=0):
        """Fills `buffer`, a tensor on any device, from the file; returns 0 when it is done.

        filename: a path, or the number of an open file. validate: compare the bytes afterwards.
        file_offset: in bytes. Raises opdock.IoError if the transfer fails or the bytes differ.
        """
        self._submit("read", True, buffer, filename, validate, file_offset)
        self.wait()
        return 0

    def write(self, buffer, filename, validate, file_offset=0):
        """Writes the buffer's bytes to the file; returns 0 when it is done. Arguments and errors
        are those of read()."""
        self._submit("write", False, buffer, filename, validate, file_offset)
        self.wait()
        return 0

    def pread(self, buffer, filename, validate, asynchronous, file_offset=0):
        """Reads as read() does. asynchronous: returns 0 at once, and wait() finishes it; otherwise
        waits, and returns wait()'s result."""
        self._submit("pread", True, buffer, filename, validate, file_offset)
        return 0 if asynchronous else self.wait()

    def pwrite(self, buffer, filename, validate, asynchronous, file_offset=0):
        """Writes as write() does. asynchronous: returns 0 at once, and wait() finishes it;
        otherwise waits, and returns wait()'s result."""
        self._submit("pwrite", False, buffer, filename, validate, file_offset)
        return 0 if asynchronous else self.wait()

    def sync_pread(self, buffer, filename, file_offset=0):
        """Reads and waits; returns wait()'s result."""
        self._submit("sync_pread", True, buffer, filename, False, file_offset)
        return self.wait()

    def sync_pwrite(self, buffer, filename, file_offset=0):
        """Writes and waits; returns wait()'s result."""
        self._submit("sync_pwrite", False, buffer, filename, False, file_offset)
        return self.wait()

    def async_pread(self, buffer, filename, file_offset=0):
        """Starts to read; returns 0 at once. Do not use the buffer before wait()."""
        self._submit("async_pread", True, buffer, filename, False, file_offset)
        return 0

    def async_pwrite(self, buffer, filename, file_offset=0):
        """Starts to write; returns 0 at once. filename: a path, or the number of an open file."""
        self._submit("async_pwrite", False, buffer, filename, False, file_offset)
        return 0

    def wait(self):
        """Waits for all transfers submitted so far; returns their number.

        Raises opdock.IoError for the first transfer that failed, after all have ended.
        """
        with self._lock:
            pending, self._pending = self._pending, []
        ops.aio_wait_all(self._handle)
        for transfer in pending:
            transfer.finish()
        return len(pending)

    def new_cpu_locked_tensor(self, num_elem, example_tensor):
        """Returns a CPU tensor of num_elem zeros with example_tensor's dtype, in memory for direct
        I/O."""
        return _locked_tensor(num_elem, example_tensor.dtype)

    def free_cpu_locked_tensor(self, tensor):
        """Returns whether new_cpu_locked_tensor() made the tensor. Its memory is freed with the
        tensor."""
        return _pinned.free(tensor.data_ptr())

    def is_pinned(self, buffer):
        """Returns whether the plugin transfers the buffer's bytes without an intermediate copy."""
        return buffer.device.type == "cpu" and (_pinned.holds(buffer) or buffer.is_pinned())

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
        submit = ops.aio_submit_read if is_read else ops.aio_submit_write
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
    """Fills `buffer` from the start of the file, by a temporary handle; returns 0."""
    return _once(
        True, buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate
    )


def aio_write(buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate):
    """Writes the bytes of `buffer` to the file, by a temporary handle; returns 0."""
    return _once(
        False, buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate
    )


def deepspeed_memcpy(dest, src):
    """Copies src to dest, two tensors of the same shape; returns 0."""
    with torch.no_grad():
        dest.copy_(src)
    return 0
