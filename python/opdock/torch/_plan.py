# SPDX-License-Identifier: Apache-2.0
"""Asks the plugin what a call with these sizes returns, and whether it takes these arguments.

A symbolic size counts as its hint, which is the size in the example that is being traced. Reading a
hint adds no guard, so the graph stays one for all sizes.
"""

import torch

from opdock import _opdock
from opdock._names import device, dtype


class Unknown(Exception):
    """A size has no hint, or this machine has no such device: the plugin cannot be asked."""


def _hint(size):
    if isinstance(size, int):
        return size
    node = getattr(size, "node", None)
    if node is None or not node.has_hint():
        raise Unknown
    return int(node.hint)


def _described(value):
    if isinstance(value, torch.Tensor):
        numbers, where = dtype(value.dtype), device(value.device)
        missing = value.device.type == "cuda" and not torch.cuda.is_available()
        if numbers is None or where is None or missing:
            raise Unknown
        shape = tuple(_hint(size) for size in value.shape)
        return numbers, where, shape, tuple(_hint(stride) for stride in value.stride())
    if isinstance(value, (list, tuple)):
        return [_described(one) for one in value]
    return _hint(value) if isinstance(value, torch.SymInt) else value


def plan(function, arguments):
    """Returns [(DLPack's dtype, shape), …] of the new tensors, or None if the plugin cannot be
    asked. Raises what a call with these arguments would raise."""
    try:
        described = [_described(value) for value in arguments]
    except Unknown:
        return None
    return _opdock.plan(function, described)


def hints(shape):
    """Returns the sizes as ints, or None if one has no hint."""
    try:
        return tuple(_hint(size) for size in shape)
    except Unknown:
        return None
