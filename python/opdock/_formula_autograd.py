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
        rank = max(x.ndim for x in tensors)
        # A result with one number a row has one dimension less than the formula's shape.
        grads = [g if g.ndim == rank else g.unsqueeze(-1) for g in grads]
        function = ctx.gradients.of([ctx.names[i] for i in needed])
        own = dict(zip(ctx.names, tensors, strict=True))
        found = function(*grads, **own, **ctx.others)
        found = found if isinstance(found, tuple) else (found,)
        out = [None] * len(ctx.needs_input_grad)
        for i, gradient in zip(needed, found, strict=True):
            out[4 + i] = sum_to(gradient, tensors[i].shape, tensors, rank)
        return tuple(out)


def sum_to(gradient, own, tensors, rank):
    """Sums a gradient over the dimensions in which its tensor, of the shape `own`, was broadcast
    with the others."""
    if gradient.ndim < rank and len(own) > 0:  # the same in the whole row, so there are no parts
        shape = torch.broadcast_shapes(*[x.shape for x in tensors])
        gradient = gradient.unsqueeze(-1).expand(shape)
    return gradient.sum_to_size(own)


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
