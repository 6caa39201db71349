# SPDX-License-Identifier: Apache-2.0
"""dequantize in PyTorch: the plugin's fallback."""

import torch


def dequantize(q, scale, *, dtype=None):
    """Returns q * scale, where scale[i] applies to the i-th of as many groups of equal size."""
    if q.numel() == 0:
        return q.to(dtype or torch.float32)
    groups = q.reshape(scale.numel(), -1).to(torch.float32)
    return (groups * scale[:, None]).reshape(q.shape).to(dtype or torch.float32)
