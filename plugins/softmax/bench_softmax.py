# SPDX-License-Identifier: Apache-2.0
"""Compares softmax and log_softmax with PyTorch on every device: opdock bench plugins/softmax"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    yield "softmax", "opdock", 2, lambda: opdock.ops.softmax(x)
    yield "softmax", "torch", 2, lambda: torch.softmax(x, -1)
    yield "log_softmax", "opdock", 2, lambda: opdock.ops.log_softmax(x)
    yield "log_softmax", "torch", 2, lambda: torch.log_softmax(x, -1)
    for op, functions in backward(x).items():
        for whose, function in functions.items():
            yield op, whose, 3, function


def backward(x):
    """Returns {op: {whose: function}} for the gradients; PyTorch's autograd calls the same
    kernels."""
    grad, found = torch.randn_like(x), {}
    for op in ("softmax", "log_softmax"):
        result = getattr(torch, op)(x, -1)
        ours, theirs = getattr(opdock.ops, f"{op}_backward"), getattr(torch, f"_{op}_backward_data")
        found[f"{op}_backward"] = {
            "opdock": lambda ours=ours, result=result: ours(grad, result),
            "torch": lambda theirs=theirs, result=result: theirs(grad, result, -1, x.dtype),
        }
    return found


ATTENTION = [(8, 32, 1024, 1024), (32, 16, 512, 512), (1, 32, 2048, 2048)]


def extra_cases(dtype):
    """Yields what gpu_ops.py times in addition: (op, case, bytes moved, {whose: function}, x)."""
    for shape in ATTENTION:
        x = torch.randn(shape, device="cuda", dtype=dtype)
        later = torch.full(shape[-2:], float("-inf"), device="cuda", dtype=dtype).triu(1)
        name, size, length = "x".join(map(str, shape)), x.numel() * x.element_size(), shape[-1]
        functions = {
            "opdock": lambda x=x: opdock.ops.softmax(x, scale=0.125),
            "torch": lambda x=x: torch.softmax(x * 0.125, -1),
        }
        yield "softmax", name, 2 * size, functions, x
        functions = {
            "opdock": lambda x=x: opdock.ops.softmax(x, scale=0.125, causal=True),
            "torch": lambda x=x, later=later: torch.softmax(x * 0.125 + later, -1),
            "torch, no mask": lambda x=x: torch.softmax(hidden_by_places(x * 0.125), -1),
        }
        # Masked elements need not be read, but are written.
        read = size * (length + 1) / (2 * length)
        yield "softmax", f"{name} causal", read + size, functions, x


def hidden_by_places(scores):
    """Returns scores in which queries see no later key. The mask is computed from the positions, so
    that it needs no memory once it is compiled."""
    queries, keys = (torch.arange(n, device=scores.device) for n in scores.shape[-2:])
    return torch.where(queries[:, None] >= keys, scores, float("-inf"))


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function). A shape of four dimensions
    means attention."""
    x = torch.randn(shape).to(dtype)
    softmax, log_softmax = opdock.ops.softmax, opdock.ops.log_softmax
    if len(shape) == 2:
        yield "softmax", "opdock", lambda: softmax(x)
        yield "softmax", "torch", lambda: torch.softmax(x, -1)
        yield "log_softmax", "opdock", lambda: log_softmax(x)
        yield "log_softmax", "torch", lambda: torch.log_softmax(x, -1)
        for op, functions in backward(x).items():
            yield op, "opdock", functions["opdock"]
            yield op, "torch", functions["torch"]
        return
    # A batch in which each sequence is padded, and a causal mask.
    padding = torch.zeros(shape[0], 1, 1, shape[-1], dtype=dtype)
    padding[..., -shape[-1] // 8 :] = float("-inf")
    later = torch.full(shape[-2:], float("-inf")).triu(1).to(dtype)
    yield "softmax with a mask", "opdock", lambda: softmax(x, scale=0.125, mask=padding)
    yield "softmax with a mask", "torch", lambda: torch.softmax(x * 0.125 + padding, -1)
    yield "causal softmax", "opdock", lambda: softmax(x, scale=0.125, causal=True)
    yield "causal softmax", "torch", lambda: torch.softmax(x * 0.125 + later, -1)
    no_mask = hidden_by_places
    yield "causal softmax", "torch, no mask", lambda: torch.softmax(no_mask(x * 0.125), -1)


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            x = torch.randn(shape, device=device)
            functions = {f"{op} {whose}": f for op, whose, _, f in candidates(x)}
            bench(f"softmax {shape}", device, functions)
