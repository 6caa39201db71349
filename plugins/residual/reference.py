# SPDX-License-Identifier: Apache-2.0
"""The ops of this plugin in PyTorch: the plugin's fallback. Computed in float64 if the first tensor
is float64, else in float32; results have the first tensor's dtype."""

import torch


def _wide(*tensors):
    dtype = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    return [0.0 if tensor is None else tensor.to(dtype) for tensor in tensors]


def residual_add(
    hidden,
    residual,
    attention=None,
    bias=None,
    attention_bias=None,
    *,
    form="pre_norm",
    divisor=1.0,
):
    """Returns the sum of a layer's branches; form: "pre_norm", "post_norm" or "parallel"."""
    if form not in ("pre_norm", "post_norm", "parallel"):
        raise ValueError(f'found form "{form}", wanted "pre_norm", "post_norm" or "parallel"')
    h, r, a, b, c = _wide(hidden, residual, attention, bias, attention_bias)
    if form == "post_norm":
        return (h + r + b).to(hidden.dtype)
    inside, outside = (a, 0.0) if form == "pre_norm" else (0.0, a)
    return (h + outside + (r + inside + b + c) / divisor).to(hidden.dtype)


def vector_add(a, b, *, gamma=1.0):
    """a + gamma * b."""
    wide, other = _wide(a, b)
    return (wide + gamma * other).to(a.dtype)


def moe_res_matmul(residual, coef, output):
    """Returns output * coef[L:] + residual * coef[:L], by columns."""
    r, c, o = _wide(residual, coef, output)
    first, second = c.chunk(2)
    return (o * second + r * first).to(residual.dtype)
