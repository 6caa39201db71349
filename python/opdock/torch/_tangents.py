# SPDX-License-Identifier: Apache-2.0
"""Forward-mode differentiation of operators: elementwise formulas have it, others are refused."""

import torch
from torch.autograd import forward_ad

from opdock import _formula_tangent


def may_be_any():
    """Returns whether tensors may have tangents now. A graph that torch.compile has made of
    torch.func.jvp does not tell forward_ad so."""
    return (
        forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _unpack(x):
    """Returns the tensor without its tangent, and that or None. torch has no level but 0."""
    return torch._VF._unpack_dual(x, level=0)


def has_any(values):
    """Returns whether a tensor among values, or in their lists, has a tangent."""
    for value in values:
        for x in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(x, torch.Tensor) and _unpack(x)[1] is not None:
                return True
    return False


def call(op, values):
    """Calls an operator of which some arguments have tangents; returns the result with its own.
    Raises UnsupportedError for an op that does not define it."""
    text = "" if op.written else op.formula_text()
    _formula_tangent.check(op.name, text, len(op.fresh))
    named = dict(zip(op.names, values, strict=True))
    tangents = {}
    for name, x in named.items():
        if isinstance(x, torch.Tensor):
            named[name], tangent = _unpack(x)
            if tangent is not None:
                tangents[name] = tangent

    def gradient(name, incoming, values):
        helper = op.formula_gradient((name,))
        return helper.overload(incoming, *[values[one] for one in helper.names[1:]])

    # Both calls pass all of torch's keys below this one again: gradients that are recorded, and
    # the transforms outside of this level, see them.
    result = op.overload(*named.values())
    found = _formula_tangent.tangent(op.name, result, named, tangents, gradient)
    return torch._VF._make_dual(result, found, level=0)
