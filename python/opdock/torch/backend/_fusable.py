# SPDX-License-Identifier: Apache-2.0
"""Says of each node of a graph whether a formula can compute it, and with which text."""

import math

import torch
from torch import fx

from opdock.torch.backend import _pointwise, _rows
from opdock.torch.backend._values import DTYPES, arguments, is_number, is_tensor, rank_of, value

aten, prims = torch.ops.aten, torch.ops.prims

#: Elementwise ops that are worth a kernel of their own also without neighbours: plugins have them.
_WHOLE = {aten.gelu.default, aten.gelu_backward.default, aten.silu_backward.default}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Fusable:
    """A node that a formula can compute.

    kind: "point" (an element of the result for an element of each operand), "reduce" (a number for
    a row), "row" (a row for a row), "alias" (the operand itself, broadcast), "unsqueeze" and
    "squeeze" (of numbers of rows). text: with {0}, {1}, … for args; rule: _pointwise's.
    """

    __slots__ = ("args", "keepdim", "kind", "node", "operands", "rule", "text", "weight")

    def __init__(self, node, kind, args, text="{0}", rule="same", keepdim=True, weight=1):
        self.node, self.kind, self.args = node, kind, args
        self.text, self.rule, self.keepdim = text, rule, keepdim
        self.weight = weight  # 0: no work of its own; 2: worth a kernel of its own
        self.operands = [x for x in args if is_tensor(x) and literal_of(x) is None]


def literal_of(node):
    """Returns the number that all elements of a node's tensor are, or None."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return None
    place = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}.get(
        node.target
    )
    if place is None:
        return None
    found = node.args[place]
    return found if isinstance(found, (bool, int, float)) else None


def number_text(number):
    """Returns a Python number as a formula has it."""
    if isinstance(number, bool):
        return str(number)
    if isinstance(number, float) and not math.isfinite(number):
        return "nan" if math.isnan(number) else "inf" if number > 0 else "(-inf)"
    return repr(number) if number >= 0 and math.copysign(1, number) > 0 else f"({number!r})"


def fusable(node):
    """Returns the Fusable of a node, or None."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    if not is_tensor(node) or value(node).dtype not in DTYPES:
        return None
    if torch.Tag.nondeterministic_seeded in node.target.tags or literal_of(node) is not None:
        return None
    found = _described(node, arguments(node))
    if found is None or not found.operands:
        return None
    device = value(node).device
    if device.type not in ("cpu", "cuda") or value(node).layout is not torch.strided:
        return None
    for x in found.operands:
        of = value(x)
        if of.dtype not in DTYPES or of.device != device or of.layout is not torch.strided:
            return None
    return found


def _described(node, args):
    if any(isinstance(x, complex) for x in args):
        return None
    found = _shaped(node, args)
    if found is not None:
        return found
    row = _rows.reduction(node, args)
    if row is not None:
        text, keepdim = row
        wanted = value(node).dtype
        known = value(args[0]).dtype
        if wanted in _FLOATS and wanted != known:
            text = text.replace("{0}", f"{{0}}.to({DTYPES[wanted]})")
        return Fusable(node, "reduce", args[:1], text, "free", keepdim)
    text = _rows.whole_row(node, args)
    if text is not None:
        return Fusable(node, "row", args, text, weight=2)
    return _point(node, args)


def _shaped(node, args):
    """Describes ops that move no numbers, and casts."""
    target, x = node.target, args[0] if args else None
    if target in (aten._to_copy.default, prims.convert_element_type.default):
        if value(x).device != value(node).device or value(x).dtype.is_complex:
            return None
        text = f"{{0}}.to({DTYPES[value(node).dtype]})"
        return Fusable(node, "point", [x], text, "free", weight=0)
    if target is aten.clone.default:
        return Fusable(node, "point", [x], "{0}", "free", weight=0)
    if target is aten.expand.default:
        return Fusable(node, "alias", [x], weight=0)
    if target is aten.unsqueeze.default and args[1] in (-1, rank_of(x)):
        return Fusable(node, "unsqueeze", [x], weight=0)
    if target in (aten.squeeze.dim, aten.squeeze.dims) and _rows.is_last(args[1], rank_of(x)):
        return Fusable(node, "squeeze", [x], weight=0)
    return None


def _point(node, args):
    row = _pointwise.SIMPLE.get(node.target)
    if row is None:
        row = _pointwise.CHOSEN.get(node.target)
        if row is None:
            return None
        choose, rule = row
        text = choose(args)
    else:
        text, rule = row
    if text is None or any(isinstance(x, (list, tuple)) for x in args):
        return None
    dtype = value(node).dtype
    is_logical = rule != "same" or str(node.target).startswith("aten.bitwise")
    if dtype is torch.bool and not is_logical:
        return None  # sums and products of bools
    if node.target is aten.div.Tensor_mode and args[2] == "trunc" and dtype not in _FLOATS:
        return None
    if rule in ("where", "fill") and dtype is torch.float64:
        chosen = args[1:] if rule == "where" else (args[0], args[2])
        if all(not is_tensor(x) or literal_of(x) is not None for x in chosen):
            return None  # a formula chooses between two numbers of float32
    for place, x in enumerate(args):
        used = f"{{{place}}}" in text
        if used and not (is_tensor(x) or is_number(x) or isinstance(x, (bool, int, float))):
            return None
    weight = 2 if node.target in _WHOLE else 1
    return Fusable(node, "point", args, text, rule, weight=weight)
