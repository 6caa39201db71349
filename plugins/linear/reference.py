# SPDX-License-Identifier: Apache-2.0
"""The ops of this plugin in PyTorch: the plugin's fallback. Computed in float64 if the first tensor
is float64, else in float32; results have the first tensor's dtype."""

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def _compute_dtype(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _wide(x, *others):
    return [None if t is None else t.to(_compute_dtype(x)) for t in (x, *others)]


def _activation(name, gated=False):
    names = [n for n in ACTIVATIONS if not gated or n != "none"]
    if name not in names:
        raise ValueError(f'argument "activation": found "{name}", wanted one of {names}')
    return ACTIVATIONS[name]


def _matrix(x, weight, scale, transposed):
    """Returns the matrix that a weight represents, in the dtype that x is computed in; scale: None,
    or one number for each group of the weight's elements."""
    dtype = _compute_dtype(x)
    matrix = weight.to(dtype)
    if scale is not None and weight.numel() > 0:
        groups = matrix.reshape(scale.numel(), -1)
        matrix = (groups * scale.reshape(-1, 1).to(dtype)).reshape(weight.shape)
    return matrix.t() if transposed else matrix


def _product(x, weight, bias, scale, transposed):
    """Returns x W + bias, not rounded to x's dtype."""
    wide, b = _wide(x, bias)
    y = wide @ _matrix(x, weight, scale, transposed)
    return y if b is None else y + b


def linear(
    x,
    weight,
    bias=None,
    residual=None,
    *,
    weight_scale=None,
    activation="none",
    transposed=True,
):
    """Returns activation(x W + bias) + residual; weight is W' if transposed."""
    y = _activation(activation)(_product(x, weight, bias, weight_scale, transposed))
    return (y if residual is None else y + _wide(x, residual)[1]).to(x.dtype)


def gated_linear(
    x,
    weight,
    bias=None,
    *,
    weight_scale=None,
    activation="silu",
    gate_first=False,
    transposed=True,
):
    """Returns hidden * activation(gate) for the halves [hidden, gate] = x W + bias."""
    act = _activation(activation, gated=True)
    both = _product(x, weight, bias, weight_scale, transposed).to(x.dtype)
    first, second = _wide(both)[0].chunk(2, -1)
    return (act(first) * second if gate_first else first * act(second)).to(x.dtype)


def norm_linear(
    x,
    weight,
    bias=None,
    *,
    gamma=None,
    beta=None,
    weight_scale=None,
    norm="layer",
    eps=1e-5,
    transposed=True,
):
    """Returns (h W + bias, h), where h is x normalised."""
    h = _normalise(x, gamma, beta, norm, eps)
    return _product(h, weight, bias, weight_scale, transposed).to(x.dtype), h


def _normalise(x, gamma, beta, norm, eps):
    if norm not in ("layer", "rms"):
        raise ValueError(f'argument "norm": found "{norm}", wanted "layer" or "rms"')
    wide, g, b = _wide(x, gamma, beta)
    if norm == "layer":
        return F.layer_norm(wide, x.shape[-1:], g, b, eps).to(x.dtype)
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (y if g is None else y * g).to(x.dtype)


def mlp(
    x,
    weight1,
    weight2,
    bias1=None,
    bias2=None,
    *,
    weight1_scale=None,
    weight2_scale=None,
    activation="gelu",
    gated=False,
    gate_first=False,
    transposed=True,
):
    """Returns activation(x W1 + bias1) W2 + bias2, or gated_linear(x, W1, bias1) W2 + bias2."""
    inner = {"weight_scale": weight1_scale, "activation": activation, "transposed": transposed}
    if gated:
        h = gated_linear(x, weight1, bias1, gate_first=gate_first, **inner)
    else:
        h = linear(x, weight1, bias1, **inner)
    return _product(h, weight2, bias2, weight2_scale, transposed).to(x.dtype)


def norm_mlp(
    x,
    weight1,
    weight2,
    bias1=None,
    bias2=None,
    *,
    residual=None,
    input_bias=None,
    gamma=None,
    beta=None,
    norm="layer",
    eps=1e-5,
    **of_mlp,
):
    """Returns (mlp(h), h, sum), where h is the normalised sum = x + residual + input_bias. Without
    a residual, h is x normalised and the last result None."""
    total = None
    if residual is not None:
        wide, r, b = _wide(x, residual, input_bias)
        total = (wide + r + (0.0 if b is None else b)).to(x.dtype)
    h = _normalise(x if total is None else total, gamma, beta, norm, eps)
    return mlp(h, weight1, weight2, bias1, bias2, **of_mlp), h, total


def einsum_sec_sm_ecm(q, w):
    """Returns the sum over s of q[s, e, c] * w[s, m]."""
    return torch.einsum("sec,sm->ecm", *_wide(q, w)).to(q.dtype)
