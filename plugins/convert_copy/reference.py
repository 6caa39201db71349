# SPDX-License-Identifier: Apache-2.0
"""copy_to_device and copy_to_host in PyTorch: the oracle of the plugin's tests, and its
fallback."""

import torch


def _converted(x, dtype):
    """Returns x.to(dtype), except that floats outside an int type's range become its limits, and
    NaN becomes 0."""
    if not x.is_floating_point() or dtype.is_floating_point or dtype == torch.bool:
        return x.to(dtype)
    limits = torch.iinfo(dtype)
    least, end = float(limits.min), float(limits.max + 1)
    x = x.to(torch.float64)
    # The whole part fits. For int64, least - 1 rounds to least, which the last assignment sets too.
    fits = (x > least - 1) & (x < end)
    found = torch.where(fits, x, 0).to(dtype)
    found[x >= end] = limits.max
    found[x <= least - 1] = limits.min
    return found


def copy_to_device(dst, src):
    """Writes src, on the CPU, into dst."""
    if dst.shape != src.shape:
        raise ValueError(f"found shapes {dst.shape} and {src.shape}, wanted the same twice")
    dst.copy_(_converted(src, dst.dtype))


def copy_to_host(dst, src):
    """Writes src into dst, on the CPU."""
    copy_to_device(dst, src)
