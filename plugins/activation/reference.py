# SPDX-License-Identifier: Apache-2.0
"""The activation ops in PyTorch: the oracle of the plugin's tests. Computed in float64 if the first
tensor is float64, else in float32; results have the first tensor's dtype."""

import torch
import torch.nn.functional as F


def _compute(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _wide(*tensors):
    dtype = _compute(tensors[0])
    return [None if tensor is None else tensor.to(dtype) for tensor in tensors]


def _gelu(approximate):
    return lambda x: F.gelu(x, approximate=approximate)


def bias_add(x, bias):
    """x + bias; x: [..., L], bias: [L]."""
    return _biased(lambda v: v, x, bias)


def bias_relu(x, bias):
    """max(x + bias, 0)."""
    return _biased(F.relu, x, bias)


def bias_gelu(x, bias, *, approximate="tanh"):
    """GELU of x + bias; approximate as for torch.nn.functional.gelu."""
    return _biased(_gelu(approximate), x, bias)


def silu(x):
    """x / (1 + exp(-x))."""
    return F.silu(x.to(_compute(x))).to(x.dtype)


def silu_mul(gate, up):
    """silu(gate) * up, of one shape."""
    return _gated(F.silu, gate, up)


def gelu_mul(gate, up, *, approximate="none"):
    """gelu(gate) * up, of one shape."""
    return _gated(_gelu(approximate), gate, up)


def geglu(x, bias=None, *, approximate="none"):
    """The first half of each row, [..., :L], times the GELU of the second half, of x + bias."""
    return _halves(_gelu(approximate), x, bias)


def swiglu(x, bias=None):
    """The first half of each row, [..., :L], times silu of the second half, of x + bias."""
    return _halves(F.silu, x, bias)


def bias_add_backward(grad):
    """The gradients of bias_add's x and bias."""
    (wide,) = _wide(grad)
    return grad.clone(), _column_sums(wide).to(grad.dtype)


def bias_relu_backward(grad, x, bias):
    """The gradients of bias_relu's x and bias."""
    return _biased_backward(F.relu, grad, x, bias)


def bias_gelu_backward(grad, x, bias, *, approximate="tanh"):
    """The gradients of bias_gelu's x and bias."""
    return _biased_backward(_gelu(approximate), grad, x, bias)


def silu_backward(grad, x):
    """The gradient of silu's x."""
    (found,) = _gradients(F.silu, grad, x)
    return found.to(x.dtype)


def silu_mul_backward(grad, gate, up):
    """The gradients of silu_mul's gate and up."""
    return _gated_backward(F.silu, grad, gate, up)


def gelu_mul_backward(grad, gate, up, *, approximate="none"):
    """The gradients of gelu_mul's gate and up."""
    return _gated_backward(_gelu(approximate), grad, gate, up)


def geglu_backward(grad, x, bias=None, *, approximate="none"):
    """The gradients of geglu's x and bias; None without one."""
    return _halves_backward(_gelu(approximate), grad, x, bias)


def swiglu_backward(grad, x, bias=None):
    """The gradients of swiglu's x and bias; None without one."""
    return _halves_backward(F.silu, grad, x, bias)


def _biased(function, x, bias):
    wide, bias_wide = _wide(x, bias)
    return function(wide + bias_wide).to(x.dtype)


def _gated(function, gate, up):
    gate_wide, up_wide = _wide(gate, up)
    return (function(gate_wide) * up_wide).to(gate.dtype)


def _halves(function, x, bias):
    wide, bias_wide = _wide(x, bias)
    first, second = (wide if bias is None else wide + bias_wide).chunk(2, -1)
    return (first * function(second)).to(x.dtype)


def _halves_backward(function, grad, x, bias):
    def halves(v):
        first, second = v.chunk(2, -1)
        return first * function(second)

    if bias is None:
        return _gradients(halves, grad, x)[0].to(x.dtype), None
    return _biased_backward(halves, grad, x, bias)


def _column_sums(grad):
    return (
        grad.reshape(-1, grad.shape[-1]).sum(0) if grad.numel() else grad.new_zeros(grad.shape[-1])
    )


def _gradients(function, grad, *tensors):
    """Returns the gradients of function(*tensors), where that of the result is grad; not
    rounded."""
    grad, *wide = _wide(grad, *tensors)
    with torch.enable_grad():
        wide = [tensor.detach().requires_grad_() for tensor in wide]
        return torch.autograd.grad(function(*wide), wide, grad.detach())


def _biased_backward(function, grad, x, bias):
    wide, bias_wide = _wide(x, bias)
    (found,) = _gradients(function, grad, wide + bias_wide)
    return found.to(x.dtype), _column_sums(found).to(bias.dtype)


def _gated_backward(function, grad, gate, up):
    found = _gradients(lambda a, b: function(a) * b, grad, gate, up)
    return tuple(one.to(gate.dtype) for one in found)
