# SPDX-License-Identifier: Apache-2.0
"""Finds what models' own code writes out in a graph of Dynamo, and makes one op of it, whose
derivative is one kernel as well: RMS norms, which become the plugin's op,

    y = x.float()                                                  # or x itself
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)                                  # the cast, the weight: if there

and rotary embeddings, which become a formula's:

    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)        # or the parts of x.chunk(2, -1)
    return x * cos + turned * sin

Both round once, where this code rounds each step.
"""

import torch
from torch import fx

from opdock.torch.backend import _rotary
from opdock.torch.backend._dynamo import example, name_of

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


def replace(graph, has_rms_norm):
    """Replaces what is written out in a graph. What that leaves behind stays: this graph has ops in
    place, which nothing shows to be needed."""
    places = {node: i for i, node in enumerate(graph.nodes)}
    writers = [i for node, i in places.items() if _may_write(node)]

    def is_untouched(first, last):
        """Returns whether nothing writes between two nodes, so that the op may stand at the end."""
        return not any(places[first] < i <= places[last] for i in writers)

    for node in list(places):
        if name_of(node) == "mul" and len(node.args) == 2 and has_rms_norm:
            for y, scale in (node.args, node.args[::-1]):
                eps = _eps(y, scale)
                if eps is not None:
                    if is_untouched(y, _tail(node)[-1]):
                        _replace(graph, node, y, eps)
                    break
        elif name_of(node) == "add" and len(node.args) == 2 and not node.kwargs:
            found = _rotary.match(node)
            if found is not None and is_untouched(found[0], node):
                _rotary.replace(graph, node, *found)


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
    if name_of(scale) != "rsqrt" or not isinstance(y, fx.Node):
        return None
    total = scale.args[0]
    if name_of(total) != "add" or len(total.args) != 2 or total.kwargs:
        return None
    mean, eps = total.args if isinstance(total.args[1], float) else total.args[::-1]
    if not isinstance(eps, float) or name_of(mean) != "mean":
        return None
    dims = mean.args[1] if len(mean.args) > 1 else mean.kwargs.get("dim")
    keeps = mean.args[2] if len(mean.args) > 2 else mean.kwargs.get("keepdim", False)
    if not keeps or mean.kwargs.get("dtype") is not None:
        return None
    if dims not in (-1, [-1], (-1,)) or not _is_square(mean.args[0], y):
        return None
    return eps


def _is_square(node, y):
    match name_of(node):
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
    if name_of(y) in _CASTS and name_of(cast) in _CASTS and _undoes(cast, y):
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
    if name_of(product) == "mul" and len(product.args) == 2:
        other = product.args[0] if product.args[1] is result else product.args[1]
        if other is not result and _is_weight(example(other), example(product), of):
            weight, result = other, product
    with graph.inserting_before(result):
        new = graph.call_function(torch.ops.opdock.rms_norm.default, (x, weight, eps))
    new.meta.update(result.meta)
    result.replace_all_uses_with(new)
