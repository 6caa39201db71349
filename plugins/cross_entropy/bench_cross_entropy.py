# SPDX-License-Identifier: Apache-2.0
"""Compares cross_entropy and its gradient with PyTorch on every device: opdock bench
plugins/cross_entropy"""

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices

CPU_SHAPES = [(8192, 1000), (1024, 32000), (256, 128256)]  # shapes that cpu_ops.py adds to its own


def arguments(logits):
    """Returns (the rows' targets, the scale of the gradient of the mean loss)."""
    rows, classes = logits.shape
    target = torch.randint(0, classes, (rows,), device=logits.device)
    return target, torch.tensor(1 / rows, device=logits.device)


def with_gradient(function, logits, target):
    """Returns a function without arguments that computes the mean of function(logits, target) and
    its gradient by autograd."""
    logits = logits.detach().requires_grad_()

    def run():
        loss = function(logits, target)
        return loss.detach(), torch.autograd.grad(loss, logits)[0]

    return run


def of_logits(x):
    """Yields (op, whose, how many tensors like x move, function) for x of any length."""
    ops, (target, scale) = opdock.ops, arguments(x)
    yield "cross_entropy", "opdock", 1, lambda: ops.cross_entropy(x, target)
    yield "cross_entropy", "torch", 1, lambda: F.cross_entropy(x, target, reduction="none")
    op = "cross_entropy_with_gradient"
    yield op, "opdock", 2, lambda: ops.cross_entropy_with_gradient(x, target, scale)
    yield op, "torch", 2, with_gradient(F.cross_entropy, x, target)


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: of_logits(x) for rows as long as a vocabulary."""
    if x.shape[-1] < 8192:
        return
    yield from of_logits(x)
    compiled = torch.compile(F.cross_entropy, dynamic=False)
    function = with_gradient(compiled, x, arguments(x)[0])
    yield "cross_entropy_with_gradient", "torch.compile", 2, function


def extra_cases(dtype):
    """Yields what gpu_ops.py times in addition: (op, case, bytes moved, {whose: function}, x)."""
    for shape in [(8192, 128256), (8192, 32000), (8192, 50257)]:
        x = torch.randn(shape, device="cuda", dtype=dtype)
        functions, moved = {}, {}
        for op, whose, tensors, function in candidates(x):
            functions.setdefault(op, {})[whose] = function
            moved[op] = tensors * x.numel() * x.element_size()
        for op, own in functions.items():
            yield op, "x".join(map(str, shape)), moved[op], own, x


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2:
        return
    x = torch.randn(shape).to(dtype)
    for op, whose, _, function in of_logits(x):
        yield op, whose, function


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1000), (8192, 128256)] if device == "cuda" else [(64, 1000)]:
            x = torch.randn(shape, device=device)
            functions = {f"{op} {whose}": f for op, whose, _, f in of_logits(x)}
            bench(f"cross_entropy {shape}", device, functions)
