# SPDX-License-Identifier: Apache-2.0
"""bias_gelu beside PyTorch's two ops, on every device: opdock bench plugins/bias_gelu"""

import torch

import opdock
from opdock.testing import bench, devices

for device in devices():
    for shape in [(1, 4096), (255, 4096), (8192, 8192)] if device == "cuda" else [(255, 4096)]:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device=device, dtype=dtype)
            bias = torch.randn(shape[-1], device=device, dtype=dtype)
            bench(
                f"bias_gelu {shape} {dtype}".replace("torch.", ""),
                device,
                {
                    "opdock": lambda x=x, bias=bias: opdock.ops.bias_gelu(x, bias),
                    "torch": lambda x=x, bias=bias: torch.nn.functional.gelu(
                        x + bias, approximate="tanh"
                    ),
                },
            )
