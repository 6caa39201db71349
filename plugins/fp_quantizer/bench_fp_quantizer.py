# SPDX-License-Identifier: Apache-2.0
"""Times the codes of small floating-point numbers beside a copy: opdock bench
plugins/fp_quantizer"""

import torch

import opdock
from opdock.testing import bench, devices

FORMATS = {"e4m3": (4, 3), "e3m2": (3, 2), "e4m7": (4, 7), "e2m1": (2, 1)}


def candidates(x, name):
    """Yields (op, how many tensors like x move, function)."""
    exponent_bits, mantissa_bits = FORMATS[name]
    keywords = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    q = opdock.ops.fp_quantize(x, **keywords)
    tensors = 1 + q.numel() / x.nbytes
    yield "fp_quantize", tensors, lambda: opdock.ops.fp_quantize(x, **keywords)
    yield "fp_dequantize", tensors, lambda: opdock.ops.fp_dequantize(q, **keywords, dtype=x.dtype)
    yield "copy", 2, x.clone


if __name__ == "__main__":
    for device in devices():
        groups = 2**20 if device == "cuda" else 2**10
        for group in (128, 512):
            for name in FORMATS:
                x = torch.randn(groups, group, device=device, dtype=torch.bfloat16)
                for op, tensors, function in candidates(x, name):
                    label = f"{op} {groups} x {group} {name}, {tensors:.2f} tensors"
                    bench(label, device, {"opdock": function})
