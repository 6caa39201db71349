# SPDX-License-Identifier: Apache-2.0
"""softmax beside PyTorch, on every device: opdock bench plugins/softmax"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """What tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move, function)."""
    yield "softmax", "opdock", 2, lambda: opdock.ops.softmax(x)
    yield "softmax", "torch", 2, lambda: torch.softmax(x, -1)
    compiled = torch.compile(lambda a: torch.softmax(a, -1), dynamic=False)
    yield "softmax", "torch.compile", 2, lambda: compiled(x)


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            x = torch.randn(shape, device=device)
            functions = {whose: f for _, whose, _, f in candidates(x) if whose != "torch.compile"}
            bench(f"softmax {shape}", device, functions)
