# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module cpu_adam, by the plugin adam.

Optimizers are numbered by the caller and live until destroy_adam(); what one keeps is the kind of
its weight decay. Any thread.
"""

import torch

from opdock._errors import InvalidArgumentError
from opdock.compat.deepspeed import _adam

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
    """Makes the optimizer of that number, or makes it anew. Returns 0.

    adamw_mode: decoupled weight decay. The other numbers are those that each step brings again.
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
    """Forgets the optimizer. Returns 0, also if there is none of that number."""
    _decoupled.pop(optimizer_id, None)
    return 0


def _is_decoupled(function, optimizer_id):
    try:
        return _decoupled[optimizer_id]
    except KeyError:
        known = ", ".join(map(str, sorted(_decoupled))) or "none"
        raise InvalidArgumentError(
            f"{function}(): argument 'optimizer_id': found {optimizer_id!r}, wanted one that "
            f"create_adam() has made (there is {known}); call create_adam() first"
        ) from None


def _check_cpu(function, tensors):
    for name, tensor in tensors.items():
        if tensor.device.type != "cpu":
            raise InvalidArgumentError(
                f"{function}(): argument {name!r}: found a tensor on {tensor.device}, wanted one "
                "on the CPU; move it there, or use FusedAdam for parameters on a GPU"
            )


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
    """One step for one parameter, in place: params, exp_avg and exp_avg_sq. Returns 0.

    step: its number, from 1. params: float32, float16, bfloat16 or float64 on the CPU, without
    gaps. grads: of its dtype or float32. The moments: of its dtype or float32, with its strides.
    """
    decoupled = _is_decoupled("adam_update", optimizer_id)
    tensors = {"params": params, "grads": grads, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    _check_cpu("adam_update", tensors)
    if grads.shape == params.shape and grads.stride() != params.stride():
        grads = torch.empty_like(params, dtype=grads.dtype).copy_(grads)
    _adam.step(
        decoupled,
        step,
        [params],
        [grads],
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
    """As adam_update(); gpu_params, a tensor of any dtype and device, gets the new parameters."""
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
    with torch.no_grad():
        gpu_params.copy_(params.view_as(gpu_params))
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
    """Takes the step of that number back, with the arguments that it had. Returns 0.

    What rounding has lost stays lost: float32 comes back to a few units in the last place.
    """
    decoupled = _is_decoupled("adam_rollback", optimizer_id)
    tensors = {"params": params, "grads": grads, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    _check_cpu("adam_rollback", tensors)
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            raise InvalidArgumentError(
                f"adam_rollback(): argument {name!r}: found {tensor.dtype}, wanted torch.float32: "
                "fewer digits cannot be taken back"
            )
    kept = 1 - lr * weight_decay if decoupled else 1.0
    if min(beta1, beta2, kept) <= 0:
        raise InvalidArgumentError(
            f"adam_rollback(): found beta1 = {beta1}, beta2 = {beta2}, 1 - lr * weight_decay = "
            f"{kept}, wanted positive numbers: such a step has kept nothing that could come back"
        )
    corrections = [1 - beta**step if bias_correction else 1.0 for beta in (beta1, beta2)]
    mean, square = exp_avg.double(), exp_avg_sq.double()
    moved = lr * (mean / corrections[0]) / ((square / corrections[1]).sqrt() + epsilon)
    old = (params.double() + moved) / kept
    grad = grads.double() + (0.0 if decoupled else weight_decay) * old
    params.copy_(old)
    exp_avg.copy_((mean - (1 - beta1) * grad) / beta1)
    exp_avg_sq.copy_((square - (1 - beta2) * grad * grad) / beta2)
    return 0


def zenflow_adam_create(optimizer_id, zf_affinity):
    """Makes ZenFlow's part of an optimizer that create_adam() has made; returns its handle.

    zf_affinity: the cores that its steps may use.
    """
    from opdock.compat.deepspeed import _zenflow

    return _zenflow.create(_is_decoupled("zenflow_adam_create", optimizer_id), zf_affinity)


def __getattr__(name):
    # ZenFlow's other functions: of the C library's semaphores, which most programs do not need.
    if name.startswith("zenflow_adam_"):
        from opdock.compat.deepspeed import _zenflow

        return getattr(_zenflow, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
