# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax beside PyTorch, on every device: opdock bench plugins/softmax"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """What tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move, function)."""
    yield "softmax", "opdock", 2, lambda: opdock.ops.softmax(x)
    yield "softmax", "torch", 2, lambda: torch.softmax(x, -1)
    compiled = torch.compile(lambda a: torch.softmax(a, -1), dynamic=False)
    yield "softmax", "torch.compile", 2, lambda: compiled(x)


def cpu_candidates(shape, dtype):
    """What tests/bench/cpu_ops.py times: (op, whose, function). Of four dimensions: attention."""
    x = torch.randn(shape).to(dtype)
    softmax, log_softmax = opdock.ops.softmax, opdock.ops.log_softmax
    if len(shape) == 2:
        yield "softmax", "opdock", lambda: softmax(x)
        yield "softmax", "torch", lambda: torch.softmax(x, -1)
        yield "log_softmax", "opdock", lambda: log_softmax(x)
        yield "log_softmax", "torch", lambda: torch.log_softmax(x, -1)
        return
    # A batch in which each sequence is padded, and queries that see no later key.
    padding = torch.zeros(shape[0], 1, 1, shape[-1], dtype=dtype)
    padding[..., -shape[-1] // 8 :] = float("-inf")
    later = torch.full(shape[-2:], float("-inf")).triu(1).to(dtype)
    yield "softmax with a mask", "opdock", lambda: softmax(x, scale=0.125, mask=padding)
    yield "softmax with a mask", "torch", lambda: torch.softmax(x * 0.125 + padding, -1)
    yield "causal softmax", "opdock", lambda: softmax(x, scale=0.125, causal=True)
    yield "causal softmax", "torch", lambda: torch.softmax(x * 0.125 + later, -1)


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            x = torch.randn(shape, device=device)
            functions = {whose: f for _, whose, _, f in candidates(x) if whose != "torch.compile"}
            bench(f"softmax {shape}", device, functions)
