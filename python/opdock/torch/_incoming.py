# SPDX-License-Identifier: Apache-2.0
"""Prepares the gradients of an operator's results for the op that continues with them."""

import torch


def incoming(gradient, facts, may_lack):
    """Returns the gradient of a result, contiguous, or zeros if there is none; None if the op that
    takes it allows that."""
    if isinstance(gradient, list):
        return [incoming(g, f, False) for g, f in zip(gradient, facts, strict=True)]
    if gradient is not None:
        return gradient.contiguous()
    if may_lack or facts is None:
        return None
    shape, dtype, device = facts
    return torch.zeros(shape, dtype=dtype, device=device)
