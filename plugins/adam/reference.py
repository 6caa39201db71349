# SPDX-License-Identifier: Apache-2.0
"""adam_ and adamw_ in PyTorch: the oracle of the plugin's tests, and its fallback."""

import torch


def adamw_(params, grads, exp_avgs, exp_avg_sqs, step, *, weight_decay=0.01, **options):
    """Does one step of AdamW for all of params, in place: decoupled weight decay."""
    _step(params, grads, exp_avgs, exp_avg_sqs, step, (weight_decay, 0), **options)


def adam_(params, grads, exp_avgs, exp_avg_sqs, step, *, weight_decay=0.0, **options):
    """Does one step of Adam for all of params, in place: weight decay in the gradient."""
    _step(params, grads, exp_avgs, exp_avg_sqs, step, (0, weight_decay), **options)


@torch.no_grad()
def _step(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    step,
    decays,  # decoupled decay of the weights; decay in the gradients
    *,
    lr=1e-3,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    maximize=False,
    masters=None,
    lr_tensor=None,
    grad_scale=None,
    found_inf=None,
):
    if found_inf is not None and found_inf.item() != 0:
        return
    step += 1
    t = step.item()
    if lr_tensor is not None:
        lr = lr_tensor.item()
    of_weights, of_grads = decays
    weights = params if masters is None else masters
    for i, (weight, grad, m, v) in enumerate(
        zip(weights, grads, exp_avgs, exp_avg_sqs, strict=True)
    ):
        compute = torch.float64 if weight.dtype == torch.float64 else torch.float32
        w, g = weight.to(compute), grad.to(compute)
        if grad_scale is not None:
            g = g / grad_scale
        if maximize:
            g = -g
        g = g + of_grads * w
        mean = beta1 * m.to(compute) + (1 - beta1) * g
        square = beta2 * v.to(compute) + (1 - beta2) * g * g
        m.copy_(mean)
        v.copy_(square)
        root = (square / (1 - beta2**t)).sqrt()
        w = w - lr * of_weights * w - lr / (1 - beta1**t) * mean / (root + eps)
        weight.copy_(w)
        if masters is not None:
            params[i].copy_(w)
