# SPDX-License-Identifier: Apache-2.0
"""Compares attention with PyTorch's on every device: opdock bench plugins/attention

A token over the cache, in 16 bits, is also compared with FlashInfer's kernels (flashinfer-python
0.7.2), if that can be imported."""

import functools

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import opdock
from opdock.testing import bench, devices

# Batch, queries, heads, heads of keys, keys, elements.
DECODE = [(32, 1, 32, 8, 4096, 128), (64, 1, 64, 64, 8192, 128), (1, 1, 32, 32, 4096, 128)]
PAGE = 16  # tokens of a page of FlashInfer's caches; the size that servers use
TORCH_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]
TORCH_KERNELS += [SDPBackend.EFFICIENT_ATTENTION]
TRAINED = [(4, 2048, 32, 32, 2048, 128), (4, 2048, 32, 8, 2048, 128), (1, 8192, 16, 16, 8192, 64)]
TRAINED += [(1, 512, 32, 32, 512, 128)]
PROMPTS = [(1, 2048, 32, 32, 2048, 128), (4, 2048, 12, 12, 2048, 64), (1, 512, 32, 8, 512, 128)]


def tensors(shape, dtype, device):
    """Returns q [B, S, H, D], and k and v [B, L, KV, D]."""
    batch, queries, heads, kv, keys, size = shape
    make = {"device": device, "dtype": dtype}
    q = torch.randn(batch, queries, heads, size, **make)
    return q, *(torch.randn(batch, keys, kv, size, **make) for _ in range(2))


def both(q, k, v):
    """Returns {whose: function} for the attention of q over k and v; causal if q has several
    tokens."""
    causal = q.shape[1] > 1
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    grouped = q.shape[2] != k.shape[2]
    return {
        "opdock": lambda: opdock.ops.attention(q, k, v, causal=causal),
        "torch": lambda: F.scaled_dot_product_attention(
            *swapped, is_causal=causal, enable_gqa=grouped
        ),
    }


