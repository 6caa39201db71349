# SPDX-License-Identifier: Apache-2.0
"""Compares dequantize with PyTorch on every device: opdock bench plugins/dequantize"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    q = torch.randint(-128, 128, x.shape, device=x.device, dtype=torch.int8)
    scale = torch.rand(x.shape[0], device=x.device)
    tensors = 1 + 1 / x.element_size()
    yield "dequantize", "opdock", tensors, lambda: opdock.ops.dequantize(q, scale, dtype=x.dtype)
    yield "dequantize", "torch", tensors, lambda: (q * scale[:, None]).to(x.dtype)


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2:
        return
    for op, whose, _, function in candidates(torch.empty(shape, dtype=dtype)):
        yield op, whose, function


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.empty(shape, device=device, dtype=dtype)
                label = f"dequantize {shape} {dtype}".replace("torch.", "")
                bench(label, device, {whose: f for _, whose, _, f in candidates(x)})
