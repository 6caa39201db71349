# SPDX-License-Identifier: Apache-2.0
"""Attention beside PyTorch's, on every device: opdock bench plugins/attention"""

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices

# Batch, queries, heads, heads of keys, keys, elements.
DECODE = [(32, 1, 32, 8, 4096, 128), (64, 1, 64, 64, 8192, 128), (1, 1, 32, 32, 4096, 128)]
PROMPTS = [(1, 2048, 32, 32, 2048, 128), (4, 2048, 12, 12, 2048, 64), (1, 512, 32, 8, 512, 128)]


def tensors(shape, dtype, device):
    """q [B, S, H, D], k and v [B, L, KV, D]."""
    batch, queries, heads, kv, keys, size = shape
    make = {"device": device, "dtype": dtype}
    q = torch.randn(batch, queries, heads, size, **make)
    return q, *(torch.randn(batch, keys, kv, size, **make) for _ in range(2))


def both(q, k, v):
    """{whose: function} of the attention of q over k and v; causal, if q has several tokens."""
    causal = q.shape[1] > 1
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    grouped = q.shape[2] != k.shape[2]
    return {
        "opdock": lambda: opdock.ops.attention(q, k, v, causal=causal),
        "torch": lambda: F.scaled_dot_product_attention(
            *swapped, is_causal=causal, enable_gqa=grouped
        ),
    }


def name_of(shape):
    batch, queries, heads, kv, keys, size = shape
    return f"B{batch} S{queries} H{heads} KV{kv} L{keys} D{size}"


def candidates(x):
    """What tests/bench/gpu_ops.py times of each shape: none, as rows are no heads."""
    return iter(())


def cpu_candidates(shape, dtype):
    """What tests/bench/cpu_ops.py times: of attention scores their attention, of 64 elements."""
    if len(shape) != 4 or shape[2] != shape[3]:
        return
    batch, heads, queries, keys = shape
    q, k, v = tensors((batch, queries, heads, heads, keys, 64), dtype, "cpu")
    for whose, function in both(q, k, v).items():
        yield "attention causal", whose, function
    for whose, function in both(q[:, :1], k, v).items():
        yield "attention decode", whose, function


def extra_cases(dtype):
    """What gpu_ops.py times too: (op, case, bytes moved, {whose: function}, x). A token over the
    cache of keys and values, which are the bytes; cases are named by DECODE's numbers."""
    for shape in DECODE:
        q, k, v = tensors(shape, dtype, "cuda")
        case, moved = "x".join(map(str, shape)), 2 * k.numel() * k.element_size()
        yield "attention", case, moved, both(q, k, v), q
        if dtype == torch.float32:
            continue
        cache = [torch.randint(-127, 128, k.shape, dtype=torch.int8, device="cuda") for _ in "kv"]
        scales = [torch.rand(k.shape[:3], device="cuda") / 127 for _ in "kv"]
        functions = {
            "opdock": lambda q=q, cache=cache, scales=scales: opdock.ops.attention(
                q, *cache, k_scale=scales[0], v_scale=scales[1]
            )
        }
        yield "attention", f"{case} int8", moved // k.element_size(), functions, q


if __name__ == "__main__":
    for device in devices():
        for shape in DECODE + PROMPTS if device == "cuda" else [(1, 256, 12, 12, 256, 64)]:
            for dtype in (torch.float32, torch.bfloat16):
                label = f"attention {name_of(shape)} {dtype}".replace("torch.", "")
                bench(label, device, both(*tensors(shape, dtype, device)))
