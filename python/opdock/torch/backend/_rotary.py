# SPDX-License-Identifier: Apache-2.0
"""Finds rotary embeddings that are written out in a graph of Dynamo (_written_out.py shows one)."""

import functools

import torch
from torch import fx

from opdock._formula import formula
from opdock.torch._register import register
from opdock.torch.backend._dynamo import example, name_of

_TEXT = """
a, b = chunk(x, 2)
cos_a, cos_b = chunk(cos, 2)
sin_a, sin_b = chunk(sin, 2)
return cat(a * cos_a - b * sin_a, b * cos_b + a * sin_b)
"""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@functools.cache
def _operator():
    schema = "rotate_halves(Tensor x, Tensor cos, Tensor sin) -> Tensor"
    return register(formula(_TEXT, schema), "rotate_halves")


def match(node):
    """Returns (x, cos, sin) if a sum is a rotary embedding of x, else None."""
    for left, right in (node.args, node.args[::-1]):
        if name_of(left) != "mul" or name_of(right) != "mul":
            continue
        for turned, sin in (right.args, right.args[::-1]):
            x = _turned(turned)
            if x is not None and x in left.args:
                cos = left.args[1] if left.args[0] is x else left.args[0]
                return (x, cos, sin) if _fits(node, x, cos, sin) else None
    return None


def _fits(node, x, cos, sin):
    values = [example(one) for one in (node, x, cos, sin)]
    if any(not isinstance(one, torch.Tensor) for one in values):
        return False
    result, first, *tables = values
    if result.shape != first.shape or first.device.type not in ("cpu", "cuda"):
        return False
    if any(one.dtype not in _FLOATS or one.ndim == 0 for one in values):
        return False
    if any(one.requires_grad or one.shape[-1] != first.shape[-1] for one in tables):
        return False
    if torch.is_autocast_enabled(first.device.type):
        return False
    return all(one.device == first.device for one in tables)


def _turned(node):
    """Returns x if a node is cat((-x[..., half:], x[..., :half]), -1), else None."""
    if name_of(node) != "cat" or not isinstance(node.args[0], (tuple, list)):
        return None
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    parts = node.args[0]
    if len(parts) != 2 or name_of(parts[0]) != "neg" or example(node) is None:
        return None
    if dim not in (-1, example(node).ndim - 1):
        return None
    tail, head = _half(parts[0].args[0]), _half(parts[1])
    if tail is None or head is None or tail[0] is not head[0]:
        return None
    return tail[0] if (head[1], tail[1]) == (0, 1) else None


def _half(node):
    """Returns (x, 0 or 1) of a node that is the first or second half of x's last dimension."""
    if name_of(node) != "getitem":
        return None
    source, index = node.args
    if name_of(source) == "chunk" and index in (0, 1):
        x, chunks, *rest = source.args
        dim = rest[0] if rest else source.kwargs.get("dim", 0)
        is_last = example(x) is not None and dim in (-1, example(x).ndim - 1)
        even = is_last and isinstance(example(x).shape[-1], int) and example(x).shape[-1] % 2 == 0
        return (x, index) if even and chunks == 2 else None
    x = example(source)
    if x is None or not isinstance(index, tuple) or x.ndim == 0:
        return None
    *others, part = index
    size = x.shape[-1]
    if others != [Ellipsis] or not isinstance(part, slice) or not isinstance(size, int):
        return None
    limits = (part.start, part.stop, part.step)
    if (
        size % 2
        or any(isinstance(limit, fx.Node) for limit in limits)
        or part.step not in (None, 1)
    ):
        return None
    places = part.indices(size)[:2]
    return {(0, size // 2): (source, 0), (size // 2, size): (source, 1)}.get(places)


def replace(graph, node, x, cos, sin):
    """Puts the formula's op in place of the sum."""
    with graph.inserting_before(node):
        new = graph.call_function(_operator(), (x, cos, sin))
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
