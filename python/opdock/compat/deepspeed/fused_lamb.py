# SPDX-License-Identifier: Apache-2.0
"""The function of DeepSpeed's module fused_lamb, by the op lamb_, for GPUs and the CPU."""

import torch

from opdock import ops
from opdock._errors import InvalidArgumentError
from opdock.compat.deepspeed import _optimizer


@torch.no_grad()
def lamb(
    p,
    p_copy,
    m,
    v,
    g,
    lr,
    beta1,
    beta2,
    max_coeff,
    min_coeff,
    eps,
    grad_scale,
    step,
    mode,
    bias_correction,
    decay,
):
    """Runs one step of LAMB for one parameter; updates p, m, v and p_copy in place. Returns the
    trust ratio as a tensor of one element, without waiting for it.

    p: the weight; m, v: its averages. p_copy: empty, or gets the new weight in a 16-bit dtype.
    g: the gradient, of any floating dtype. All have p's shape and strides. grad_scale: the number
    by which g is divided, or a tensor of one element, which is not waited for either. step: its
    number, from 1. mode: 0 adds eps inside of the square root, 1 to the root. Runs on the current
    stream. The ratio has p's dtype, or float32 if p is float16. Raises InvalidArgumentError for
    another mode.
    """
    if mode not in (0, 1):
        raise InvalidArgumentError(
            f"lamb(): argument 'mode': found {mode!r}, wanted 0 (eps inside of the square root) or "
            "1 (eps added to the root)"
        )
    has_copy = p_copy.numel() > 0 and p_copy.element_size() == 2 and p.dtype == torch.float32
    param = p_copy.view_as(p) if has_copy else p
    if g.dtype not in (param.dtype, torch.float32):
        g = g.to(p.dtype)
    ratio = ops.lamb_(
        [param],
        [_optimizer.with_strides_of(param, g)],
        [m],
        [v],
        _number(float(step - 1), p),
        lr=float(lr),
        beta1=float(beta1),
        beta2=float(beta2),
        eps=float(eps),
        weight_decay=float(decay),
        max_coeff=float(max_coeff),
        min_coeff=float(min_coeff),
        bias_correction=bool(bias_correction),
        eps_inside_sqrt=mode == 0,
        masters=[p] if has_copy else None,
        grad_scale=_number(grad_scale, p),
    )
    return ratio.to(torch.float32 if p.dtype == torch.float16 else p.dtype)


def _number(number, p):
    """Returns a number, or a tensor of one, as float32 on p's device. Nothing is copied there from
    the host, which would wait for the GPU."""
    if isinstance(number, torch.Tensor):
        return number.to(p.device, torch.float32).reshape(1)
    return torch.full((1,), float(number), dtype=torch.float32, device=p.device)
