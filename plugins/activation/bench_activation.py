# SPDX-License-Identifier: Apache-2.0
"""Compares the activation ops with PyTorch on every device: opdock bench plugins/activation"""

import functools

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices


@functools.cache  # cached, so that only the call is timed
def op(name):
    """Loads this plugin's op, and not another plugin's op of the same name."""
    return opdock.load(f"activation/{name}")


def forward(x):
    """Yields (op, how many tensors like x move, our function, PyTorch's function)."""
    up, bias = torch.randn_like(x), torch.randn(x.shape[-1], device=x.device, dtype=x.dtype)
    half = x.shape[-1] // 2

    def geglu(x):
        first, second = (x + bias).split(half, -1)
        return first * F.gelu(second)

    yield "bias_add", 2, lambda: op("bias_add")(x, bias), lambda: x + bias
    yield "bias_relu", 2, lambda: op("bias_relu")(x, bias), lambda: F.relu(x + bias)
    for form in ("tanh", "none"):
        yield (
            "bias_gelu" if form == "tanh" else "bias_gelu_erf",
            2,
            lambda form=form: op("bias_gelu")(x, bias, approximate=form),
            lambda form=form: F.gelu(x + bias, approximate=form),
        )
    yield "silu", 2, lambda: op("silu")(x), lambda: F.silu(x)
    yield "silu_mul", 3, lambda: op("silu_mul")(x, up), lambda: F.silu(x) * up
    yield "gelu_mul", 3, lambda: op("gelu_mul")(x, up), lambda: F.gelu(x) * up
    if x.shape[-1] % 2 == 0:
        yield "geglu", 1.5, lambda: op("geglu")(x, bias), lambda: geglu(x)


def backward(x):
    """Yields the same for the gradients."""
    up, grad = torch.randn_like(x), torch.randn_like(x)
    bias = torch.randn(x.shape[-1], device=x.device, dtype=x.dtype)
    half = grad[..., : x.shape[-1] // 2].contiguous()

    def gradients(function, grad, *tensors):
        """Returns PyTorch's backward pass without the forward pass."""
        tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        result = function(*tensors)
        return lambda: torch.autograd.grad(result, tensors, grad, retain_graph=True)

    def geglu(x, bias):
        first, second = (x + bias).chunk(2, -1)
        return first * F.gelu(second)

    yield (
        "bias_gelu_backward",
        3,
        lambda: op("bias_gelu_backward")(grad, x, bias),
        gradients(lambda x, b: F.gelu(x + b, approximate="tanh"), grad, x, bias),
    )
    yield "silu_backward", 3, lambda: op("silu_backward")(grad, x), gradients(F.silu, grad, x)
    yield (
        "silu_mul_backward",
        5,
        lambda: op("silu_mul_backward")(grad, x, up),
        gradients(lambda a, b: F.silu(a) * b, grad, x, up),
    )
    if x.shape[-1] % 2:
        return
    yield (
        "geglu_backward",
        2.5,
        lambda: op("geglu_backward")(half, x, bias),
        gradients(geglu, half, x, bias),
    )


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    for name, tensors, ours, torchs in [*forward(x), *backward(x)]:
        yield name, "opdock", tensors, ours
        yield name, "torch", tensors, torchs


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2:
        return
    x = torch.randn(shape).to(dtype)
    for name, _, ours, torchs in [*forward(x), *backward(x)]:
        yield name, "opdock", ours
        yield name, "torch", torchs


SHAPES = {"cpu": [(64, 1024), (512, 3072), (4096, 4096)], "cuda": [(64, 1024), (8192, 8192)]}

if __name__ == "__main__":
    for device in devices():
        for shape in SHAPES.get(device, [(64, 1024)]):
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.randn(shape, device=device, dtype=dtype)
                for name, _, ours, torchs in [*forward(x), *backward(x)]:
                    label = f"{name} {shape} {dtype}".replace("torch.", "")
                    bench(label, device, {"opdock": ours, "torch": torchs})
