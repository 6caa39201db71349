# SPDX-License-Identifier: Apache-2.0
"""dropout in PyTorch: the plugin's fallback. It draws torch's random numbers instead of the
plugin's, so the masks differ; for a given mask the results are the same."""

import torch


def dropout(x, p=0.5, *, generator=None):
    """Returns (result, mask): an element is kept, with probability 1 - p, as x / (1 - p), and is 0
    otherwise. generator: a torch.Generator, of the CPU or of x's device."""
    device = generator.device if generator is not None else x.device
    numbers = torch.rand(x.shape, generator=generator, device=device, dtype=torch.float64)
    mask = (numbers >= p).to(x.device)
    return dropout_backward(x, mask, p), mask


def dropout_add(x, residual, p=0.5, *, generator=None):
    """Returns (residual + dropout's result, mask), added in float64 if x is float64, else in
    float32."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    dropped, mask = dropout(x.to(compute), p, generator=generator)
    return (dropped + residual).to(x.dtype), mask


def dropout_backward(grad, mask, p):
    """Returns grad / (1 - p) where the mask is true, 0 elsewhere; multiplied in float64 if grad is
    float64, else in float32."""
    compute = torch.float64 if grad.dtype == torch.float64 else torch.float32
    factor = torch.tensor(1 / (1 - p) if p < 1 else 0.0, dtype=torch.float64).to(compute)
    return torch.where(mask, grad.to(compute) * factor.item(), 0.0).to(grad.dtype)
