# SPDX-License-Identifier: Apache-2.0
"""The class of DeepSpeed's module pin_memory: CPU tensors in locked memory, by the C library's
mlock.

Unlike DeepSpeed's, the memory stays as long as a tensor uses it: freeing a tensor unlocks its
memory, and views of it stay valid. A tensor that nobody frees is unlocked with its last view.
"""

import ctypes
import mmap
import os
import resource
import weakref

import torch

from opdock._errors import InvalidArgumentError, OutOfMemoryError
from opdock.compat.deepspeed import _pinned

_libc = ctypes.CDLL(None, use_errno=True)
for _function in (_libc.mlock, _libc.munlock):
    _function.argtypes = ctypes.c_void_p, ctypes.c_size_t


def _unlock(address, size):
    _libc.munlock(address, size)


def _lock(address, size):
    if _libc.mlock(address, size) == 0:
        return
    error = os.strerror(ctypes.get_errno())
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    limit = "no limit" if limit == resource.RLIM_INFINITY else f"a limit of {limit} bytes"
    raise OutOfMemoryError(
        f"new_cpu_locked_tensor(): {size} bytes cannot be locked ({error}): found {limit} for "
        f"locked memory and {_pinned.locked_bytes()} bytes locked by this op, wanted room for "
        "these; raise the limit (ulimit -l, or memlock in /etc/security/limits.conf), or free "
        "other tensors"
    )


class pin_handle:
    """Gives access to the locked memory of this process, which all handles share. Any thread may
    call the methods. A forked child has no locked memory, and finds its parent's to be not."""

    def new_cpu_locked_tensor(self, num_elem, example_tensor):
        """Returns a CPU tensor of num_elem zeros with example_tensor's dtype in locked memory,
        which begins at a page.

        Raises OutOfMemoryError where the memory cannot be locked, with the limit in effect, and
        InvalidArgumentError for a negative number.
        """
        if num_elem < 0:
            raise InvalidArgumentError(
                f"new_cpu_locked_tensor(): argument 'num_elem': found {num_elem}, wanted at least 0"
            )
        size = num_elem * example_tensor.element_size()
        if size == 0:
            return torch.empty(0, dtype=example_tensor.dtype)
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # The tensor must be no view: DeepSpeed frees the memory when nothing leads to it any more,
        # views included, which know their base.
        made = torch.frombuffer(memory, dtype=example_tensor.dtype, count=num_elem)
        address = made.data_ptr()
        _lock(address, size)
        _pinned.add(address, size, lambda: _unlock(address, size))
        weakref.finalize(memory, _pinned.free, address).atexit = False
        return made

    def free_cpu_locked_tensor(self, locked_tensor):
        """Unlocks a tensor's memory; returns whether new_cpu_locked_tensor() made the tensor, and
        nobody has freed it."""
        return _pinned.free(locked_tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address):
        """Does the same for the address where the memory begins."""
        return _pinned.free(address)

    def is_pinned(self, buffer):
        """Returns whether a tensor is in memory that torch has pinned, or all of it in memory that
        this module, or async_io, has allocated for I/O and nobody has freed."""
        return buffer.is_pinned() or _pinned.holds(buffer)
