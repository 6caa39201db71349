# SPDX-License-Identifier: Apache-2.0
"""Compares the products with PyTorch on every device: opdock bench plugins/linear"""

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices


def random(like, *shape):
    return torch.randn(shape, device=like.device).to(like)


def integers(x, outputs):
    """Returns an int8 weight for rows like x, with a scale for each output."""
    shape = outputs, x.shape[-1]
    q = torch.randint(-128, 128, shape, device=x.device, dtype=torch.int8)
    return q, torch.rand(outputs, device=x.device) / 1000


def functions(x):
    """Yields (op, our function, PyTorch's function) for rows x of K elements and K columns."""
    k, ops = x.shape[-1], opdock.ops
    w, w1 = random(x, k, k) / k**0.5, random(x, 2 * k, k) / k**0.5
    bias, gamma, q = random(x, k), random(x, k), integers(x, k)

    def torch_gated():
        hidden, gate = F.linear(x, w1).chunk(2, -1)
        return hidden * F.silu(gate)

    def torch_norm():
        h = F.rms_norm(x, (k,), gamma, 1e-5)
        return F.linear(h, w), h

    def torch_int8():
        return F.linear(x, (q[0] * q[1][:, None]).to(x.dtype))

    yield "linear", lambda: ops.linear(x, w, bias), lambda: F.linear(x, w, bias)
    yield (
        "linear gelu",
        lambda: ops.linear(x, w, bias, activation="gelu_tanh"),
        lambda: F.gelu(F.linear(x, w, bias), approximate="tanh"),
    )
    yield "linear int8", lambda: ops.linear(x, q[0], weight_scale=q[1]), torch_int8
    yield "gated_linear", lambda: ops.gated_linear(x, w1), torch_gated
    yield "norm_linear", lambda: ops.norm_linear(x, w, gamma=gamma, norm="rms"), torch_norm
    yield (
        "mlp",
        lambda: ops.mlp(x, w1, w, gated=True, activation="silu"),
        lambda: F.linear(torch_gated(), w),
    )


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times for each shape: nothing, because memory limits none
    of these ops there."""
    return iter(())


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2 or shape[1] > 1024:
        return
    for op, ours, theirs in functions(torch.randn(shape).to(dtype)):
        yield op, "opdock", ours
        yield op, "torch", theirs


def checked_calls(dtype):
    """Yields calls that sanitizer.py makes in addition: one row, a few, as many as the tensor
    cores' kernel takes, and as many as the library takes, with inputs that are whole vectors and
    others."""
    for rows, size in ((1, 1024), (1, 1021), (8, 1024), (33, 512), (100, 510)):
        for _, ours, _ in functions(torch.randn(rows, size, device="cuda").to(dtype)):
            yield ours


def extra_cases(dtype):
    """Yields what gpu_ops.py times in addition: (op, case, bytes moved, {whose: function}, x), for
    few rows and one weight, whose bytes are counted."""
    for rows, size in ((1, 4096), (8, 4096), (1, 8192), (16, 8192)):
        x = torch.randn(rows, size, device="cuda", dtype=dtype)
        q, scale = integers(x, size)
        w = random(x, size, size) / size**0.5
        case = f"{rows}x{size}"
        whose = {
            "opdock": lambda x=x, q=q, scale=scale: opdock.ops.linear(x, q, weight_scale=scale),
            "torch": lambda x=x, q=q, scale=scale: F.linear(x, (q * scale[:, None]).to(x.dtype)),
        }
        yield "linear", f"{case} int8", q.numel(), whose, x
        whose = {
            "opdock": lambda x=x, w=w: opdock.ops.linear(x, w),
            "torch": lambda x=x, w=w: F.linear(x, w),
        }
        yield "linear", case, w.numel() * w.element_size(), whose, x


if __name__ == "__main__":
    for device in devices():
        big = [(1, 4096), (16, 4096), (512, 4096), (4096, 4096)]
        for shape in big if device == "cuda" else [(1, 1024), (64, 1024)]:
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.randn(shape, device=device).to(dtype)
                for op, ours, theirs in functions(x):
                    label = f"{op} {shape} {dtype}".replace("torch.", "")
                    bench(label, device, {"opdock": ours, "torch": theirs})
