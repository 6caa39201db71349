# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module cpu_adagrad, by the op adagrad_.

The caller numbers the optimizers, which live until destroy_adagrad(). Any thread may call the
functions. DeepSpeed's own Python passes the rows of a sparse gradient, and the parameter's rows
beside them.
"""

import torch

from opdock import ops
from opdock.compat.deepspeed import _optimizer

_made = {}  # an optimizer's number -> None: each step passes its numbers again


def create_adagrad(optimizer_id, lr=1e-2, eps=1e-8, weight_decay=0, should_log=False):
    """Creates or replaces the optimizer with the number optimizer_id; returns 0.

    should_log: print a line. The other numbers have no effect, since each step passes them again.
    """
    _made[optimizer_id] = None
    if should_log:
        print(
            f"Adagrad Optimizer #{optimizer_id} is created with Opdock's plugin adam.\n"
            f"Config: alpha={lr:f}, weight_decay={weight_decay:f}"
        )
    return 0


def destroy_adagrad(optimizer_id):
    """Removes the optimizer; returns 0, also if there is none with that number."""
    _made.pop(optimizer_id, None)
    return 0


@torch.no_grad()
def adagrad_update(optimizer_id, step, lr, eps, weight_decay, params, grads, exp_avg_sq):
    """Runs one step for one parameter; updates params and exp_avg_sq in place; returns 0.

    step: has no effect. weight_decay: none if it is negative. params: a CPU tensor of float32,
    float16, bfloat16 or float64, without gaps. grads: a tensor of its shape, of its dtype or
    float32. exp_avg_sq: the sum of squared gradients, of its dtype or float32, with its shape and
    strides. Raises InvalidArgumentError for an unknown optimizer or tensors on another device.
    """
    _optimizer.find(_made, "adagrad_update", optimizer_id, "create_adagrad")
    tensors = {"params": params, "grads": grads, "exp_avg_sq": exp_avg_sq}
    _optimizer.check_cpu("adagrad_update", tensors, None)
    ops.adagrad_(
        [params],
        [_optimizer.with_strides_of(params, grads)],
        [exp_avg_sq],
        lr=float(lr),
        eps=float(eps),
        weight_decay=max(float(weight_decay), 0.0),
    )
    return 0


def adagrad_update_copy(
    optimizer_id, step, lr, eps, weight_decay, params, grads, exp_avg_sq, gpu_params
):
    """Does adagrad_update(), then copies the new parameters to gpu_params, of any dtype and device;
    returns 0."""
    adagrad_update(optimizer_id, step, lr, eps, weight_decay, params, grads, exp_avg_sq)
    _optimizer.copy_to(gpu_params, params)
    return 0
