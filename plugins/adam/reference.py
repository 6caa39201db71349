# SPDX-License-Identifier: Apache-2.0
"""The optimizers' steps in PyTorch: the oracle of the plugin's tests, and its fallback."""

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
    if _is_skipped(found_inf):
        return
    step += 1
    t = step.item()
    lr = _number(lr_tensor, lr)
    of_weights, of_grads = decays
    for i, weight in enumerate(params if masters is None else masters):
        w, m, v = _wide(weight, exp_avgs[i], exp_avg_sqs[i])
        g = _gradient(grads[i], w, grad_scale, maximize, of_grads)
        mean = beta1 * m + (1 - beta1) * g
        square = beta2 * v + (1 - beta2) * g * g
        exp_avgs[i].copy_(mean)
        exp_avg_sqs[i].copy_(square)
        root = (square / (1 - beta2**t)).sqrt()
        w = w - lr * of_weights * w - lr / (1 - beta1**t) * mean / (root + eps)
        _store(w, i, params, masters)


@torch.no_grad()
def lion_(
    params,
    grads,
    exp_avgs,
    *,
    lr=1e-4,
    beta1=0.9,
    beta2=0.99,
    weight_decay=0.0,
    maximize=False,
    masters=None,
    lr_tensor=None,
    grad_scale=None,
    found_inf=None,
):
    """Does one step of Lion for all of params, in place."""
    if _is_skipped(found_inf):
        return
    lr = _number(lr_tensor, lr)
    for i, weight in enumerate(params if masters is None else masters):
        w, m = _wide(weight, exp_avgs[i])
        g = _gradient(grads[i], w, grad_scale, maximize)
        ahead = beta1 * m + (1 - beta1) * g
        change = torch.where(ahead.isnan(), ahead, ahead.sign())  # torch's sign of NaN is 0
        exp_avgs[i].copy_(beta2 * m + (1 - beta2) * g)
        _store((1 - lr * weight_decay) * w - lr * change, i, params, masters)


@torch.no_grad()
def adagrad_(
    params,
    grads,
    state_sums,
    *,
    lr=1e-2,
    eps=1e-10,
    weight_decay=0.0,
    maximize=False,
    masters=None,
    lr_tensor=None,
    grad_scale=None,
    found_inf=None,
):
    """Does one step of Adagrad for all of params, in place."""
    if _is_skipped(found_inf):
        return
    lr = _number(lr_tensor, lr)
    for i, weight in enumerate(params if masters is None else masters):
        w, total = _wide(weight, state_sums[i])
        g = _gradient(grads[i], w, grad_scale, maximize, weight_decay)
        total = total + g * g
        state_sums[i].copy_(total)
        _store(w - lr * g / (total.sqrt() + eps), i, params, masters)


@torch.no_grad()
def lamb_(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    step,
    *,
    lr=1e-3,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    max_coeff=10.0,
    min_coeff=0.01,
    bias_correction=True,
    eps_inside_sqrt=False,
    maximize=False,
    masters=None,
    lr_tensor=None,
    grad_scale=None,
    found_inf=None,
):
    """Does one step of LAMB for all of params, in place; returns their trust ratios."""
    ratios = torch.zeros(len(params), device=step.device)
    if _is_skipped(found_inf):
        return ratios
    step += 1
    t = step.item()
    rate = _number(lr_tensor, lr)
    if bias_correction:
        rate *= (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    for i, weight in enumerate(params if masters is None else masters):
        w, m, v = _wide(weight, exp_avgs[i], exp_avg_sqs[i])
        g = _gradient(grads[i], w, grad_scale, maximize)
        exp_avgs[i].copy_(beta1 * m + (1 - beta1) * g)
        exp_avg_sqs[i].copy_(beta2 * v + (1 - beta2) * g * g)
        _, m, v = _wide(weight, exp_avgs[i], exp_avg_sqs[i])  # as they are stored
        root = (v + eps).sqrt() if eps_inside_sqrt else v.sqrt() + eps
        change = m / root + weight_decay * w
        norms = w.norm(), change.norm()
        ratio = (norms[0] / norms[1]).clamp(min_coeff, max_coeff)
        ratio = torch.where((norms[0] == 0) | (norms[1] == 0), 1.0, ratio)
        ratios[i] = ratio
        _store(w - rate * ratio * change, i, params, masters)
    return ratios


def _is_skipped(found_inf):
    return found_inf is not None and found_inf.item() != 0


def _number(tensor, otherwise):
    return otherwise if tensor is None else tensor.item()


def _wide(*tensors):
    """Returns the tensors in the dtype that is computed in: float64 if the first one has it."""
    compute = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    return [x.to(compute) for x in tensors]


def _gradient(grad, weight, grad_scale, maximize, weight_decay=0):
    """Returns the gradient that a step uses."""
    grad = grad.to(weight.dtype)
    if grad_scale is not None:
        grad = grad / grad_scale
    if maximize:
        grad = -grad
    return grad + weight_decay * weight if weight_decay else grad


def _store(weight, i, params, masters):
    if masters is not None:
        masters[i].copy_(weight)
    params[i].copy_(weight)
