# SPDX-License-Identifier: Apache-2.0
"""The normalisations in PyTorch: what the plugin is compared with."""

import torch


def layer_norm(x, weight=None, bias=None, *, eps=1e-5):
    """Normalises x along its last dimension: (x - mean) / sqrt(variance + eps) * weight + bias.

    x: floating, shape [..., L]. weight, bias: shape [L], or None. The result has x's dtype;
    computed in float64 if x is float64, else in float32.
    """
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    parameters = [None if p is None else p.to(compute) for p in (weight, bias)]
    y = torch.nn.functional.layer_norm(x.to(compute), x.shape[-1:], *parameters, eps)
    return y.to(x.dtype)


def add_layer_norm(x, residual, weight=None, bias=None, *, eps=1e-5):
    """Returns (layer_norm(x + residual), x + residual); the sum is rounded to x's dtype first."""
    total = x + residual
    return layer_norm(total, weight, bias, eps=eps), total


def rms_norm(x, weight=None, *, eps=1e-5):
    """x / sqrt(mean(x * x) + eps) * weight along the last dimension.

    x: floating, shape [..., L]. weight: shape [L], or None. The result has x's dtype; computed in
    float64 if x is float64, else in float32.
    """
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    wide = x.to(compute)
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight.to(compute)).to(x.dtype)


def add_rms_norm(x, residual, weight=None, *, eps=1e-5):
    """Returns (rms_norm(x + residual), x + residual); the sum is rounded to x's dtype first."""
    total = x + residual
    return rms_norm(total, weight, eps=eps), total
