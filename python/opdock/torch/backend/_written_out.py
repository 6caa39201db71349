# SPDX-License-Identifier: Apache-2.0
"""Finds RMS norms that a model's own code writes out, in a graph of Dynamo, and makes the plugin's
op of each, whose derivative is one kernel as well.

    y = x.float()                                                  # or x itself
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)                                  # the cast, the weight: if there

The plugin rounds once, where this code rounds the norm and then the product.
"""

import operator

import torch
from torch import fx

_NAMES = {
    operator.mul: "mul", operator.add: "add", operator.pow: "pow", operator.truediv: "div",
    torch.mul: "mul", torch.add: "add", torch.pow: "pow", torch.rsqrt: "rsqrt",
    torch.mean: "mean", torch.square: "square",
}  # fmt: skip
_WRITERS = (
    "setitem",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "__setitem__",
)
_CASTS = ("to", "float", "type", "type_as")


def example(node):
    """Returns the fake value of a node of Dynamo's graph, or None."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def _name(node):
    if not isinstance(node, fx.Node):
        return None
    if node.op == "call_method":
        return node.target
    return _NAMES.get(node.target) if node.op == "call_function" else None


def replace(graph):
    """Replaces the norms of a graph. What they leave behind stays: this graph has ops in place,
    which nothing shows to be needed."""
    places = {node: i for i, node in enumerate(graph.nodes)}
    writers = [i for node, i in places.items() if _may_write(node)]
    for node in list(places):
        if _name(node) != "mul" or len(node.args) != 2:
            continue
        for y, scale in (node.args, node.args[::-1]):
            eps = _eps(y, scale)
            if eps is not None:
                # Nothing may write between the first use of the tensor and the end of the norm.
                begin, end = places[y], max(places[user] for user in _tail(node))
                if not any(begin < i <= end for i in writers):
                    _replace(graph, node, y, eps)
                break


def _may_write(node):
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op not in ("call_method", "call_function"):
        return False
    name = name.split(".")[-1].removesuffix(".default")
    is_in_place = name.endswith("_") and not name.endswith("__")
    return is_in_place or name in _WRITERS or "out" in node.kwargs or _is_mutable(node.target)


def _is_mutable(target):
    overloads = [getattr(target, name) for name in getattr(target, "overloads", list)()]
    return any(one._schema.is_mutable for one in (*overloads, target) if hasattr(one, "_schema"))


def _tail(node):
    """Returns the nodes that may be part of a norm that ends with `node`: the cast and the product
    behind it."""
    found = [node]
    for _ in range(2):
        user = _only_user(found[-1])
        if user is None:
            break
        found.append(user)
    return [one for one in found if one.op != "output"]


def _eps(y, scale):
    """Returns eps if `scale` is rsqrt(mean(y * y) + eps) of rows, else None."""
    if _name(scale) != "rsqrt" or not isinstance(y, fx.Node):
        return None
    total = scale.args[0]
    if _name(total) != "add" or len(total.args) != 2 or total.kwargs:
        return None
    mean, eps = total.args if isinstance(total.args[1], float) else total.args[::-1]
    if not isinstance(eps, float) or _name(mean) != "mean":
        return None
    dims = mean.args[1] if len(mean.args) > 1 else mean.kwargs.get("dim")
    keeps = mean.args[2] if len(mean.args) > 2 else mean.kwargs.get("keepdim", False)
    if not keeps or mean.kwargs.get("dtype") is not None:
        return None
    if dims not in (-1, [-1], (-1,)) or not _is_square(mean.args[0], y):
        return None
    return eps


def _is_square(node, y):
    match _name(node):
        case "pow":
            return tuple(node.args) in ((y, 2), (y, 2.0))
        case "mul":
            return tuple(node.args) == (y, y)
        case "square":
            return node.args[0] is y
    return False


def _only_user(node):
    return next(iter(node.users)) if len(node.users) == 1 else None


def _undoes(cast, first):
    """Returns whether the second of two casts gives the dtype that was there before the first one,
    which made it float32."""
    values = example(cast), example(first), example(first.args[0])
    if any(x is None for x in values):
        return False
    return values[0].dtype is values[2].dtype and values[1].dtype is torch.float32


def _is_weight(x, product, of):
    """Returns whether x has a number for each column of rows `of`, and of their dtype."""
    if x is None or product is None or x.ndim != 1 or x.dtype is not of.dtype:
        return False
    return x.is_contiguous() and product.shape == of.shape


def _replace(graph, node, y, eps):
    """Replaces the norm that ends with `node`, and what belongs to it around it."""
    x, result = y, node
    cast = _only_user(node)
    if _name(y) in _CASTS and _name(cast) in _CASTS and _undoes(cast, y):
        x, result = y.args[0], cast
    of = example(x)
    if of is None or example(result) is None or example(result).dtype is not of.dtype:
        return
    floats = (torch.float16, torch.bfloat16, torch.float32)
    if of.dtype not in floats or of.ndim == 0 or of.stride()[-1] != 1:
        return
    if of.device.type not in ("cpu", "cuda") or torch.is_autocast_enabled(of.device.type):
        return
    weight, product = None, _only_user(result)
    if _name(product) == "mul" and len(product.args) == 2:
        other = product.args[0] if product.args[1] is result else product.args[1]
        if other is not result and _is_weight(example(other), example(product), of):
            weight, result = other, product
    with graph.inserting_before(result):
        new = graph.call_function(torch.ops.opdock.rms_norm.default, (x, weight, eps))
    new.meta.update(result.meta)
    result.replace_all_uses_with(new)
