# SPDX-License-Identifier: Apache-2.0
"""Compares dropout with PyTorch on every device: opdock bench plugins/dropout"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    tensors = 2 + 1 / x.element_size()  # the mask has one byte per element
    yield "dropout", "opdock", tensors, lambda: opdock.ops.dropout(x, 0.1)
    yield "dropout", "torch", tensors, lambda: torch.native_dropout(x, 0.1, True)


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.randn(shape, device=device, dtype=dtype)
                label = f"dropout {shape} {dtype}".replace("torch.", "")
                bench(label, device, {whose: f for _, whose, _, f in candidates(x)})
