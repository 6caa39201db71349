# SPDX-License-Identifier: Apache-2.0
"""Says what became of a graph: the kernels, and what stayed torch's."""

import collections
import contextlib
import logging
import types

import torch

from opdock.torch.backend._effects import is_view
from opdock.torch.backend._kernels import Kernel

log = logging.getLogger("opdock.torch.backend")
_listeners = []


def _computes(node):
    if node.op != "call_function" or is_view(node):
        return False
    is_op = not isinstance(node.target, types.BuiltinFunctionType)  # getitem, sums of sizes
    return is_op and node.target is not torch.ops.aten._unsafe_view.default


def _name(node):
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name
    return getattr(node.target, "__name__", str(node.target))


class Compiled:
    """What became of one graph.

    kernels: texts of the formulas, and names of plugins' ops, in the order of their calls. torch:
    {op: how often it is called as it is}, without views. refused: (names of nodes, reason) of the
    regions that could not be formulas. source: the Python function that runs the graph. seconds:
    how long it took to compile it.
    """

    def __init__(self, steps, reasons, source, is_backward, seconds):
        self.is_backward = is_backward
        self.kernels, others = [], []
        for step in steps:
            if isinstance(step, Kernel):
                self.kernels.append(step.label)
            elif _computes(step):
                is_ours = getattr(step.target, "namespace", "") == "opdock"
                (self.kernels if is_ours else others).append(_name(step))
        self.torch = dict(collections.Counter(others))
        self.refused = [([one.node.name for one in region.nodes], why) for region, why in reasons]
        self.source = source
        self.seconds = seconds

    def __str__(self):
        name = "backward" if self.is_backward else "forward"
        lines = [f"{name}: {len(self.kernels)} kernels, made in {self.seconds:.2f} s"]
        for number, text in enumerate(self.kernels):
            lines += [f"  {number}:", *(f"    {line}" for line in text.splitlines())]
        lines += [f"  torch's: {count} x {op}" for op, count in sorted(self.torch.items())]
        lines += [f"  no formula for {', '.join(names)}: {why}" for names, why in self.refused]
        return "\n".join(lines)


def note(compiled):
    """Tells those that listen, and the logger, what became of a graph."""
    for listener in _listeners:
        listener.append(compiled)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s\n%s", compiled, compiled.source)


@contextlib.contextmanager
def listening():
    """Returns a list, to which each graph compiled in the meantime is appended as a Compiled."""
    found = []
    _listeners.append(found)
    try:
        yield found
    finally:
        _listeners.remove(found)
