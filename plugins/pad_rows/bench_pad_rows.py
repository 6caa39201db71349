# SPDX-License-Identifier: Apache-2.0
"""Compares padded heads with PyTorch on every device: opdock bench plugins/pad_rows"""

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices


def functions(device, batch, dtype):
    """Returns {whose: function} for heads of 80 elements padded to 128, and 100 tokens padded to
    128."""
    x = torch.randn(batch, 100, 16 * 80, device=device).to(dtype)
    heads = x.unflatten(-1, (16, 80)).transpose(1, 2)
    return {
        "opdock": lambda: opdock.ops.pad_rows(heads, 128, 128),
        "torch": lambda: F.pad(heads, (0, 48, 0, 28)),
    }


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    rows, columns = x.shape[0] + 28, x.shape[1] + 48
    tensors = 1 + rows * columns / x.numel()
    yield "pad_rows", "opdock", tensors, lambda: opdock.ops.pad_rows(x, rows, columns)
    yield "pad_rows", "torch", tensors, lambda: F.pad(x, (0, 48, 0, 28))


if __name__ == "__main__":
    for device in devices():
        for batch in (1, 32):
            for dtype in (torch.float32, torch.float16):
                label = f"pad_rows of {batch} x 16 heads {dtype}".replace("torch.", "")
                bench(label, device, functions(device, batch, dtype))
