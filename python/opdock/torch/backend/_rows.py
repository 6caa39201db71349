# SPDX-License-Identifier: Apache-2.0
"""Ops along rows as texts of formulas: reductions along the last dimension, softmax, norms."""

import torch

from opdock.torch.backend._values import rank_of, value

aten = torch.ops.aten

#: overload -> (text, place of the dimensions among the arguments, place of keepdim)
_REDUCTIONS = {
    aten.sum.dim_IntList: ("sum({0})", 1, 2),
    aten.mean.dim: ("mean({0})", 1, 2),
    aten.amax.default: ("amax({0})", 1, 2),
    aten.amin.default: ("amin({0})", 1, 2),
    aten.logsumexp.default: ("logsumexp({0})", 1, 2),
    aten.prod.dim_int: ("prod({0})", 1, 2),
    aten.any.dim: ("any({0})", 1, 2),
    aten.all.dim: ("all({0})", 1, 2),
    aten.argmax.default: ("argmax({0})", 1, 2),
    aten.argmin.default: ("argmin({0})", 1, 2),
    aten.var.correction: ("var({0}, correction={c})", 1, 3),
}

#: overload -> (text, place of the dimension, place of the tensor of which it is one)
_WHOLE_ROWS = {
    aten._softmax.default: ("softmax({0})", 1, 0),
    aten._log_softmax.default: ("log_softmax({0})", 1, 0),
    aten._safe_softmax.default: ("where(amax({0}) == (-inf), 0, softmax({0}))", 1, 0),
    aten._softmax_backward_data.default: ("{1} * ({0} - sum({0} * {1}))", 2, 0),
    aten._log_softmax_backward_data.default: ("{0} - exp({1}) * sum({0})", 2, 0),
}


def is_last(dims, rank):
    """Returns whether `dims`, a dimension or a list of one, is the last of `rank`."""
    if isinstance(dims, (list, tuple)):
        if len(dims) != 1:
            return False
        dims = dims[0]
    if dims is None:
        return rank == 1
    return isinstance(dims, int) and rank > 0 and dims in (-1, rank - 1)


def reduction(node, args):
    """Returns (text, keepdim) of a reduction along the last dimension, else None."""
    row = _REDUCTIONS.get(node.target)
    if row is None:
        return None
    text, dims, keep = row
    rank = rank_of(args[0])
    if rank == 0 or not is_last(args[dims], rank):
        return None
    if "{c}" in text:
        correction = 1 if args[2] is None else args[2]
        if not isinstance(correction, (int, float)):
            return None
        text = text.replace("{c}", repr(correction))
    dtype = value(args[0]).dtype
    if dtype is torch.bool:
        name = text.split("(")[0]
        text = {"amax": "any({0})", "amin": "all({0})", "argmax": "argmax(({0}).to(uint8))",
                "argmin": "argmin(({0}).to(uint8))"}.get(name, text)  # fmt: skip
    return text, bool(args[keep])


def whole_row(node, args):
    """Returns the text of an op that gives a row for a row, else None."""
    row = _WHOLE_ROWS.get(node.target)
    if row is not None:
        text, dim, tensor = row
        return text if is_last(args[dim], rank_of(args[tensor])) else None
    return _norm(node, args)


def _norm(node, args):
    """Returns the text of the plugins' norms, which _plugin_ops.py puts in place of torch's."""
    name = str(node.target)
    if name == "opdock.layer_norm.default":
        text = "({0} - mean({0})) * rsqrt(var({0}) + {3})"
        weights = ((1, "*"), (2, "+"))
    elif name == "opdock.rms_norm.default":
        text, weights = "{0} * rsqrt(mean({0} * {0}) + {2})", ((1, "*"),)
    else:
        return None
    for place, sign in weights:
        if args[place] is not None:
            text += f" {sign} {{{place}}}"
    return text
