# SPDX-License-Identifier: Apache-2.0
"""A pass over inductor's graphs that puts formulas in place of rows: opdock.torch.inductor_pass().

inductor writes norms, softmax and losses as their parts before the pass sees them. A region (see
_partition.py) is replaced if it reduces rows and gives rows: such a kernel reads its rows once.
What is elementwise only, or only reduces, stays inductor's.
"""

import hashlib
import operator

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

import opdock
from opdock.torch._register import register
from opdock.torch.backend._kernels import Kernel, kernel_of
from opdock.torch.backend._partition import Partition, schedule
from opdock.torch.backend._text import text_of
from opdock.torch.backend._values import value

aten = torch.ops.aten


class RowPass(CustomGraphPass):
    """The pass; inductor calls it with each graph."""

    def __call__(self, graph):
        _split_var_mean(graph)
        kernels = {}
        for region in Partition(graph).regions(over_readers=False):
            if _gives_rows(region):
                kernel = kernel_of(region)
                if isinstance(kernel, Kernel) and kernel.order is None and kernel.into is None:
                    kernels[id(region)] = kernel
        regions = [kernel.region for kernel in kernels.values()]
        anchor, replaced = None, {}
        for step in schedule(graph, regions):
            kernel = kernels.get(id(step))
            if kernel is not None:
                anchor = _insert(graph, kernel, anchor, replaced)
            else:
                if anchor is not None:
                    anchor.append(step)
                anchor = step
        for region in regions:
            for one in reversed(region.nodes):
                graph.erase_node(one.node)
        graph.eliminate_dead_code()
        graph.lint()

    def uuid(self):
        """Returns the key of inductor's cache: what the pass makes depends on nothing else."""
        return f"opdock {opdock.__version__} rows 1"


def _gives_rows(region):
    reduces = any(one.kind in ("reduce", "row") for one in region.nodes)
    return reduces and any(kind == "full" for _, kind in region.results)


def _split_var_mean(graph):
    """Writes var_mean as var and mean: formulas have ops of one result."""
    for node in list(graph.nodes):
        if node.target is not aten.var_mean.correction:
            continue
        keep = node.kwargs.get("keepdim", False)
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        for user in list(node.users):
            with graph.inserting_before(user):
                if user.args[1] == 0:
                    new = graph.call_function(
                        aten.var.correction, (node.args[0], dims),
                        {"correction": node.kwargs.get("correction"), "keepdim": keep},
                    )  # fmt: skip
                else:
                    new = graph.call_function(aten.mean.dim, (node.args[0], dims, keep))
            new.meta.update(user.meta)
            user.replace_all_uses_with(new)
            graph.erase_node(user)
        graph.erase_node(node)


def _insert(graph, kernel, anchor, replaced):
    """Inserts the call of a kernel behind `anchor`, lets all others read its results, and returns
    the last new node. replaced: node -> new node, of the results of all kernels so far."""

    def call(target, *args):
        nonlocal anchor
        with graph.inserting_after(anchor):
            anchor = graph.call_function(target, args)
        values = [value(x) if isinstance(x, fx.Node) else x for x in args]
        anchor.meta["val"] = target(*values)
        return anchor

    schema, text = text_of(kernel.region)
    name = "rows_" + hashlib.sha256(f"{schema}\n{text}".encode()).hexdigest()[:16]
    op = register(opdock.formula(text, schema), name)
    region = kernel.region
    inputs = [(replaced.get(x, x), drop) for x, drop in region.inputs]
    args = [call(aten.unsqueeze.default, x, -1) if drop else x for x, drop in inputs]
    found = call(op, *args, *region.numbers)
    for place, (node, kind) in enumerate(region.results):
        new = found if len(region.results) == 1 else call(operator.getitem, found, place)
        if kind == "row" and node not in region.drops:
            new = call(aten.unsqueeze.default, new, -1)
        new.meta.update({**node.meta, "val": new.meta["val"]})
        replaced[node] = new
        own = {one.node for one in region.nodes}
        node.replace_all_uses_with(new, delete_user_cb=lambda user, own=own: user not in own)
    return anchor
