# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in plain PyTorch with a static cache: a peer of gpt2.py and, in float32, its reference."""

import torch
import torch.nn.functional as F
from gpt2 import EPS

LAYER = ("norm1", "qkv", "out", "norm2", "fc", "proj")


class Layer(torch.nn.Module):
    """One layer with its caches. All are buffers, so that torch.compile knows their addresses to be
    constant, and each is a tensor of its own, so that it writes one token and not the whole tensor.
    """

    def __init__(self, weights, number, sizes, batch, places):
        super().__init__()
        self.heads = sizes.heads
        for name in LAYER:
            for own in (name, name + "_b"):
                self.register_buffer(own, weights[f"{number}.{own}"])
        shape = (batch, sizes.heads, places, sizes.head_size)
        self.register_buffer("k_cache", self.qkv.new_zeros(shape))
        self.register_buffer("v_cache", self.qkv.new_zeros(shape))

    def forward(self, x, position, mask):
        """Runs the layer. x: [B, S, width]. position: int64 [1], of the new token, and mask: which
        tokens it sees, bool [1, 1, 1, places]. If they are None, x is a prompt, whose tokens see
        the earlier ones."""
        batch, length, width = x.shape
        h = F.layer_norm(x, (width,), self.norm1, self.norm1_b, EPS)
        qkv = F.linear(h, self.qkv, self.qkv_b).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if mask is None:
            self.k_cache[:, :, :length] = k
            self.v_cache[:, :, :length] = v
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            self.k_cache.index_copy_(2, position, k)
            self.v_cache.index_copy_(2, position, v)
            mixed = F.scaled_dot_product_attention(q, self.k_cache, self.v_cache, attn_mask=mask)
        x = x + F.linear(mixed.transpose(1, 2).reshape(x.shape), self.out, self.out_b)
        h = F.layer_norm(x, (width,), self.norm2, self.norm2_b, EPS)
        inner = F.gelu(F.linear(h, self.fc, self.fc_b), approximate="tanh")
        return x + F.linear(inner, self.proj, self.proj_b)


class TorchGPT2(torch.nn.Module):
    """Has the same arguments and methods as gpt2.OpdockGPT2."""

    def __init__(self, weights, sizes, batch, places):
        super().__init__()
        self.sizes, self.batch = sizes, batch
        self.blocks = torch.nn.ModuleList(
            Layer(weights, number, sizes, batch, places) for number in range(sizes.layers)
        )
        for name in ("wte", "wpe", "norm", "norm_b"):
            self.register_buffer(name, weights[name])
        for name, size in (("token", batch), ("position", 1), ("history", (places, batch))):
            zeros = torch.zeros(size, device=self.wte.device, dtype=torch.int64)
            self.register_buffer(name, zeros)
        self.register_buffer("places", torch.arange(places, device=self.wte.device))

    @torch.no_grad()
    def prompt(self, ids):
        length = ids.shape[1]
        self.history[:length] = ids.t()
        self.position.fill_(length)
        x = self._layers(ids, self.places[:length], None)
        return self._choose(x[:, -1])

    @torch.no_grad()
    def step(self):
        mask = (self.places <= self.position)[None, None, None]
        x = self._layers(self.token[:, None], self.position, mask)
        self.position.add_(1)
        return self._choose(x[:, -1])

    @torch.no_grad()
    def logits(self, ids, begin):
        """Returns the logits that follow each token of ids, int64 [B, S], from token `begin` on:
        [B, S - begin, vocabulary]. Overwrites the cache."""
        x = self._layers(ids, self.places[: ids.shape[1]], None)
        return self._head(x[:, begin:])

    def _layers(self, ids, positions, mask):
        x = F.embedding(ids, self.wte) + F.embedding(positions, self.wpe)
        for block in self.blocks:
            x = block(x, self.position, mask)
        return x

    def _head(self, x):
        h = F.layer_norm(x, x.shape[-1:], self.norm, self.norm_b, EPS)
        return F.linear(h, self.wte)[..., : self.sizes.vocabulary]

    def _choose(self, x):
        logits = self._head(x)
        self.token.copy_(logits.argmax(-1))
        self.history.index_copy_(0, self.position, self.token[None])
        return logits
