# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module cpu_adam, on the plugin adam.

The caller numbers the optimizers, which live until destroy_adam(). An optimizer only stores the
kind of its weight decay. Any thread may call the functions.
"""

import torch

from opdock.compat.deepspeed import _adam, _optimizer

_decoupled = {}  # an optimizer's number -> whether it is AdamW


def create_adam(
    optimizer_id,
    alpha=1e-3,
    betta1=0.9,
    betta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    adamw_mode=True,
    should_log=False,
):
    """Creates or replaces the optimizer with the number optimizer_id; returns 0.

    adamw_mode: use decoupled weight decay (AdamW). should_log: print a line. The other numbers have
    no effect, since each step passes them again.
    """
    _decoupled[optimizer_id] = bool(adamw_mode)
    if should_log:
        print(
            f"Adam Optimizer #{optimizer_id} is created with Opdock's plugin adam.\n"
            f"Config: alpha={alpha:f}, betas=({betta1:f}, {betta2:f}), "
            f"weight_decay={weight_decay:f}, adam_w={int(bool(adamw_mode))}"
        )
    return 0


def destroy_adam(optimizer_id):
    """Removes the optimizer; returns 0, also if there is none with that number."""
    _decoupled.pop(optimizer_id, None)
    return 0


def _is_decoupled(function, optimizer_id):
    return _optimizer.find(_decoupled, function, optimizer_id, "create_adam")


def adam_update(
    optimizer_id,
    step,
    lr,
    beta1,
    beta2,
    epsilon,
    weight_decay,
    bias_correction,
    params,
    grads,
    exp_avg,
    exp_avg_sq,
):
    """Runs one step for one parameter; updates params, exp_avg and exp_avg_sq in place; returns 0.

    step: its number, from 1. params: a CPU tensor of float32, float16, bfloat16 or float64, without
    gaps. grads: a tensor of its shape, of its dtype or float32. exp_avg, exp_avg_sq: the moments,
    of its dtype or float32, with its shape and strides. Raises InvalidArgumentError for an unknown
    optimizer or tensors on another device.
    """
    decoupled = _is_decoupled("adam_update", optimizer_id)
    tensors = {"params": params, "grads": grads, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    _optimizer.check_cpu("adam_update", tensors, "FusedAdam")
    _adam.step(
        decoupled,
        step,
        [params],
        [_optimizer.with_strides_of(params, grads)],
        [exp_avg],
        [exp_avg_sq],
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        weight_decay=weight_decay,
        bias_correction=bias_correction,
    )
    return 0


def adam_update_copy(
    optimizer_id,
    step,
    lr,
    beta1,
    beta2,
    epsilon,
    weight_decay,
    bias_correction,
    params,
    grads,
    exp_avg,
    exp_avg_sq,
    gpu_params,
):
    """Does adam_update(), then copies the new parameters to gpu_params, of any dtype and device;
    returns 0."""
    adam_update(
        optimizer_id,
        step,
        lr,
        beta1,
        beta2,
        epsilon,
        weight_decay,
        bias_correction,
        params,
        grads,
        exp_avg,
        exp_avg_sq,
    )
    _optimizer.copy_to(gpu_params, params)
    return 0


@torch.no_grad()
def adam_rollback(
    optimizer_id,
    step,
    lr,
    beta1,
    beta2,
    epsilon,
    weight_decay,
    bias_correction,
    params,
    grads,
    exp_avg,
    exp_avg_sq,
):
    """Undoes the step number `step`, given the arguments that it had; returns 0.

    The tensors are those of adam_update(), of its dtypes. Rounding is not undone: the values come
    back to within a few units in the last place of their dtype, a moment that was rounded to 16
    bits to within that divided by 1 - beta. What a step has not kept cannot come back: a moment is
    0 afterwards if its beta is 0, and so is a parameter that is not finite, as DeepSpeed has it.
    Raises InvalidArgumentError for tensors on another device.
    """
    decoupled = _is_decoupled("adam_rollback", optimizer_id)
    tensors = {"params": params, "grads": grads, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    _optimizer.check_cpu("adam_rollback", tensors, "FusedAdam")
    kept = 1 - lr * weight_decay if decoupled else 1.0
    corrections = [1 - beta**step if bias_correction else 1.0 for beta in (beta1, beta2)]
    mean, square = exp_avg.double(), exp_avg_sq.double()
    moved = lr * (mean / corrections[0]) / ((square / corrections[1]).sqrt() + epsilon)
    old = (params.double() + moved) / kept
    old.masked_fill_(~old.isfinite(), 0)
    grad = grads.double() + (0.0 if decoupled else weight_decay) * old
    params.copy_(old)
    exp_avg.copy_(_unmix(mean, beta1, grad))
    # A rounded average may lie below the square that was added: a sum of squares is at least 0.
    exp_avg_sq.copy_(_unmix(square, beta2, grad * grad).clamp_(min=0))
    return 0


def _unmix(mixed, beta, added):
    """Returns x of mixed = beta * x + (1 - beta) * added; zeros for beta = 0."""
    return (mixed - (1 - beta) * added) / beta if beta else torch.zeros_like(mixed)


def zenflow_adam_create(optimizer_id, zf_affinity):
    """Creates ZenFlow's part of an optimizer that create_adam() has made; returns its handle.

    zf_affinity: the cores that its steps may use.
    """
    from opdock.compat.deepspeed import _zenflow

    return _zenflow.create(_is_decoupled("zenflow_adam_create", optimizer_id), zf_affinity)


def __getattr__(name):
    # ZenFlow's other functions use the C library's semaphores, which most programs do not need.
    if name.startswith("zenflow_adam_"):
        from opdock.compat.deepspeed import _zenflow

        return getattr(_zenflow, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
