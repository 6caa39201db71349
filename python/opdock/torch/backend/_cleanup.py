# SPDX-License-Identifier: Apache-2.0
"""Removes views that undo each other from a graph: each costs a call, which takes as long as a
small kernel."""

import torch

from opdock.torch.backend._values import rank_of, shape, value

aten = torch.ops.aten


def _order(node):
    """Returns the dimensions of a transposing view, or None for another node."""
    if node.op != "call_function":
        return None
    rank = rank_of(node) if isinstance(value(node), torch.Tensor) else 0
    if node.target is aten.t.default:
        return (1, 0) if rank == 2 else (0,)[:rank]
    if node.target is aten.permute.default:
        return tuple(d % rank for d in node.args[1]) if rank else ()
    if node.target is aten.transpose.int and rank:
        order = list(range(rank))
        a, b = (d % rank for d in node.args[1:3])
        order[a], order[b] = order[b], order[a]
        return tuple(order)
    return None


def clean(graph):
    """Removes transpositions of transpositions that come to nothing, and views that change none of
    the sizes."""
    for node in list(graph.nodes):
        order = _order(node)
        if order is not None:
            inner = node.args[0]
            first = _order(inner)
            if first is not None and tuple(first[d] for d in order) == tuple(range(len(order))):
                _replace(node, inner.args[0])
        elif node.target in (aten.view.default, aten._unsafe_view.default):
            inner = node.args[0]
            if inner.target in (aten.view.default, aten._unsafe_view.default):
                node.args = (inner.args[0], node.args[1])
                inner = inner.args[0]
            if shape(inner) == shape(node):
                _replace(node, inner)
    graph.eliminate_dead_code()


def _replace(node, other):
    """Replaces a node unless it is a result: results that are inputs would be one tensor then."""
    if any(user.op == "output" for user in node.users):
        return
    if value(node).stride() == value(other).stride():
        node.replace_all_uses_with(other)
