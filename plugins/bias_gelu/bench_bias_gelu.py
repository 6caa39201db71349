# SPDX-License-Identifier: Apache-2.0
"""Compares the nvcc plugin's bias_gelu with PyTorch's two ops: opdock bench plugins/bias_gelu"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    bias = torch.randn(x.shape[-1], device=x.device, dtype=x.dtype)
    bias_gelu = opdock.load("bias_gelu/bias_gelu")  # instead of the preferred plugin's op
    yield "bias_gelu_nvcc", "opdock", 2, lambda: bias_gelu(x, bias)
    gelu = torch.nn.functional.gelu
    yield "bias_gelu_nvcc", "torch", 2, lambda: gelu(x + bias, approximate="tanh")


if __name__ == "__main__":
    for device in devices():
        for shape in [(1, 4096), (255, 4096), (8192, 8192)] if device == "cuda" else [(255, 4096)]:
            for dtype in (torch.float32, torch.bfloat16):
                label = f"bias_gelu {shape} {dtype}".replace("torch.", "")
                x = torch.randn(shape, device=device, dtype=dtype)
                bench(label, device, {whose: f for _, whose, _, f in candidates(x)})
