# SPDX-License-Identifier: Apache-2.0
"""Makes the function that computes a region: a formula's, or a plugin's for a lone op."""

import torch

from opdock import _load, _runtime
from opdock._errors import OpdockError
from opdock._formula import formula
from opdock.torch import _plan
from opdock.torch._shape import TORCH_DTYPES
from opdock.torch.backend import _layout
from opdock.torch.backend._text import text_of
from opdock.torch.backend._values import hint, shape, value

aten = torch.ops.aten

#: Lone ops that plugins compute: overload -> (op, its arguments from the node's).
_PLUGINS = {
    aten._softmax.default: ("softmax", lambda a: (a[0],)),
    aten._log_softmax.default: ("log_softmax", lambda a: (a[0],)),
    aten._softmax_backward_data.default: ("softmax_backward", lambda a: (a[0], a[1])),
    aten._log_softmax_backward_data.default: ("log_softmax_backward", lambda a: (a[0], a[1])),
}


class Kernel:
    """A call of one function in place of a region's nodes.

    results: (node, "full" or "row"). order: the dimensions of all inputs and results as the
    function sees them, or None for their own. into: for each result the order of the memory that is
    allocated for it, or None if the function allocates its results. targets: results that are
    written into inputs instead; `into` is there then.
    """

    def __init__(self, region, function, arguments, label):
        self.region, self.function, self.label = region, function, label
        self.arguments = arguments  # (node, whether as a drop)
        self.numbers = []
        self.results = region.results
        self.order = None
        self.into = None
        self.targets = {}  # node of a result -> the node of the input that gets it
        self.is_formula = not label.startswith("opdock::")


def kernel_of(region):
    """Returns the Kernel of a region, or the reason, a str, why there is none."""
    if len(region.nodes) == 1:
        found = _plugin(region.nodes[0], region)
        if found is not None:
            return found
    schema, text = text_of(region)
    try:
        function = formula(text, schema).function
        kernel = Kernel(region, function, list(region.inputs), text)
        kernel.numbers = list(region.numbers)
        reason = _check(region, function)
        return reason if reason is not None else _laid_out(kernel)
    except (OpdockError, ValueError) as error:
        return str(error)


def _plugin(one, region):
    row = _PLUGINS.get(one.node.target)
    name, choose = row if row is not None else (None, None)
    if row is None or name not in _load.op_names():
        return None
    tensors = choose(one.args)
    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for x in (*tensors, one.node):
        if value(x).dtype not in floats or value(x).dtype is not value(one.node).dtype:
            return None
        if not _layout.is_contiguous(x):
            return None
    return Kernel(region, _runtime.function(name), [(x, False) for x in tensors], f"opdock::{name}")


def _check(region, function):
    """Compares what the function plans with the fake results; returns a reason, or None."""
    values = [value(x).unsqueeze(-1) if drop else value(x) for x, drop in region.inputs]
    values += [hint(value(x)) if isinstance(value(x), torch.SymInt) else _number(value(x))
               for x in region.numbers]  # fmt: skip
    planned = _plan.plan(function, values)
    if planned is None:
        return None
    for (dtype, sizes), (node, kind) in zip(planned, region.results, strict=True):
        wanted = tuple(hint(size) for size in value(node).shape)
        if kind == "row" and node not in region.drops:
            wanted = wanted[:-1]
        if (TORCH_DTYPES[dtype], tuple(sizes)) != (value(node).dtype, wanted):
            return (
                f"found {TORCH_DTYPES[dtype]} {tuple(sizes)} planned for {node.name}, wanted "
                f"{value(node).dtype} {wanted}"
            )
    return None


def _number(number):
    return float(number.node.hint) if isinstance(number, torch.SymFloat) else number


def _laid_out(kernel):
    """Gives the kernel the layout of its results; returns it, or a reason."""
    region = kernel.region
    orders = []
    for node, _ in region.results:
        order = _layout.order_of(node)
        if order is None:
            return f"found gaps in the memory of {node.name}, wanted none"
        orders.append(order)
    if all(map(_layout.is_plain, orders)):
        return kernel
    rank = len(region.space)
    same = set(orders)
    is_full = all(kind == "full" for _, kind in region.results)
    if is_full and len(same) == 1 and not (region.has_rows and orders[0][-1] != rank - 1):
        kernel.order = orders[0]
        return kernel
    if any(kind == "row" and not _layout.is_plain(order)
           for order, (_, kind) in zip(orders, region.results, strict=True)):  # fmt: skip
        return "found numbers of rows in another order than the rows, wanted the same"
    kernel.into = orders
    return kernel


def sizes_from(region):
    """Returns for each dimension of the region's space where its size stands: (index of an input,
    dimension), or None for 1."""
    found = []
    for d, size in enumerate(region.space):
        place = None
        for i, (x, drop) in enumerate(region.inputs):
            sizes = (*shape(x), 1) if drop else shape(x)
            at = d - (len(region.space) - len(sizes))
            if at >= 0 and size != 1 and sizes[at] == size:
                place = (i, at)
                break
        found.append(place)
    return found
