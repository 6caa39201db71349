# SPDX-License-Identifier: Apache-2.0
"""Lets ops write where they wrote before AOTAutograd made their results new tensors.

Two forms arrive: an op that writes into its arguments is auto_functionalized_v2, which copies them
first; and a changed input is the copy_ of its new value at the end of the graph.
"""

import operator

import torch
from torch import fx

from opdock.torch.backend import _layout
from opdock.torch.backend._effects import is_view, readers
from opdock.torch.backend._kernels import Kernel
from opdock.torch.backend._values import shape, value

aten = torch.ops.aten


def undo(graph):
    """Lets functionalised ops write into the tensors that nobody reads later."""
    from torch._higher_order_ops.auto_functionalize import (
        auto_functionalized_v2,
        auto_functionalized_v2_dense,
    )

    nodes = [node for node in graph.nodes if node.target is auto_functionalized_v2]
    for node in nodes:
        order = {one: i for i, one in enumerate(graph.nodes)}
        bases = node.kwargs.get("_all_bases", ())
        count = len(value(node)) - len(bases) if value(node) is not None else None
        clones = []
        for i, base in enumerate(bases):
            copies = [] if count is None else _copies(node, base, count + i)
            if count is None or not _is_free(node, base, copies, order):
                clones.append(i)
                continue
            for copy in copies:
                graph.erase_node(copy)
        with graph.inserting_before(node):
            new = graph.call_function(
                auto_functionalized_v2_dense, (node.args[0], tuple(clones)), dict(node.kwargs)
            )
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _copies(node, base, index):
    """Returns the copies of a new value back into its base."""
    parts = [u for u in node.users if u.target is operator.getitem and u.args[1] == index]
    return [
        user
        for part in parts
        for user in part.users
        if user.target is aten.copy_.default and user.args[0] is base and not user.users
    ]


def _is_free(node, base, copies, order):
    if base.op in ("placeholder", "get_attr"):
        if not copies:
            return False
    elif is_view(base):
        return False
    for user in readers(base):
        if user is not node and user not in copies and order[user] > order[node]:
            return False
    return True


def fold_copies(steps):
    """Lets kernels write results into the inputs to which copy_ would bring them; returns the steps
    without these copies."""
    place = {id(step): i for i, step in enumerate(steps)}
    maker = {}
    for step in steps:
        if isinstance(step, Kernel):
            maker.update({node: (step, kind) for node, kind in step.results})
    gone = set()
    for step in steps:
        if not isinstance(step, fx.Node) or step.target is not aten.copy_.default or step.users:
            continue
        target, source = step.args[:2]
        kernel, kind = maker.get(source, (None, None))
        if kernel is None or kind != "full" or not _may_write(kernel, source, target):
            continue
        if any(
            isinstance(other, fx.Node)
            and other is not step
            and other.op != "output"
            and place[id(other)] > place[id(kernel)]
            and target in other.all_input_nodes
            for other in steps
        ) or any(
            isinstance(other, Kernel)
            and place[id(other)] > place[id(kernel)]
            and any(x is target for x, _ in other.arguments)
            for other in steps
        ):
            continue
        if kernel.into is None:
            kernel.into = [_layout.order_of(node) for node, _ in kernel.results]
            kernel.order = None
        kernel.targets[source] = target
        gone.add(id(step))
    return [step for step in steps if id(step) not in gone]


def _may_write(kernel, source, target):
    if target.op != "placeholder" or source in kernel.targets or target in kernel.targets.values():
        return False
    if kernel.region is None or kernel.region.has_rows or any(is_view(u) for u in target.users):
        return False
    a, b = value(source), value(target)
    same = a.dtype is b.dtype and shape(source) == shape(target) and a.device == b.device
    if not same or not kernel.is_formula:
        return False
    order = _layout.order_of(target)
    return order is not None and order == _layout.order_of(source)
