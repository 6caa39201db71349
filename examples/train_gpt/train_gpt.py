# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the bytes of a text, plain and patched, and compares the loss curves.

    python train_gpt.py [--steps 300] [--text FILE] [--device cuda] [--plot curves.svg]

Both runs begin with the same weights and see the same batches; a third, plain run has another
seed. The patched one has to stay as near to the plain one as runs of two seeds are to each other.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import opdock.torch


class Block(nn.Module):
    """One layer of a GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = nn.GELU()

    def attend(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        total = x + self.attend(self.norm1(x))
        normed = self.norm2(total)
        return total + self.proj(self.act(self.fc(normed)))


class GPT(nn.Module):
    """A GPT whose tokens are bytes; calling it returns the mean loss of the next tokens."""

    def __init__(self, width=64, heads=4, layers=2, context=32, vocabulary=256):
        super().__init__()
        self.context = context
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids[:, :-1]) + self.positions.weight[: ids.shape[1] - 1]
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(text, steps, seed=1, patched=False, device="cpu", rows=8):
    """Returns (the loss of each step, patch()'s report or None). text: bytes."""
    torch.manual_seed(seed)
    model = GPT().to(device)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    begins = torch.randint(0, len(data) - model.context, (steps, rows))
    batches = data[begins[..., None] + torch.arange(model.context + 1)].to(device)
    report = opdock.torch.patch(model, measure=batches[0]) if patched else None
    optimizers = opdock.torch.optim if patched else torch.optim
    optimizer = optimizers.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist(), report


def largest_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def plot(path, curves):
    """Writes the curves, {name: numbers}, as a picture."""
    colours = ("#1f77b4", "#d62728", "#999999")
    top = max(max(values) for values in curves.values())
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 400" font-size="14">']
    lines.append('<rect width="640" height="400" fill="white"/>')
    for i, (name, values) in enumerate(curves.items()):
        step = 600 / max(1, len(values) - 1)
        points = " ".join(f"{20 + j * step:.1f},{380 - 360 * v / top:.1f}" for j, v in
                          enumerate(values))  # fmt: skip
        dashed = ' stroke-dasharray="6 4"' if i == 1 else ""
        colour = colours[i % len(colours)]
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}"{dashed}/>')
        lines.append(f'<text x="380" y="{30 + 20 * i}" fill="{colour}">{name}</text>')
    lines.append(f'<text x="20" y="395">loss from 0 to {top:.2f}, steps</text></svg>')
    Path(path).write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--text", type=Path, default=Path(__file__))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--plot", metavar="FILE.svg")
    given = parser.parse_args()
    text = given.text.read_bytes()
    plain, _ = train(text, given.steps, device=given.device)
    patched, report = train(text, given.steps, patched=True, device=given.device)
    other, _ = train(text, given.steps, seed=2, device=given.device)
    print(report)
    difference, spread = largest_difference(plain, patched), largest_difference(plain, other)
    print(f"loss after {given.steps} steps: plain {plain[-1]:.4f}, patched {patched[-1]:.4f}")
    print(f"largest difference: patched {difference:.2e}, another seed {spread:.2e}")
    if given.plot:
        plot(given.plot, {"plain": plain, "patched": patched, "plain, another seed": other})
    return 0 if difference <= spread else 1


if __name__ == "__main__":
    sys.exit(main())
