# SPDX-License-Identifier: Apache-2.0
"""Records calls of formulas for torch's autograd; loaded by the first call that needs it."""

import inspect

import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from opdock import _formula_tangent
from opdock._errors import UnsupportedError


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, gradients, names, others, *tensors):
        found = function(**dict(zip(names, tensors, strict=True)), **others)
        ctx.save_for_backward(*tensors)
        ctx.gradients, ctx.names, ctx.others = gradients, names, others
        results = found if isinstance(found, tuple) else (found,)
        ctx.mark_non_differentiable(*[x for x in results if not x.is_floating_point()])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        tensors = ctx.saved_tensors
        needed = [i for i, needs in enumerate(ctx.needs_input_grad[4:]) if needs]
        function = ctx.gradients.of([ctx.names[i] for i in needed])
        own = dict(zip(ctx.names, tensors, strict=True))
        found = function(*grads, **own, **ctx.others)
        found = found if isinstance(found, tuple) else (found,)
        out = [None] * len(ctx.needs_input_grad)
        for i, gradient in zip(needed, found, strict=True):
            out[4 + i] = gradient
        return tuple(out)


def record(function, gradients, args, keywords):
    """Calls a formula's function for tensors that require a gradient, and has autograd record it,
    or for tensors with tangents. Raises UnsupportedError for a function that writes into a
    parameter, or with `out`. gradients: its _formula._Gradients."""
    if "out" in keywords or "!" in function.schema:
        raise UnsupportedError(
            f"{function.__name__}(): found a tensor that takes part in differentiation and a "
            "result that is written into a tensor, wanted one or the other; call under "
            "torch.no_grad(), or pass x.detach()"
        )
    arguments = inspect.signature(function).bind(*args, **keywords).arguments
    if forward_ad._current_level >= 0:
        duals = {n: forward_ad.unpack_dual(x) for n, x in arguments.items() if _is_tensor(x)}
        tangents = {name: dual.tangent for name, dual in duals.items() if dual.tangent is not None}
        arguments |= {name: dual.primal for name, dual in duals.items()}
        if tangents:
            return _with_tangents(function, gradients, arguments, tangents)
    tensors = {name: x for name, x in arguments.items() if _is_tensor(x)}
    others = {name: x for name, x in arguments.items() if name not in tensors}
    return _Call.apply(function, gradients, tuple(tensors), others, *tensors.values())


def _is_tensor(x):
    return isinstance(x, torch.Tensor)


def _with_tangents(function, gradients, arguments, tangents):
    """Calls the function with tensors without their tangents; returns the result with its own."""
    name = function.__name__
    _formula_tangent.check(name, gradients.text, len(function._results))
    tensors = [x for x in arguments.values() if _is_tensor(x)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise UnsupportedError(
            f"{name}(): found a tensor that requires a gradient and one with a tangent, wanted one "
            "or the other; call under torch.no_grad(), or make an operator of the formula by "
            "opdock.torch.register"
        )

    def gradient(of, incoming, values):
        return gradients.of((of,))(incoming, **values)

    result = function(**arguments)
    found = _formula_tangent.tangent(name, result, arguments, tangents, gradient)
    return forward_ad.make_dual(result, found)
