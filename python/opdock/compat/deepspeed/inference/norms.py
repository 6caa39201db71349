# SPDX-License-Identifier: Apache-2.0
"""Layer norm and RMS norm, with or without a preceding sum. All results are new tensors."""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import check, rows, without_gradients


@without_gradients
def layer_norm(
    at, input: torch.Tensor, gamma: torch.Tensor | None, beta: torch.Tensor | None, epsilon: float
):
    """Returns (input - mean) / sqrt(variance + epsilon) * gamma + beta over the last dimension."""
    check(at, input=input, gamma=gamma, beta=beta)
    return _ops.layer_norm(rows(input), gamma, beta, eps=float(epsilon))


def norm_of_sum(input, bias, residual, gamma, beta, epsilon, with_sum=True):
    """Returns (the layer norm of input + residual + bias, that sum). The arguments must have been
    checked. with_sum False: the sum may be None."""
    added, eps = (rows(input), rows(residual)), float(epsilon)
    if bias is None:
        return _ops.add_layer_norm(*added, gamma, beta, eps=eps)
    bias = rows(bias.reshape(-1))
    return _ops.bias_add_layer_norm(*added, bias, gamma, beta, eps=eps, with_sum=with_sum)


@without_gradients
def layer_norm_residual(
    at,
    input: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
):
    """Returns the layer norm of input + residual + bias; the sum is first rounded to the dtype."""
    check(at, input=input, bias=bias, residual=residual, gamma=gamma, beta=beta)
    return norm_of_sum(input, bias, residual, gamma, beta, epsilon, with_sum=False)[0]


@without_gradients
def layer_norm_residual_store(
    at,
    input: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
):
    """Returns [layer_norm_residual(), the sum that it normalises]."""
    check(at, input=input, bias=bias, residual=residual, gamma=gamma, beta=beta)
    return list(norm_of_sum(input, bias, residual, gamma, beta, epsilon))


@without_gradients
def rms_norm(at, input: torch.Tensor, gamma: torch.Tensor | None, epsilon: float):
    """Returns input / sqrt(mean(input * input) + epsilon) * gamma over the last dimension."""
    check(at, input=input, gamma=gamma)
    return _ops.rms_norm(rows(input), gamma, eps=float(epsilon))


@without_gradients
def pre_rms_norm(
    at, input: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor | None, epsilon: float
):
    """Returns [rms_norm of input + residual, that sum]; the sum is first rounded to the dtype."""
    check(at, input=input, residual=residual, gamma=gamma)
    return list(_ops.add_rms_norm(rows(input), rows(residual), gamma, eps=float(epsilon)))
