# SPDX-License-Identifier: Apache-2.0
"""cross_entropy in PyTorch: the oracle of the plugin's tests, and its fallback."""

import torch


def compute_of(logits):
    """Returns float64 if the logits are float64, else float32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def cross_entropy(logits, target, *, ignore_index=-100, label_smoothing=0.0, dtype=None):
    """Returns the loss of each row of logits, [..., V], with its class in target, [...]: not
    reduced, and 0 where the target is ignore_index. The result has dtype `dtype` (float32 if None);
    it is computed in float64 if the logits are float64, else in float32. Any other target that is
    not a class is an error."""
    rows = logits.reshape(-1, logits.shape[-1]).to(compute_of(logits))
    loss = torch.nn.functional.cross_entropy(
        rows,
        target.reshape(-1).long(),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="none",
    ).reshape(target.shape)
    return loss.masked_fill(target == ignore_index, 0.0).to(dtype or torch.float32)


def cross_entropy_with_gradient(
    logits, target, scale=None, *, ignore_index=-100, label_smoothing=0.0, dtype=None
):
    """Returns (the loss, the gradient of its sum with respect to the logits, times scale)."""
    options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    loss = cross_entropy(logits, target, dtype=dtype, **options)
    scale = torch.ones((), device=logits.device) if scale is None else scale
    return loss, cross_entropy_backward(logits, target, scale, **options)


def cross_entropy_backward(logits, target, grad, *, ignore_index=-100, label_smoothing=0.0):
    """Returns softmax(logits) - label_smoothing / V, minus 1 - label_smoothing at the target, times
    grad, which broadcasts to target's shape; 0 in ignored rows."""
    compute = compute_of(logits)
    ignored = target == ignore_index
    classes = target.long().masked_fill(ignored, 0).unsqueeze(-1)
    found = torch.softmax(logits.to(compute), -1) - label_smoothing / logits.shape[-1]
    found.scatter_add_(-1, classes, torch.full_like(found[..., :1], label_smoothing - 1))
    found *= grad.to(compute).expand(target.shape).unsqueeze(-1)
    return found.masked_fill(ignored.unsqueeze(-1), 0.0).to(logits.dtype)
