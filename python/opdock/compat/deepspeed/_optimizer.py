# SPDX-License-Identifier: Apache-2.0
"""Numbered optimizers and checks of tensors, which the modules of DeepSpeed's optimizers share."""

import torch

from opdock._errors import InvalidArgumentError


def find(made, function, optimizer_id, create):
    """Returns made[optimizer_id]. made: what the module's function `create` has made, by number.
    Raises InvalidArgumentError for a number that is not there."""
    try:
        return made[optimizer_id]
    except KeyError:
        known = ", ".join(map(str, sorted(made))) or "none"
        raise InvalidArgumentError(
            f"{function}(): argument 'optimizer_id': found {optimizer_id!r}, wanted one that "
            f"{create}() has made (there is {known}); call {create}() first"
        ) from None


def check_cpu(function, tensors, fused):
    """Raises InvalidArgumentError if one of {name: tensor} is not on the CPU. fused: DeepSpeed's
    optimizer for those on a GPU, or None."""
    for name, tensor in tensors.items():
        if tensor.device.type != "cpu":
            advice = f", or use {fused} for parameters on a GPU" if fused else ""
            raise InvalidArgumentError(
                f"{function}(): argument {name!r}: found a tensor on {tensor.device}, wanted one "
                f"on the CPU; move it there{advice}"
            )


def with_strides_of(params, grads):
    """Returns the gradient, or a copy with the strides of its parameter, as DeepSpeed copies it."""
    if grads.shape == params.shape and grads.stride() != params.stride():
        return torch.empty_like(params, dtype=grads.dtype).copy_(grads)
    return grads


def columns(function, tensor_lists, names):
    """Returns the lists of tensors; raises InvalidArgumentError unless there is one for each of the
    names."""
    if len(tensor_lists) != len(names):
        raise InvalidArgumentError(
            f"{function}(): argument 'tensor_lists': found {len(tensor_lists)} lists, wanted "
            f"{len(names)}: {', '.join(names)}"
        )
    return [list(tensors) for tensors in tensor_lists]


@torch.no_grad()
def copy_to(gpu_params, params):
    """Copies parameters to a tensor of any dtype and device, all of their dimensions."""
    gpu_params.copy_(params.view_as(gpu_params))
