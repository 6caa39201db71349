# SPDX-License-Identifier: Apache-2.0
"""Runs one step of the plugin adam with the arguments of DeepSpeed's Adam modules."""

import torch

from opdock import ops

# A step number: beta ** 2**60 is 0 for every float32 below 1, so the bias corrections are 1.
_NO_CORRECTION = 2.0**60


def step(
    decoupled,
    number,
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    *,
    lr,
    beta1,
    beta2,
    epsilon,
    weight_decay,
    bias_correction,
):
    """Updates params, exp_avgs and exp_avg_sqs, lists of tensors on one device, in place.

    decoupled: whether to use AdamW's weight decay. number: the number of this step, from 1. Runs on
    the current stream.
    """
    if not params:
        return
    update = ops.adamw_ if decoupled else ops.adam_
    before = float(number - 1) if bias_correction else _NO_CORRECTION
    with torch.no_grad():
        update(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            torch.full((), before, dtype=torch.float32, device=params[0].device),
            lr=float(lr),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(epsilon),
            weight_decay=float(weight_decay),
        )
