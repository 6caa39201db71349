# SPDX-License-Identifier: Apache-2.0
"""Compares Muon's iteration with the same products by PyTorch on every device: opdock bench
plugins/muon"""

import torch

import opdock
from opdock.testing import bench, devices


def products(x, a=3.4445, b=-4.775, c=2.0315):
    """Five steps as torch.optim.Muon has them, for a batch."""
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


if __name__ == "__main__":
    for device in devices():
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        for shape in ((4, 1024, 4096), (16, 768, 768)):
            x = torch.randn(shape, device=device)
            x = (x / torch.linalg.matrix_norm(x, keepdim=True)).to(dtype)
            label = f"newton_schulz of {'x'.join(map(str, shape))} {dtype}".replace("torch.", "")
            peers = {
                "opdock": lambda x=x: opdock.ops.newton_schulz(x),
                "torch": lambda x=x: products(x),
            }
            bench(label, device, peers)
