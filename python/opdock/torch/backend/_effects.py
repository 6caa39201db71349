# SPDX-License-Identifier: Apache-2.0
"""Order that a graph's edges do not show: of random numbers, of communication and of writes."""

import operator

import torch
from torch import fx


def has_effect(node):
    """Returns whether a node must stay in its place among the others of which this is true."""
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator) or _is_in_place(node):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return True
    return target.namespace in ("_c10d_functional", "c10d_functional", "c10d")


def written(node):
    """Returns the nodes whose memory a node writes."""
    if node.op != "call_function":
        return []
    if _is_in_place(node):
        bases = node.kwargs.get("_all_bases", ())
        return [x for i, x in enumerate(bases) if i not in node.args[1]]
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    found = []
    for place, param in enumerate(node.target._schema.arguments):
        if param.alias_info is not None and param.alias_info.is_write:
            x = node.args[place] if place < len(node.args) else node.kwargs.get(param.name)
            found += [y for y in (x if isinstance(x, (list, tuple)) else [x])
                      if isinstance(y, fx.Node)]  # fmt: skip
    return found


def _is_in_place(node):
    """Returns whether a node is one of _in_place.py, of which args[1] are the copied bases."""
    return getattr(node.target, "__name__", "") == "auto_functionalized_v2_dense"


def readers(node):
    """Returns the users of a node and of its views."""
    found = []
    for user in node.users:
        found.append(user)
        if is_view(user):
            found += readers(user)
    return found


def is_view(node):
    """Returns whether a node's result may share the memory of its first argument."""
    if node.target is operator.getitem:
        return is_view(node.args[0])  # of split and its like
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    returns = node.target._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def dependencies(graph):
    """Returns {node: nodes that have to come behind it} of what is not an edge."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    after = {}
    last = None
    for node in order:
        if has_effect(node):
            if last is not None:
                after.setdefault(last, []).append(node)
            last = node
        for x in written(node):
            for reader in readers(x):
                if reader.op == "output" or reader is node:
                    continue
                first, second = sorted((reader, node), key=order.get)
                after.setdefault(first, []).append(second)
    return after
