# SPDX-License-Identifier: Apache-2.0
"""Reads graphs of Dynamo, whose nodes call what the program called: functions of torch, operators
of Python and methods."""

import operator

import torch
from torch import fx

_NAMES = {
    operator.mul: "mul", operator.add: "add", operator.pow: "pow", operator.truediv: "div",
    torch.mul: "mul", torch.add: "add", torch.pow: "pow", torch.rsqrt: "rsqrt",
    torch.mean: "mean", torch.square: "square", torch.cat: "cat", torch.neg: "neg",
    operator.neg: "neg", operator.getitem: "getitem", torch.chunk: "chunk",
}  # fmt: skip


def example(node):
    """Returns the fake value of a node of Dynamo's graph, or None."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def name_of(node):
    """Returns the short name of what a node calls, or None."""
    if not isinstance(node, fx.Node):
        return None
    if node.op == "call_method":
        return node.target
    return _NAMES.get(node.target) if node.op == "call_function" else None
