# SPDX-License-Identifier: Apache-2.0
"""Times the copies of chosen tokens beside PyTorch's indexing: opdock bench plugins/random_ltd"""

import torch

import opdock
from opdock.testing import bench, devices


def candidates(x, index):
    """Yields (op, {whose: function})."""
    rows = torch.arange(len(index), device=x.device)[:, None]
    long = index.long()
    part = x[rows, long]
    yield (
        "token_gather",
        {"opdock": lambda: opdock.ops.token_gather(x, index), "torch": lambda: x[rows, long]},
    )
    yield (
        "token_scatter_",
        {
            "opdock": lambda: opdock.ops.token_scatter_(x, part, index),
            "torch": lambda: x.index_put_((rows, long), part),
        },
    )
    yield (
        "token_sort",
        {
            "opdock": lambda: opdock.ops.token_sort(index, x.shape[1]),
            "torch": lambda: index.sort(-1),
        },
    )


if __name__ == "__main__":
    for device in devices():
        for batch, tokens, channels in [(8, 1024, 1024), (32, 2048, 1024)]:
            x = torch.randn(batch, tokens, channels, device=device, dtype=torch.bfloat16)
            order = torch.rand(batch, tokens, device=device).argsort(-1)
            index = order[:, : tokens // 2].to(torch.int32).contiguous()
            for op, functions in candidates(x, index):
                bench(f"{op} {batch} x {tokens} x {channels}", device, functions)
