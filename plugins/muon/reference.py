# SPDX-License-Identifier: Apache-2.0
"""Muon's iteration in PyTorch: the plugin's fallback. Computed in float32."""

import torch


def newton_schulz(x, *, steps=5, a=3.4445, b=-4.775, c=2.0315):
    """Returns x after `steps` steps x <- a x + (b A + c A A) x, with A = x x'."""
    if not 1 <= steps <= 99:
        raise ValueError(f"newton_schulz: argument 'steps': found {steps}, wanted 1 to 99")
    wide = x.float() if x.shape[-2] <= x.shape[-1] else x.float().mT
    for _ in range(steps):
        gram = wide @ wide.mT
        wide = a * wide + (b * gram + c * (gram @ gram)) @ wide
    wide = wide if x.shape[-2] <= x.shape[-1] else wide.mT
    return wide.to(x.dtype, memory_format=torch.contiguous_format)
