# SPDX-License-Identifier: Apache-2.0
"""Writes the function that runs a graph: calls of kernels, and of torch for all other nodes.

The function takes its arguments in a list, which it empties, and forgets each value after its last
use, so that memory is free as early as in a program without a graph.
"""

import math
import operator

import torch
from torch import fx

from opdock.torch import _register
from opdock.torch.backend import _layout
from opdock.torch.backend._effects import has_effect
from opdock.torch.backend._kernels import Kernel, sizes_from
from opdock.torch.backend._values import rank_of, value

aten = torch.ops.aten

#: Calls of torch that take less time than those of the operators: torch parses their arguments
#: without a schema. {0}, {1}, … are the node's arguments.
_FAST = {
    aten.mm.default: "mm({0}, {1})",
    aten.bmm.default: "bmm({0}, {1})",
    aten.addmm.default: "addmm({0}, {1}, {2})",
    aten.view.default: "{0}.view({1})",
    aten._unsafe_view.default: "{0}.view({1})",
    aten.permute.default: "{0}.permute({1})",
    aten.t.default: "{0}.t()",
    aten.transpose.int: "{0}.transpose({1}, {2})",
    aten.unsqueeze.default: "{0}.unsqueeze({1})",
    aten.squeeze.dim: "{0}.squeeze({1})",
    aten.expand.default: "{0}.expand({1})",
    aten.detach.default: "{0}.detach()",
    aten.select.int: "{0}.select({1}, {2})",
    aten.embedding.default: "embedding({0}, {1})",
    aten.sum.dim_IntList: "{0}.sum({1}, {2})",
}
_PLAIN = (type(None), bool, int, str, float)
_LIST = fx.immutable_collections.immutable_list


def write(steps, graph_module):
    """Returns the function that runs these steps of a graph, and its source. steps: nodes and
    Kernels, in order."""
    writer = _Writer(graph_module)
    return writer.write(steps)


def _reads(step):
    """Returns the nodes that a step reads."""
    if isinstance(step, Kernel):
        return [*(x for x, _ in step.arguments), *step.numbers, *step.targets.values()]
    return step.all_input_nodes


def _makes(step):
    return [x for x, _ in step.results] if isinstance(step, Kernel) else [step]


def needed(steps):
    """Returns the steps without those whose values nobody reads."""
    read, kept = set(), []
    for step in reversed(steps):
        is_node = isinstance(step, fx.Node)
        keeps = is_node and (step.op in ("placeholder", "output") or has_effect(step))
        keeps |= isinstance(step, Kernel) and bool(step.targets)
        if keeps or any(x in read for x in _makes(step)):
            kept.append(step)
            read.update(_reads(step))
    return kept[::-1]


