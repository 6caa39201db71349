# SPDX-License-Identifier: Apache-2.0
"""Compares rope with PyTorch on every device: opdock bench plugins/rope"""

import functools

import torch

import opdock
from opdock.testing import bench, devices

SIZE = 128  # elements of a head


@functools.cache  # cached, so that only the call is timed
def op(name="rope"):
    return opdock.load(f"rope/{name}")


def split(x, size=SIZE):
    """Returns rows of x as (q, k): each row is a token, and every fifth of its heads is a key."""
    heads = x.unflatten(-1, (-1, size))
    keys = max(1, heads.shape[1] // 5)
    return heads[:, :-keys], heads[:, -keys:]


def tables(x, size=SIZE):
    """Returns (cosines, sines, positions) for as many positions as x has rows. The tables are in
    x's dtype, as models make them and the peers receive them."""
    inverse = 10000.0 ** (-torch.arange(0, size, 2, device=x.device) / size)
    angles = torch.arange(len(x), device=x.device)[:, None] * inverse
    return (
        angles.cos().to(x.dtype),
        angles.sin().to(x.dtype),
        torch.arange(len(x), device=x.device),
    )


def bytes_of(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def usual(interleaved, cos, sin, positions):
    """Returns what a user of PyTorch writes: a function of q and k, with tables prepared in
    advance."""
    if interleaved:
        cos, sin = (table.repeat_interleave(2, -1) for table in (cos, sin))
    else:
        cos, sin = (torch.cat([table, table], -1) for table in (cos, sin))

    def partner(x):
        if interleaved:
            return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)

    def rope(q, k):
        c, s = (table[positions][:, None].to(q.dtype) for table in (cos, sin))
        return q * c + partner(q) * s, k * c + partner(k) * s

    return rope


def pair(x, size=SIZE, interleaved=False):
    """Returns (the op applied to x, PyTorch's function applied to x)."""
    (q, k), args = split(x, size), tables(x, size)
    theirs = usual(interleaved, *args)
    return lambda: op()(q, k, *args, interleaved=interleaved), lambda: theirs(q, k)


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    if x.shape[-1] % (2 * SIZE):
        return
    moved = 2 + bytes_of(*tables(x)) / bytes_of(x)  # the tables and positions are also read
    for name, interleaved in (("rope", False), ("rope_interleaved", True)):
        ours, theirs = pair(x, interleaved=interleaved)
        yield name, "opdock", moved, ours
        yield name, "torch", moved, theirs


def extra_cases(dtype):
    """Yields what gpu_ops.py times in addition: (op, case, bytes moved, {whose: function}, x). q
    and k have 40 and 60 heads; also packed with v and rotated in place; and with a quarter of each
    head rotated."""
    for tokens, keys in ((16, 8), (8192, 8), (8192, 12)):
        x = torch.randn(tokens, 5 * keys * SIZE, device="cuda", dtype=dtype)
        bytes_moved = 2 * bytes_of(x) + bytes_of(*tables(x))
        ours, theirs = pair(x)
        case = f"{tokens}x{x.shape[-1]}"
        yield "rope", case, bytes_moved, {"opdock": ours, "torch": theirs}, x
        v = torch.randn(tokens, keys * SIZE, device="cuda", dtype=dtype)
        (q, k), args = split(torch.cat([x, v], -1)[:, : x.shape[-1]]), tables(x)
        ours = {"opdock": lambda q=q, k=k, args=args: op()(q, k, *args, out=(q, k))}
        yield "rope", f"{case} in_place", bytes_moved, ours, x
        cos, sin = (table[:, : SIZE // 8].contiguous() for table in args[:2])
        ours = {"opdock": lambda q=q, k=k, c=cos, s=sin, at=args[2]: op()(q, k, c, s, at)}
        bytes_moved = 2 * bytes_of(x) + bytes_of(cos, sin, args[2])
        yield "rope", f"{case} quarter", bytes_moved, ours, x


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) != 2:
        return
    x = torch.randn(shape).to(dtype)
    for name, interleaved in (("rope", False), ("rope_interleaved", True)):
        ours, theirs = pair(x, 64 if shape[-1] < 1024 else SIZE, interleaved)
        yield name, "opdock", ours
        yield name, "torch", theirs


if __name__ == "__main__":
    for device in devices():
        for shape in [(64, 5120), (8192, 5120)] if device == "cuda" else [(64, 5120)]:
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.randn(shape, device=device, dtype=dtype)
                ours, theirs = pair(x)
                label = f"rope {shape} {dtype}".replace("torch.", "")
                bench(label, device, {"opdock": ours, "torch": theirs})
