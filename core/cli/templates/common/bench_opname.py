"""Measures opname and PyTorch on every device: `opdock bench .` runs this."""

import torch

import opdock
from opdock.testing import bench, devices

for device in devices():
    for size in (1000, 1_000_000):
        x = torch.randn(size, device=device)
        functions = {
            "opdock": lambda x=x: opdock.ops.opname(x, a=0.3),
            "torch": lambda x=x: 0.3 * x,
        }
        bench(f"opname {size}", device, functions)
