# SPDX-License-Identifier: Apache-2.0
"""Compares the ops that join branches of a layer with PyTorch, on every device: opdock bench
plugins/residual"""

import torch

import opdock
from opdock.testing import bench, devices


def functions(x):
    """Yields (op, how many tensors like x move, our function, PyTorch's function)."""
    ops, shape = opdock.ops, x.shape[-1]
    residual, attention = torch.randn_like(x), torch.randn_like(x)
    bias, other, coef = (torch.randn(n, device=x.device).to(x) for n in (shape, shape, 2 * shape))
    first, second = coef.chunk(2)
    yield (
        "residual_add",
        4,
        lambda: ops.residual_add(x, residual, attention, bias, other, divisor=2.0),
        lambda: x + (residual + attention + bias + other) / 2,
    )
    yield (
        "vector_add",
        3,
        lambda: ops.vector_add(x, residual, gamma=0.5),
        lambda: torch.add(x, residual, alpha=0.5),
    )
    yield (
        "moe_res_matmul",
        3,
        lambda: ops.moe_res_matmul(residual, coef, x),
        lambda: x * second + residual * first,
    )


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    for name, tensors, ours, torchs in functions(x):
        yield name, "opdock", tensors, ours
        yield name, "torch", tensors, torchs


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2:
        return
    for name, whose, _, function in candidates(torch.randn(shape).to(dtype)):
        yield name, whose, function


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            x = torch.randn(shape, device=device)
            for name, _, ours, torchs in functions(x):
                bench(f"{name} {shape}", device, {"opdock": ours, "torch": torchs})
