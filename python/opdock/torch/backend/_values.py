# SPDX-License-Identifier: Apache-2.0
"""What is known of a node's value while a graph is compiled: its fake tensor, dtype and sizes.

Sizes may be symbolic. They are compared as expressions, which adds no guard, so that one graph
serves all sizes.
"""

import weakref

import torch
from torch import fx

#: Dtypes that formulas have, and their names there.
DTYPES = {
    torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16",
    torch.int32: "int32", torch.int64: "int64", torch.float16: "float16",
    torch.bfloat16: "bfloat16", torch.float32: "float32", torch.float64: "float64",
}  # fmt: skip


def value(node):
    """Returns the fake value of a node, or None."""
    return node.meta.get("val") if isinstance(node, fx.Node) else None


def is_tensor(node):
    return isinstance(value(node), torch.Tensor)


def is_number(node):
    """Returns whether a node is a number that is known at run time only."""
    return isinstance(value(node), (torch.SymInt, torch.SymFloat, int, float)) and not isinstance(
        value(node), bool
    )


def rank_of(node):
    return value(node).ndim


_known_sizes = weakref.WeakKeyDictionary()  # ShapeEnv -> (expression -> its key, hint -> sizes)


def size_key(size):
    """Returns what is equal for equal sizes: an int, or a symbolic expression. Of expressions that
    come to the same, such as s and (s * s) // s, all have the key of the first."""
    if isinstance(size, int):
        return size
    node = size.node
    keys, sizes = _known_sizes.setdefault(node.shape_env, ({}, {}))
    found = keys.get(node.expr)
    if found is None:
        found = keys[node.expr] = _first_equal(size, sizes)
    return found


def _first_equal(size, sizes):
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not size.node.has_hint():
        return size.node.expr
    others = sizes.setdefault(int(size.node.hint), [])
    for other in others:
        if statically_known_true(size == other):
            return other.node.expr
    others.append(size)
    return size.node.expr


def shape(node):
    """Returns the sizes of a tensor as keys, which can be compared and hashed."""
    return tuple(map(size_key, value(node).shape))


def hint(size):
    """Returns a size of the example, without a guard. Raises ValueError if there is none."""
    if isinstance(size, int):
        return size
    if not size.node.has_hint():
        raise ValueError(f"found the size {size} without an example")
    return int(size.node.hint)


def broadcasts(small, large):
    """Returns whether a tensor of the sizes `small` can be read as one of the sizes `large`."""
    if len(small) > len(large):
        return False
    return all(a == b or a == 1 for a, b in zip(reversed(small), reversed(large), strict=False))


def arguments(node):
    """Returns all arguments of a node's op in the order of its schema, with their defaults."""
    params = node.target._schema.arguments
    found = list(node.args)
    for param in params[len(found) :]:
        if param.name in node.kwargs:
            found.append(node.kwargs[param.name])
        else:
            found.append(param.default_value if param.has_default_value() else None)
    return found
