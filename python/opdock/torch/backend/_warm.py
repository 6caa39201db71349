# SPDX-License-Identifier: Apache-2.0
"""Calls a kernel on a GPU while a graph is compiled, so that what it needs is compiled and loaded
before the first real call, which may lie inside a graph capture."""

import math

import torch
from torch.utils._python_dispatch import _disable_current_modes

from opdock._errors import OpdockError
from opdock.torch.backend import _layout
from opdock.torch.backend._values import hint, rank_of, value

_MAX_BYTES = 2**31  # of one kernel's tensors: larger ones are left to the first call


def warm(kernel):
    """Calls a kernel with tensors of the example's sizes and layouts and of any contents. Does
    nothing if they do not fit or if a capture is under way."""
    tensors = [value(x) for x, _ in kernel.arguments] + [value(x) for x, _ in kernel.results]
    if sum(math.prod(map(hint, x.shape)) * x.itemsize for x in tensors) > _MAX_BYTES:
        return
    if torch.cuda.is_current_stream_capturing():
        return
    with _disable_current_modes(), torch.no_grad():
        call(kernel)


def call(kernel):
    """Calls a kernel with new tensors as the example's."""
    args = []
    rank = len(kernel.region.space)
    for x, drop in kernel.arguments:
        tensor = _tensor(value(x))
        tensor = tensor.unsqueeze(-1) if drop else tensor
        if kernel.order is not None:
            tensor = tensor[(None,) * (rank - rank_of(x)) + (...,)].permute(kernel.order)
        args.append(tensor)
    args += [_number(value(x)) for x in kernel.numbers]
    if kernel.into is None:
        kernel.function(*args)
        return
    pairs = zip(kernel.results, kernel.into, strict=True)
    out = tuple(_memory(x, kind, order, kernel) for (x, kind), order in pairs)
    kernel.function(*args, out=out if len(out) > 1 else out[0])


def warm_all(kernels):
    """Warms kernels whose device is a GPU of this machine."""
    for kernel in kernels:
        if value(kernel.results[0][0]).device.type == "cuda" and torch.cuda.is_available():
            try:
                warm(kernel)
            except (OpdockError, RuntimeError, ValueError):
                continue  # the call itself says what is wrong


def _tensor(like):
    shape, strides = tuple(map(hint, like.shape)), tuple(map(hint, like.stride()))
    return torch.empty_strided(shape, strides, dtype=like.dtype, device=like.device)


def _number(x):
    if isinstance(x, (int, float)):
        return x
    return hint(x) if isinstance(x, torch.SymInt) else float(x.node.hint)


def _memory(x, kind, order, kernel):
    like = value(x)
    sizes = list(map(hint, like.shape))
    if kind == "row" and x not in kernel.region.drops:
        sizes = sizes[:-1]
    if kind == "row":
        return torch.empty(sizes, dtype=like.dtype, device=like.device)
    memory = torch.empty([sizes[d] for d in order], dtype=like.dtype, device=like.device)
    return memory.permute(_layout.inverse(order))
