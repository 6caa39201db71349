# SPDX-License-Identifier: Apache-2.0
"""Records calls of formulas for torch's autograd; loaded by the first call that needs it."""

import inspect

import torch
from torch.autograd.function import once_differentiable

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
    """Calls a formula's function, and has autograd record it. Raises UnsupportedError for one that
    writes into a parameter, or with `out`. gradients: its _formula._Gradients."""
    if "out" in keywords or "!" in function.schema:
        raise UnsupportedError(
            f"{function.__name__}(): found a tensor that requires a gradient and a result "
            "that is written into a tensor, wanted one or the other; call under torch.no_grad()"
        )
    arguments = inspect.signature(function).bind(*args, **keywords).arguments
    tensors = {name: x for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    others = {name: x for name, x in arguments.items() if name not in tensors}
    return _Call.apply(function, gradients, tuple(tensors), others, *tensors.values())
