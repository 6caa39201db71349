# SPDX-License-Identifier: Apache-2.0
"""The function of DeepSpeed's module fused_lion, by the op lion_, for GPUs and the CPU."""

import torch

from opdock import ops
from opdock.compat.deepspeed import _optimizer


@torch.no_grad()
def multi_tensor_lion(chunk_size, noop_flag, tensor_lists, lr, beta1, beta2, step, weight_decay):
    """Runs one step of Lion for lists of tensors, in place.

    tensor_lists: three lists: gradients, parameters, averages. Each parameter's tensors have its
    shape and strides, without gaps. chunk_size, noop_flag and step have no effect: the plugin
    chooses its own launches, and DeepSpeed's kernel does not read the others. Runs on the current
    stream. Raises InvalidArgumentError for another number of lists.
    """
    names = ("gradients", "parameters", "exp_avgs")
    grads, params, exp_avgs = _optimizer.columns("multi_tensor_lion", tensor_lists, names)
    if params:
        ops.lion_(
            params,
            grads,
            exp_avgs,
            lr=float(lr),
            beta1=float(beta1),
            beta2=float(beta2),
            weight_decay=float(weight_decay),
        )
