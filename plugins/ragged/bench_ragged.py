# SPDX-License-Identifier: Apache-2.0
"""Compares the ops of ragged with PyTorch on every device: opdock bench plugins/ragged

The bytes that an op reads and writes are compared with a copy of as many (tests/bench/gpu_ops.py);
attention of decoded tokens, with torch's over gathered keys."""

import torch
import torch.nn.functional as F

import opdock
from opdock.testing import bench, devices

OPS = opdock.ops


class Batch:
    """`count` sequences with `tokens` new tokens each, after `seen` others, in blocks of 64."""

    def __init__(self, device, count, tokens, seen, heads=32, kv=8, size=128, dtype=torch.bfloat16):
        numbers = {"dtype": torch.int32, "device": device}
        each = -(-(tokens + seen) // 64)
        self.heads, self.kv, self.size = heads, kv, size
        self.counts = torch.tensor([count * tokens, count], **numbers)
        rows = [[s * tokens, tokens, seen, 0] for s in range(count)]
        self.sequences = torch.tensor(rows, **numbers)
        self.owners = torch.arange(count, **numbers).repeat_interleave(tokens)
        self.table = torch.randperm(count * each).view(count, each).to(**numbers)
        atoms = []
        for s in range(count):
            for first in range(0, tokens, 64):
                queries = min(64, tokens - first)
                keys = seen + first + queries
                atoms.append(
                    [s, 0, s * tokens + first, queries, -(-keys // 64), keys, seen + first, 0]
                )
        self.atoms = torch.tensor(atoms, **numbers)
        kind = {"dtype": dtype, "device": device}
        self.cache = torch.randn(count * each, 64, 2, kv, size, **kind)
        self.qkv = torch.randn(count * tokens, (heads + 2 * kv) * size, **kind)
        self.frequencies = 10000.0 ** (-torch.arange(0, size, 2, device=device).float() / size)

    def parts(self):
        return self.qkv.split([n * self.size for n in (self.heads, self.kv, self.kv)], 1)

    def append(self, rotates):
        q, k, v = self.parts()
        more = (q, self.frequencies) if rotates else ()
        of = (self.counts, self.sequences, self.owners, self.table)
        return lambda: OPS.append_blocks(k, v, self.cache, *of, *more)

    def attend(self):
        q, out = self.parts()[0], torch.empty_like(self.parts()[0].contiguous())
        k, v = self.cache.unbind(2)
        return lambda: OPS.attention_by_atoms(out, q, k, v, self.atoms, self.table)

    def torch_attend(self):
        """Returns torch's attention, of which gathering the keys is a part: it has no blocks."""
        count, tokens = len(self.table), self.qkv.shape[0] // len(self.table)
        keys = int(self.atoms[:, 5].max())
        q = self.parts()[0].view(count, tokens, self.heads, self.size).transpose(1, 2)
        at = torch.arange(keys, device=q.device)
        seen = at <= keys - tokens + torch.arange(tokens, device=q.device)[:, None]

        def call():
            own = self.cache[self.table.long()].flatten(1, 2)[:, :keys]
            k, v = (x.transpose(1, 2) for x in own.unbind(2))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)

        return call


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    count, width = x.shape
    bias = torch.randn(width, device=x.device, dtype=x.dtype)
    out = torch.empty_like(x)
    options = {"activation": "silu", "out": out}
    yield "bias_activation", "opdock", 2, lambda: OPS.bias_activation(x, bias, **options)
    yield "bias_activation", "torch", 2, lambda: F.silu(x + bias)
    if width % 2 == 0:
        yield "interleaved_gate", "opdock", 1.5, lambda: OPS.interleaved_gate(x)
        yield "interleaved_gate", "torch", 1.5, lambda: F.silu(x[:, ::2]) * x[:, 1::2]
    numbers = {"dtype": torch.int32, "device": x.device}
    ids = torch.randperm(count, device=x.device)
    of = (
        torch.tensor([count, 1], **numbers),
        torch.tensor([[0, count, 0, 0]], **numbers),
        torch.zeros(count, **numbers),
    )
    yield "ragged_embed", "opdock", 2, lambda: OPS.ragged_embed(x, ids, *of)
    yield "ragged_embed", "torch", 2, lambda: F.embedding(ids, x)


def functions(device, tokens):
    """Yields (label, {whose: function})."""
    small = device == "cpu"
    dtype = torch.float32 if small else torch.bfloat16
    width = 512 if small else 4096
    kind = {"device": device, "dtype": dtype}
    x, bias = torch.randn(tokens, width, **kind), torch.randn(width, **kind)
    batch = Batch(device, 1, tokens, 0, **({"heads": 8, "kv": 2} if small else {}), dtype=dtype)
    table = torch.randn(4096, width, **kind)
    ids = torch.randint(4096, (tokens,), device=device)
    of = (batch.counts, batch.sequences, batch.owners)
    yield "copy", {"torch": x.clone}
    yield (
        "bias_activation silu",
        {
            "opdock": lambda: OPS.bias_activation(x, bias, activation="silu", out=x),
            "torch": lambda: F.silu(x + bias),
        },
    )
    yield (
        "interleaved_gate silu",
        {
            "opdock": lambda: OPS.interleaved_gate(x),
            "torch": lambda: F.silu(x[:, ::2]) * x[:, 1::2],
        },
    )
    yield (
        "ragged_embed",
        {
            "opdock": lambda: OPS.ragged_embed(table, ids, *of),
            "torch": lambda: F.embedding(ids, table),
        },
    )
    yield "append_blocks", {"opdock": batch.append(False)}
    yield "append_blocks rotated", {"opdock": batch.append(True)}
    logits = torch.randn(tokens, 8, **kind)
    found = OPS.top_k_gating(logits, batch.counts, 2)
    rows, _, slots = OPS.moe_scatter(x, found[0], *found[2:])
    yield (
        "top_k_gating 2 of 8",
        {
            "opdock": lambda: OPS.top_k_gating(logits, batch.counts, 2),
            "torch": lambda: logits.float().softmax(-1).topk(2),
        },
    )
    yield "moe_scatter", {"opdock": lambda: OPS.moe_scatter(x, found[0], *found[2:])}
    yield "moe_gather", {"opdock": lambda: OPS.moe_gather(rows, found[1], slots)}


def main():
    for device in devices():
        for tokens in (16, 512) if device == "cpu" else (16, 512, 16384):
            for label, ways in functions(device, tokens):
                bench(f"{label}, {tokens} tokens", device, ways)
        few = {"heads": 8, "kv": 2, "dtype": torch.float32} if device == "cpu" else {}
        shapes = (
            [(4, 1, 500), (1, 200, 0)]
            if device == "cpu"
            else [
                (64, 1, 2000),
                (8, 1, 16000),
                (1, 2048, 0),
                (16, 128, 1000),
            ]
        )
        for count, tokens, seen in shapes:
            batch = Batch(device, count, tokens, seen, **few)
            label = f"attention of {count} x {tokens} tokens after {seen}"
            bench(label, device, {"opdock": batch.attend(), "torch": batch.torch_attend()})


if __name__ == "__main__":
    main()
