# SPDX-License-Identifier: Apache-2.0
"""This process's regions of host memory for fast I/O, which the modules pin_memory and async_io
share: each of them knows the tensors of the other."""

import os

_regions = {}  # address -> (bytes, a function that unlocks the region, or None)


def _forget_locks():
    """Forgets the locked regions in a forked child, whose memory Linux does not lock."""
    for address, (_, unlock) in list(_regions.items()):
        if unlock is not None:
            del _regions[address]


os.register_at_fork(after_in_child=_forget_locks)


def add(address, size, unlock=None):
    """Notes a region of `size` bytes. unlock: is called without arguments when it is freed."""
    _regions[address] = size, unlock


def free(address):
    """Forgets the region that begins at the address, and unlocks it; returns whether there is
    one."""
    _, unlock = found = _regions.pop(address, (None, None))
    if unlock is not None:
        unlock()
    return found[0] is not None


def holds(tensor):
    """Returns whether all bytes of a CPU tensor are in one region, as those of a slice are."""
    if tensor.device.type != "cpu" or not _regions:
        return False
    begin = tensor.data_ptr()
    end = begin + tensor.numel() * tensor.element_size()
    regions = list(_regions.items())  # other threads may change it
    return any(base <= begin and end <= base + size for base, (size, _) in regions)


def locked_bytes():
    """Returns how many bytes the locked regions have."""
    return sum(size for size, unlock in list(_regions.values()) if unlock is not None)
