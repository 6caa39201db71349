# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module cpu_lion, by the op lion_.

The caller numbers the optimizers, which live until destroy_lion(). Any thread may call the
functions.
"""

import torch

from opdock import ops
from opdock.compat.deepspeed import _optimizer

_made = {}  # an optimizer's number -> None: each step passes its numbers again


def create_lion(optimizer_id, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0, should_log=False):
    """Creates or replaces the optimizer with the number optimizer_id; returns 0.

    should_log: print a line. The other numbers have no effect, since each step passes them again.
    """
    _made[optimizer_id] = None
    if should_log:
        print(
            f"Lion Optimizer #{optimizer_id} is created with Opdock's plugin adam.\n"
            f"Config: alpha={lr:f}, betas=({beta1:f}, {beta2:f}), weight_decay={weight_decay:f}"
        )
    return 0


def destroy_lion(optimizer_id):
    """Removes the optimizer; returns 0, also if there is none with that number."""
    _made.pop(optimizer_id, None)
    return 0


@torch.no_grad()
def lion_update(optimizer_id, step, lr, beta1, beta2, weight_decay, params, grads, exp_avg):
    """Runs one step for one parameter; updates params and exp_avg in place; returns 0.

    step: has no effect. weight_decay: none if it is negative. params: a CPU tensor of float32,
    float16, bfloat16 or float64, without gaps. grads: a tensor of its shape, of its dtype or
    float32. exp_avg: the average, of its dtype or float32, with its shape and strides. Raises
    InvalidArgumentError for an unknown optimizer or tensors on another device.
    """
    _optimizer.find(_made, "lion_update", optimizer_id, "create_lion")
    tensors = {"params": params, "grads": grads, "exp_avg": exp_avg}
    _optimizer.check_cpu("lion_update", tensors, "FusedLion")
    ops.lion_(
        [params],
        [_optimizer.with_strides_of(params, grads)],
        [exp_avg],
        lr=float(lr),
        beta1=float(beta1),
        beta2=float(beta2),
        weight_decay=max(float(weight_decay), 0.0),
    )
    return 0


def lion_update_copy(
    optimizer_id, step, lr, beta1, beta2, weight_decay, params, grads, exp_avg, gpu_params
):
    """Does lion_update(), then copies the new parameters to gpu_params, of any dtype and device;
    returns 0."""
    lion_update(optimizer_id, step, lr, beta1, beta2, weight_decay, params, grads, exp_avg)
    _optimizer.copy_to(gpu_params, params)
    return 0
