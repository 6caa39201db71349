# SPDX-License-Identifier: Apache-2.0
"""Attention written out in float64 over the whole sequence, and the binding's call of one layer."""

import math

import torch
from inference_cases import NONE, assert_attention_close, exact

from opdock.compat.deepspeed import inference


class Case:
    """A layer's shape and options, and the argument lists of both versions."""

    def __init__(self, suffix, heads=4, size=16, key_heads=0, **options):
        self.suffix, self.heads, self.size = suffix, heads, size
        self.key_heads = key_heads or heads
        self.rotary_dim = options.pop("rotary_dim", 0)
        self.half, self.pairs = options.pop("half", False), options.pop("pairs", False)
        self.triangular = options.pop("triangular", True)
        self.window = options.pop("window", 0)
        self.theta = options.pop("theta", 10000.0)
        self.norm_factor = options.pop("norm_factor", size**-0.25)
        assert not options

    @property
    def width(self):
        """The last dimension of query_key_value."""
        return (self.heads + 2 * self.key_heads) * self.size

    def call(self, qkv, mask=None, layer=0, layers=1, alibi=None, new=True, **of_0_19_8):
        """Calls softmax_context for one layer, as DeepSpeed 0.19.8 (`new`) or 0.7.7 calls it."""
        mask, alibi = (NONE if t is None else t for t in (mask, alibi))
        rotary = (self.rotary_dim, self.half, self.pairs, self.heads)
        rest = (self.norm_factor, self.triangular, self.window > 0, self.window, False)
        rest += (layer, layers, alibi)
        function = getattr(inference, f"softmax_context_{self.suffix}")
        if not new:
            assert self.key_heads == self.heads and self.theta == 10000.0 and not of_0_19_8
            return function(qkv, mask, *rotary, *rest)
        of_0_19_8 = {"is_prompt": True, "token_idx": None, "position_ids": None, **of_0_19_8}
        num_kv = -1 if self.key_heads == self.heads else self.key_heads
        return function(qkv, mask, *rotary, num_kv, *rest, self.theta, *of_0_19_8.values())


class Oracle:
    """Computes a layer in float64. Keeps all keys and values of a sequence."""

    def __init__(self, case):
        self.case = case
        self.keys = self.values = None

    def _rotate(self, x, positions):
        """Rotates x [batch, length, heads, size] by the angles of positions [batch or 1,
        length]."""
        case, r = self.case, self.case.rotary_dim
        if not r or not (case.half or case.pairs):
            return x
        frequency = case.theta ** (-torch.arange(0, r, 2, dtype=torch.float64) / r)
        angle = (exact(positions)[..., None] * frequency)[:, :, None]
        y = x.clone()
        first = slice(0, r, 2) if case.pairs else slice(0, r // 2)
        second = slice(1, r, 2) if case.pairs else slice(r // 2, r)
        a, b = x[..., first], x[..., second]
        y[..., first] = a * torch.cos(angle) - b * torch.sin(angle)
        y[..., second] = b * torch.cos(angle) + a * torch.sin(angle)
        return y

    def step(self, qkv, mask=None, alibi=None, positions=None):
        """Returns the output for a prompt (several tokens, which begin a sequence) or for one more
        token.

        mask: is added, broadcast to [batch, heads, queries, keys]; alibi is laid out as
        DeepSpeed's."""
        case = self.case
        batch, length, _ = qkv.shape
        x = exact(qkv).view(batch, length, -1, case.size)
        q, k, v = x.split((case.heads, case.key_heads, case.key_heads), 2)
        if length > 1:
            self.keys = self.values = None
        past = 0 if self.keys is None else self.keys.shape[1]
        if positions is None:
            positions = torch.arange(past, past + length)[None]
        q, k = self._rotate(q, positions), self._rotate(k, positions)
        q, k = (t.to(qkv.dtype).double() for t in (q, k))  # rounded as the cache keeps them
        self.keys = k if past == 0 else torch.cat([self.keys, k], 1)
        self.values = v if past == 0 else torch.cat([self.values, v], 1)
        return self._attend(q, mask, alibi).reshape(batch, length, -1)

    def check(self, found, qkv, mask=None, alibi=None, positions=None):
        """Checks that `found`, softmax_context's output, equals that of step()."""
        wanted = self.step(qkv, mask, alibi, positions)
        assert_attention_close(found, wanted, self.values, self.case.suffix)

    def _attend(self, q, mask, alibi):
        case, (batch, length) = self.case, q.shape[:2]
        total = self.keys.shape[1]
        out = torch.zeros_like(q)
        query = torch.arange(total - length, total)[:, None]
        key = torch.arange(total)[None]
        hidden = torch.zeros(length, total, dtype=torch.bool)
        if case.triangular and length > 1:
            hidden |= key > query
        if case.window:
            hidden |= key <= query - case.window
        for b in range(batch):
            for h in range(case.heads):
                g = h // (case.heads // case.key_heads)
                scores = q[b, :, h] @ self.keys[b, :, g].t() * case.norm_factor**2
                if alibi is not None:
                    scores = scores + exact(alibi)[b * case.heads + h]
                if mask is not None:
                    scores = scores + exact(mask).expand(batch, 1, length, total)[b, 0]
                scores = scores.masked_fill(hidden, -math.inf)
                top = scores.max(-1, keepdim=True).values
                e = torch.exp(scores - top)
                out[b, :, h] = (e / e.sum(-1, keepdim=True)) @ self.values[b, :, g]
        return out
