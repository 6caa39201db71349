# SPDX-License-Identifier: Apache-2.0
"""Compares the norms with PyTorch on every device: opdock bench plugins/norm"""

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    residual, width = torch.randn_like(x), x.shape[-1:]
    weight, bias = (torch.randn(width, device=x.device, dtype=x.dtype) for _ in range(2))
    yield "layer_norm", "opdock", 2, lambda: opdock.ops.layer_norm(x, weight, bias)
    yield "layer_norm", "torch", 2, lambda: F.layer_norm(x, width, weight, bias)
    yield "rms_norm", "opdock", 2, lambda: opdock.ops.rms_norm(x, weight)
    yield "rms_norm", "torch", 2, lambda: F.rms_norm(x, width, weight, 1e-5)

    def add_layer_norm():
        total = x + residual
        return F.layer_norm(total, width, weight, bias), total

    def add_rms_norm():
        total = x + residual
        return F.rms_norm(total, width, weight, 1e-5), total

    ops = opdock.ops
    yield "add_layer_norm", "opdock", 4, lambda: ops.add_layer_norm(x, residual, weight, bias)
    yield "add_layer_norm", "torch", 4, add_layer_norm
    yield "add_rms_norm", "opdock", 4, lambda: ops.add_rms_norm(x, residual, weight)
    yield "add_rms_norm", "torch", 4, add_rms_norm
    for op, functions in backward(x, weight, bias).items():
        for whose, function in functions.items():
            yield op, whose, 3, function


def backward(x, weight, bias):
    """Returns {op: {whose: function}} for all gradients; PyTorch's is autograd of a result."""
    grad = torch.randn_like(x)
    leaves = [tensor.detach().requires_grad_() for tensor in (x, weight, bias)]
    layer = F.layer_norm(leaves[0], x.shape[-1:], *leaves[1:])
    rms = F.rms_norm(leaves[0], x.shape[-1:], leaves[1], 1e-5)
    ops, of = opdock.ops, torch.autograd.grad
    return {
        "layer_norm_backward": {
            "opdock": lambda: ops.layer_norm_backward(grad, x, weight, bias),
            "torch": lambda: of(layer, leaves, grad, retain_graph=True),
        },
        "rms_norm_backward": {
            "opdock": lambda: ops.rms_norm_backward(grad, x, weight),
            "torch": lambda: of(rms, leaves[:2], grad, retain_graph=True),
        },
    }


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2:
        return
    ops, width = opdock.ops, shape[-1:]
    x, residual = (torch.randn(shape).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(width).to(dtype) for _ in range(2))
    yield "layer_norm", "opdock", lambda: ops.layer_norm(x, weight, bias)
    yield "layer_norm", "torch", lambda: F.layer_norm(x, width, weight, bias)
    yield "rms_norm", "opdock", lambda: ops.rms_norm(x, weight)
    yield "rms_norm", "torch", lambda: F.rms_norm(x, width, weight, 1e-5)

    def add_layer_norm():
        total = x + residual
        return F.layer_norm(total, width, weight, bias), total

    def add_rms_norm():
        total = x + residual
        return F.rms_norm(total, width, weight, 1e-5), total

    yield "add_layer_norm", "opdock", lambda: ops.add_layer_norm(x, residual, weight, bias)
    yield "add_layer_norm", "torch", add_layer_norm
    yield "add_rms_norm", "opdock", lambda: ops.add_rms_norm(x, residual, weight)
    yield "add_rms_norm", "torch", add_rms_norm
    for op, functions in backward(x, weight, bias).items():
        yield op, "opdock", functions["opdock"]
        yield op, "torch", functions["torch"]


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            functions = {}
            for op, whose, _, function in candidates(torch.randn(shape, device=device)):
                functions[f"{op} {whose}"] = function
            bench(f"norm {shape}", device, functions)
