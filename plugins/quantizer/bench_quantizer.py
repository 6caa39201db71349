# SPDX-License-Identifier: Apache-2.0
"""Times the quantizer's ops on every device: opdock bench plugins/quantizer

A group is a row. tests/bench/gpu_ops.py compares the times with those of a device copy."""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    rows = x.shape[0]
    for bits in (8, 4):
        tensors = 1 + bits / 8 / x.element_size()
        q, params = opdock.ops.quantize_groups(x, rows, bits)
        yield (
            f"quantize int{bits}",
            "opdock",
            tensors,
            lambda bits=bits: opdock.ops.quantize_groups(x, rows, bits),
        )
        yield (
            f"dequantize int{bits}",
            "opdock",
            tensors,
            lambda q=q, params=params, bits=bits: opdock.ops.dequantize_groups(
                q, params, bits, dtype=x.dtype
            ),
        )


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 1024), (8192, 8192)] if device == "cuda" else [(64, 1024)]:
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.randn(shape, device=device, dtype=dtype)
                for name, whose, _, function in candidates(x):
                    label = f"{name} {shape} {dtype}".replace("torch.", "")
                    bench(label, device, {whose: function})
