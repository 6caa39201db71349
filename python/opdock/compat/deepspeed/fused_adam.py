# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module fused_adam, on the plugin adam, for GPUs and the CPU."""

from opdock._errors import InvalidArgumentError
from opdock.compat.deepspeed import _adam, _optimizer


def multi_tensor_adam(
    chunk_size,
    noop_flag,
    tensor_lists,
    lr,
    beta1,
    beta2,
    epsilon,
    step,
    mode,
    bias_correction,
    weight_decay,
):
    """Runs one step of Adam for lists of tensors, in place.

    tensor_lists: four lists: gradients, parameters, first moments, second moments. Each parameter's
    tensors have its shape and strides, without gaps. step: the number of this step, from 1. mode: 0
    adds weight_decay * parameter to the gradient, 1 is AdamW. chunk_size and noop_flag have no
    effect: the plugin chooses its own launches, and DeepSpeed's kernel does not read the flag. Runs
    on the current stream. Raises InvalidArgumentError for other lists or modes.
    """
    names = ("gradients", "parameters", "exp_avgs", "exp_avg_sqs")
    grads, params, exp_avgs, exp_avg_sqs = _optimizer.columns(
        "multi_tensor_adam", tensor_lists, names
    )
    if mode not in (0, 1):
        raise InvalidArgumentError(
            f"multi_tensor_adam(): argument 'mode': found {mode!r}, wanted 0 (weight decay in the "
            "gradient) or 1 (AdamW)"
        )
    _adam.step(
        mode == 1,
        step,
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        weight_decay=weight_decay,
        bias_correction=bias_correction,
    )