def training(q, k, v):
    """Returns {what: function} for the forward pass, causal, and for the gradients of q, k and v,
    of Opdock and of each of torch's kernels that takes these tensors."""
    grad = torch.randn_like(q)
    result, lse = opdock.ops.attention_forward(q, k, v, causal=True)
    found = {
        "opdock": lambda: opdock.ops.attention_forward(q, k, v, causal=True),
        "opdock backward": lambda: opdock.ops.attention_backward(
            grad, q, k, v, result, lse, causal=True
        ),
    }
    swapped = [x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
    for kernel in TORCH_KERNELS:

        def forward(kernel=kernel):
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(
                    *swapped, is_causal=True, enable_gqa=q.shape[2] != k.shape[2]
                )

        try:
            out = forward()
        except RuntimeError:
            continue  # not for this device, dtype or grouped queries
        name = kernel.name.split("_")[0].lower()
        given = grad.transpose(1, 2)
        found[name] = forward
        found[f"{name} backward"] = lambda out=out, given=given: torch.autograd.grad(
            out, swapped, given, retain_graph=True
        )
    return found


def flashinfer(q, k, v):
    """Returns {whose: function} for FlashInfer's attention of a token: by its CUDA core kernel, by
    its tensor core kernel ("mma"), by the kernel that it takes from TensorRT-LLM ("xqa"), and for a
    single sequence by the kernel without pages ("one"). Returns {} if it has none for this case, or
    is not installed. k and v are read in place, as pages in order."""
    if q.device.type != "cuda" or q.shape[1] > 1 or q.dtype == torch.float32:
        return {}
    try:
        import flashinfer
    except Exception:  # also errors of what it imports; tests/bench/peers.py reports them
        return {}
    batch, keys, kv, size = k.shape
    heads, rows = q.shape[2], q[:, 0]
    pages = tuple(x.view(-1, PAGE, kv, size) for x in (k, v))
    make = {"dtype": torch.int32, "device": q.device}
    table = torch.arange(len(pages[0]), **make)

    def workspace():
        return torch.zeros(128 << 20, dtype=torch.uint8, device=q.device)

    # Made once, by the first call, which is not timed: in a model one plan serves all layers.
    @functools.cache
    def planned(tensor_cores):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace(), use_tensor_cores=tensor_cores
        )
        first = torch.arange(batch + 1, **make) * (keys // PAGE)
        last = torch.full((batch,), PAGE, **make)
        wrapper.plan(first, table, last, heads, kv, size, PAGE, q_data_type=q.dtype)
        return wrapper

    @functools.cache
    def xqa():
        lengths = torch.full((batch,), keys, **make).to(torch.uint32)
        args = (workspace(), table.view(batch, -1), lengths, keys, size**-0.5)
        return lambda: flashinfer.decode.xqa_batch_decode_with_kv_cache(rows, pages, *args)

    functions = {
        "FlashInfer": lambda: planned(False).run(rows, pages),
        "FlashInfer mma": lambda: planned(True).run(rows, pages),
        "FlashInfer xqa": lambda: xqa()(),
    }
    if batch == 1:
        one = flashinfer.single_decode_with_kv_cache
        functions["FlashInfer one"] = lambda: one(q[0, 0], k[0], v[0])
    return functions


def name_of(shape):
    batch, queries, heads, kv, keys, size = shape
    return f"B{batch} S{queries} H{heads} KV{kv} L{keys} D{size}"


# Queries [batch, tokens, heads, elements] of the prompts that `opdock bench --tune` measures by own
# kernels and by the host's attention service.
SHAPES = {
    "cuda": [
        (batch, tokens, heads, size)
        for size in (64, 128)
        for batch, heads in ((1, 32), (4, 32))
        for tokens in (128, 256, 512, 1024, 2048, 4096)
    ],
    "cpu": [],
}
DTYPES = [torch.bfloat16]  # float16 takes the same time, and other dtypes have no service


def candidates(x):
    """Yields the calls that `opdock bench --tune` measures for queries x: causal prompts, and their
    gradients. Nothing for rows, which tests/bench/gpu_ops.py asks for, because rows are no
    heads."""
    if x.dim() != 4:
        return
    grad, call = torch.randn_like(x), {"causal": True}
    result, lse = opdock.ops.attention_forward(x, x, x, **call)
    backward = functools.partial(opdock.ops.attention_backward, grad, x, x, x, result, lse, **call)
    yield "attention", "opdock", 4, functools.partial(opdock.ops.attention, x, x, x, **call)
    yield "attention_backward", "opdock", 8, backward


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function). For a shape of attention
    scores, their attention with heads of 64 elements."""
    if len(shape) != 4 or shape[2] != shape[3]:
        return
    batch, heads, queries, keys = shape
    q, k, v = tensors((batch, queries, heads, heads, keys, 64), dtype, "cpu")
    for whose, function in both(q, k, v).items():
        yield "attention causal", whose, function
    for whose, function in both(q[:, :1], k, v).items():
        yield "attention decode", whose, function


def int8(q, k):
    """Returns a call of attention over int8 keys and values shaped like k, with a scale for each
    token and head."""
    cache = [torch.randint(-127, 128, k.shape, dtype=torch.int8, device=k.device) for _ in "kv"]
    scales = {n: torch.rand(k.shape[:3], device=k.device) / 127 for n in ("k_scale", "v_scale")}
    return lambda: opdock.ops.attention(q, *cache, **scales)


def checked_calls(dtype):
    """Yields calls that sanitizer.py makes in addition: tokens over caches, split and whole, and
    prompts; each also with keys by columns."""
    for shape in ((2, 1, 8, 2, 1000, 128), (1, 1, 3, 3, 77, 64), (1, 130, 4, 2, 136, 64)):
        q, k, v = tensors(shape, dtype, "cuda")
        by_columns = k.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        yield both(q, k, v)["opdock"]
        yield both(q, by_columns, v)["opdock"]
        if dtype != torch.float32:
            yield int8(q, k)


def extra_cases(dtype):
    """Yields what gpu_ops.py times in addition: (op, case, bytes moved, {whose: function}, x), for
    a token over the cache of keys and values, whose bytes are counted. Cases are named by DECODE's
    numbers."""
    for shape in DECODE:
        q, k, v = tensors(shape, dtype, "cuda")
        case, moved = "x".join(map(str, shape)), 2 * k.numel() * k.element_size()
        yield "attention", case, moved, both(q, k, v) | flashinfer(q, k, v), q
        if dtype == torch.float32:
            continue
        yield "attention", f"{case} int8", moved // k.element_size(), {"opdock": int8(q, k)}, q


if __name__ == "__main__":
    for device in devices():
        for shape in DECODE + PROMPTS if device == "cuda" else [(1, 256, 12, 12, 256, 64)]:
            for dtype in (torch.float32, torch.bfloat16):
                label = f"attention {name_of(shape)} {dtype}".replace("torch.", "")
                made = tensors(shape, dtype, device)
                bench(label, device, both(*made) | flashinfer(*made))
        for shape in TRAINED if device == "cuda" else [(1, 256, 12, 12, 256, 64)]:
            for dtype in (torch.float32, torch.bfloat16):
                label = f"training {name_of(shape)} {dtype}".replace("torch.", "")
                bench(label, device, training(*tensors(shape, dtype, device)))
