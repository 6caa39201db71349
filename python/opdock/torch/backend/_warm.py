# SPDX-License-Identifier: Apache-2.0
"""Calls kernels on a GPU while a graph is compiled, so that what they need is compiled and loaded
before the first real call, which may lie inside a graph capture."""

import math

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from opdock._errors import OpdockError
from opdock.torch.backend import _layout
from opdock.torch.backend._kernels import Kernel
from opdock.torch.backend._values import hint, is_tensor, rank_of, value

_MAX_BYTES = 2**31  # of one kernel's tensors: larger ones are left to the first call


def warm(step):
    """Calls a kernel, or the op of a node, with tensors of the example's sizes and layouts and of
    any contents. Does nothing if they do not fit or if a capture is under way."""
    is_kernel = isinstance(step, Kernel)
    nodes = [x for x, _ in step.arguments] if is_kernel else step.all_input_nodes
    tensors = [value(x) for x in nodes if is_tensor(x)]
    if sum(math.prod(map(hint, x.shape)) * x.itemsize for x in tensors) > _MAX_BYTES:
        return
    if torch.cuda.is_current_stream_capturing():
        return
    with _disable_current_modes(), torch.no_grad():
        call(step) if is_kernel else call_op(step)


def call_op(node):
    """Calls the op of a node with new tensors as the example's."""

    def made(x):
        if not isinstance(x, fx.Node):
            return x
        return _tensor(value(x)) if is_tensor(x) else _number(value(x))

    args, keywords = map_arg((node.args, node.kwargs), made)
    node.target(*args, **keywords)


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


def warm_all(steps):
    """Warms kernels and Opdock's ops whose device is a GPU of this machine."""
    for step in steps:
        if isinstance(step, Kernel):
            model = step.results[0][0]
        elif _is_op(step):
            model = next(filter(is_tensor, step.all_input_nodes), None)
        else:
            continue
        if model is not None and value(model).device.type == "cuda" and torch.cuda.is_available():
            try:
                warm(step)
            except (OpdockError, RuntimeError, ValueError):
                continue  # the call itself says what is wrong


def _is_op(node):
    """Returns whether a node is an op of Opdock that may be called more often than the program
    does: it neither writes into arguments nor draws random numbers."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "opdock":
        return False
    return not (target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags)


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
