# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax and their gradients in PyTorch: the oracle of the plugin's tests, and its
fallback."""

import torch


def scores_of(x, scale, mask, causal):
    """Returns x * scale + mask, -inf where causality masks, in float64 if x is float64, else in
    float32."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    scores = x.to(compute) * scale
    if mask is not None:
        scores = scores + mask.to(compute)
    if causal:
        queries, keys = x.shape[-2:]
        allowed = torch.ones(queries, keys, dtype=torch.bool, device=x.device)
        scores = scores.masked_fill(~allowed.tril(keys - queries), float("-inf"))
    return scores


def softmax(x, *, scale=1.0, mask=None, causal=False):
    """Returns softmax(x * scale + mask) along the last dimension, in x's dtype and on its device.

    x: floating, at least one dimension (two if causal). mask: added; broadcasts to x's shape.
    causal: element j of row i takes part only if j <= i + L_k - L_q. Rows without an element that
    takes part, or whose scores are all -inf, are 0. Computed in float64 if x is float64, else in
    float32."""
    scores = scores_of(x, scale, mask, causal)
    masked = (scores == float("-inf")).all(dim=-1, keepdim=True)
    return torch.softmax(scores, dim=-1).masked_fill(masked, 0.0).to(x.dtype)


def log_softmax(x, *, scale=1.0, mask=None, causal=False):
    """Returns the logarithm of softmax(); rows without an element that takes part are -inf
    throughout."""
    scores = scores_of(x, scale, mask, causal)
    masked = (scores == float("-inf")).all(dim=-1, keepdim=True)
    return torch.log_softmax(scores, dim=-1).masked_fill(masked, float("-inf")).to(x.dtype)


def softmax_backward(grad, result, *, scale=1.0, causal=False):
    """Returns the gradient of softmax's x, from its result; 0 where causality masks."""
    return _backward(
        lambda g, y: y * (g - (g * y).sum(-1, keepdim=True)), grad, result, scale, causal
    )


def log_softmax_backward(grad, result, *, scale=1.0, causal=False):
    """Returns the gradient of log_softmax's x, from its result; 0 where the result is -inf."""

    def slope(g, y):
        masked = y == float("-inf")
        total = g.masked_fill(masked, 0.0).sum(-1, keepdim=True)
        return (g - y.exp() * total).masked_fill(masked, 0.0)

    return _backward(slope, grad, result, scale, causal)


def _backward(slope, grad, result, scale, causal):
    compute = torch.float64 if result.dtype == torch.float64 else torch.float32
    g, y = grad.to(compute), result.to(compute)
    if causal:
        queries, keys = result.shape[-2:]
        allowed = torch.ones(queries, keys, dtype=torch.bool, device=result.device)
        hidden = ~allowed.tril(keys - queries)
        g, y = g.masked_fill(hidden, 0.0), y.masked_fill(hidden, 0.0)
        return (slope(g, y) * scale).masked_fill(hidden, 0.0).to(result.dtype)
    return (slope(g, y) * scale).to(result.dtype)
