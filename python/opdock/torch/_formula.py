# SPDX-License-Identifier: Apache-2.0
"""Differentiates formulas that are registered: each set of parameters that needs gradients has a
formula of its own, which becomes an operator when it is needed first."""

from opdock.torch._incoming import incoming


def backward_of_formula(op, find, saved, wanted, out):
    """Fills in `out`, the gradients of the call's tensors, for the parameters `wanted`."""
    grads = [
        incoming(gradient, zeros, False)
        for gradient, zeros in zip(saved.grads, saved.zeros, strict=True)
    ]
    helper = find((op, tuple(op.names[place] for place in wanted)))
    named = dict(zip(op.names, saved.values, strict=True))
    rest = [named[name] for name in helper.names[len(grads) :]]
    found = helper.overload(*grads, *rest)
    found = found if isinstance(found, tuple) else (found,)
    for place, gradient in zip(wanted, found, strict=True):
        begin, _, _ = saved.spans[place]
        out[begin] = gradient
    return out
