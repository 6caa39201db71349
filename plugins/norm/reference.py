# SPDX-License-Identifier: Apache-2.0
"""The norms in PyTorch: the oracle of the plugin's tests."""

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


def bias_add_layer_norm(
    x, residual, input_bias, weight=None, bias=None, *, eps=1e-5, with_sum=True
):
    """Returns (layer_norm(sum), sum), where sum = x + residual + input_bias is rounded to x's dtype
    first. If with_sum is False, None takes the sum's place."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    total = (x.to(compute) + residual.to(compute) + input_bias.to(compute)).to(x.dtype)
    return layer_norm(total, weight, bias, eps=eps), total if with_sum else None


def rms_norm(x, weight=None, *, eps=1e-5):
    """Returns x / sqrt(mean(x * x) + eps) * weight along the last dimension.

    x: floating, shape [..., L]. weight: shape [L], or None. The result has x's dtype; computed in
    float64 if x is float64, else in float32."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    wide = x.to(compute)
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight.to(compute)).to(x.dtype)


def add_rms_norm(x, residual, weight=None, *, eps=1e-5):
    """Returns (rms_norm(x + residual), x + residual); the sum is rounded to x's dtype first."""
    total = x + residual
    return rms_norm(total, weight, eps=eps), total


def layer_norm_backward(grad, x, weight=None, bias=None, grad_sum=None, *, eps=1e-5):
    """Returns the gradients of layer_norm's x, weight and bias, or None for an argument that is
    None; grad_sum is added to the first."""
    return _backward(layer_norm, grad, (x, weight, bias), grad_sum, eps)


def rms_norm_backward(grad, x, weight=None, grad_sum=None, *, eps=1e-5):
    """Returns the gradients of rms_norm's x and weight, like layer_norm_backward()."""
    return _backward(rms_norm, grad, (x, weight), grad_sum, eps)


def _backward(norm, grad, tensors, grad_sum, eps):
    dtype = tensors[0].dtype
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    with torch.enable_grad():
        wide = [None if t is None else t.to(compute).detach().requires_grad_() for t in tensors]
        given = [t for t in wide if t is not None]
        found = list(torch.autograd.grad(norm(*wide, eps=eps), given, grad.to(compute)))
    found = [None if t is None else found.pop(0) for t in wide]
    if grad_sum is not None:
        found[0] = found[0] + grad_sum.to(compute)
    return tuple(None if f is None else f.to(dtype) for f in found)