class _Writer:
    def __init__(self, graph_module):
        self.module = graph_module
        self.names = {}
        self.lines = []
        self.namespace = {name: getattr(torch, name) for name in ("mm", "bmm", "addmm", "empty")}
        self.namespace.update(embedding=aten.embedding.default._op, inf=math.inf, nan=math.nan)
        self.constants = {}  # id of an object -> its name

    def write(self, steps):
        last = {}
        for i, step in enumerate(steps):
            for x in (*_reads(step), *_makes(step)):
                last[x] = i
        ends = {}
        for x, i in last.items():
            ends.setdefault(i, []).append(x)
        inputs = [step for step in steps if isinstance(step, fx.Node) and step.op == "placeholder"]
        names = ", ".join(map(self._name, inputs))
        self.lines.append(f"{names}{',' if len(inputs) == 1 else ''} = args" if inputs else "pass")
        self.lines.append("args.clear()")
        for i, step in enumerate(steps):
            if isinstance(step, Kernel):
                self._kernel(step)
            elif step.op == "output":
                self.lines.append(f"return {self._text(step.args[0])}")
                break
            elif step.op != "placeholder":
                self._node(step)
            gone = [self.names[x] for x in ends.get(i, ()) if x in self.names]
            if gone:
                self.lines.append(f"del {', '.join(gone)}")
        source = "def call(args):\n" + "".join(f"    {line}\n" for line in self.lines)
        exec(compile(source, "<opdock backend>", "exec"), self.namespace)
        function = self.namespace["call"]
        function._boxed_call = True
        return function, source

    def _name(self, node):
        name = self.names.get(node)
        if name is None:
            name = self.names[node] = f"x{len(self.names)}"
        return name

    def _constant(self, x, name="c"):
        key = self.constants.get(id(x))
        if key is None:
            key = self.constants[id(x)] = f"{name}{len(self.constants)}"
            self.namespace[key] = x
        return key

    def _text(self, x):
        """Returns an argument of a node as Python."""
        if isinstance(x, fx.Node):
            if x.op == "get_attr":
                return self._constant(_attribute(self.module, x.target))
            return self._name(x)
        if type(x) in (list, tuple, _LIST):
            parts = [self._text(one) for one in x]
            if isinstance(x, tuple):
                return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
            return f"[{', '.join(parts)}]"
        if isinstance(x, dict):
            return "{" + ", ".join(f"{key!r}: {self._text(one)}" for key, one in x.items()) + "}"
        if isinstance(x, slice):
            return f"slice({self._text(x.start)}, {self._text(x.stop)}, {self._text(x.step)})"
        if type(x) in _PLAIN:
            return repr(x)
        return self._constant(x)

    def _node(self, node):
        if node.op == "get_attr":
            return
        args = [self._text(x) for x in node.args]
        keywords = [f"{key}={self._text(x)}" for key, x in node.kwargs.items()]
        fast = _FAST.get(node.target)
        count = fast.count("{") if fast else 0
        if node.target is aten.sym_size.int:
            text = f"{args[0]}.shape[{args[1]}]"
        elif node.target is operator.getitem:
            text = f"{args[0]}[{args[1]}]"
        elif fast and not keywords and len(args) == count:
            text = fast.format(*args)
        elif node.op == "call_function":
            text = self._call(node.target, args, keywords)
        elif node.op == "call_method":
            text = f"{args[0]}.{node.target}({', '.join([*args[1:], *keywords])})"
        else:
            module = self._constant(_attribute(self.module, node.target), "m")
            text = f"{module}({', '.join([*args, *keywords])})"
        self.lines.append(f"{self._name(node)} = {text}")

    def _call(self, target, args, keywords):
        if isinstance(target, torch._ops.OpOverload):
            op = _register.operator_of(target)
            if op is not None and op.is_lossless:
                # The op itself: the operator would go through the dispatcher, and back to Python.
                named = zip(op.names[op.num_positional :], args[op.num_positional :], strict=False)
                keywords = [*(f"{name}={text}" for name, text in named), *keywords]
                args, target = args[: op.num_positional], op.function
            else:
                target = target._op
        return f"{self._constant(target, 'f')}({', '.join([*args, *keywords])})"

    def _kernel(self, kernel):
        region, order = kernel.region, kernel.order
        rank = len(region.space)
        args = []
        for x, drop in kernel.arguments:
            text = f"{self._name(x)}.unsqueeze(-1)" if drop else self._name(x)
            if order is not None:
                missing = rank - rank_of(x) - drop
                text = f"{text}[{'None, ' * missing}...]" if missing else text
                text = f"{text}.permute({order})"
            args.append(text)
        args += [self._name(x) for x in kernel.numbers]
        keyword = self._memory(kernel) if kernel.into is not None else ""
        names = [self._name(x) for x, _ in kernel.results]
        function = self._constant(kernel.function, "k")
        self.lines.append(f"{', '.join(names)} = {function}({', '.join(args)}{keyword})")
        for (node, kind), name in zip(kernel.results, names, strict=True):
            if kind == "row" and node not in region.drops:
                self.lines.append(f"{name} = {name}.unsqueeze(-1)")
            elif order is not None:
                self.lines.append(f"{name} = {name}.permute({_layout.inverse(order)})")

    def _memory(self, kernel):
        """Writes the allocation of results whose layouts differ; returns the keyword out."""
        places = sizes_from(kernel.region)
        sizes = []
        for place in places:
            if place is None:
                sizes.append("1")
            else:
                x, drop = kernel.arguments[place[0]]
                sizes.append(f"{self._name(x)}.shape[{place[1]}]")
        device = self._constant(value(kernel.arguments[0][0]).device)
        out = []
        for (node, kind), own in zip(kernel.results, kernel.into, strict=True):
            if node in kernel.targets:
                out.append(self._name(kernel.targets[node]))
                continue
            dtype = self._constant(value(node).dtype)
            wanted = [sizes[d] for d in (own if kind == "full" else range(len(sizes) - 1))]
            shape = f"({', '.join(wanted)}{',' if len(wanted) == 1 else ''})"
            text = f"empty({shape}, dtype={dtype}, device={device})"
            if kind == "full" and not _layout.is_plain(own):
                text += f".permute({_layout.inverse(own)})"
            out.append(text)
        return f", out=({', '.join(out)})" if len(out) > 1 else f", out={out[0]}"


def _attribute(module, target):
    for part in target.split("."):
        module = getattr(module, part)
    return module
