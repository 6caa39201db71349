# SPDX-License-Identifier: Apache-2.0
"""An attention layer that keeps the keys and values of earlier tokens in a cache of fixed size."""

import torch
from torch.nn import functional as F

from opdock._errors import ArgumentError
from opdock.torch import _swaps

_OPS = torch.ops.opdock
#: torch's function, or the op where that was measured to be faster; both train.
_attention = _swaps.FUNCTIONS[F.scaled_dot_product_attention]


class KVCache:
    """Keys and values of the tokens that a layer has seen, and how many these are.

    All of it is on the device and stays at its addresses, so that a captured step can be replayed.
    """

    def __init__(self, batch, length, heads, head_dim, *, device=None, dtype=None):
        # The tokens of one head lie one after the other, as attention reads them.
        shape = batch, heads, length, head_dim
        self.keys, self.values = (
            torch.zeros(shape, device=device, dtype=dtype).transpose(1, 2) for _ in range(2)
        )
        #: int32 [batch]: how many tokens each row has. Write to it to cut rows off.
        self.lengths = torch.zeros(batch, device=device, dtype=torch.int32)

    def reset(self):
        """Forgets all tokens."""
        self.lengths.zero_()


class Attention(torch.nn.Module):
    """Self-attention with the parameters of torch.nn.MultiheadAttention: in_proj_weight,
    in_proj_bias and out_proj, so that it loads its state_dict.

    num_kv_heads: heads of keys and values, a divisor of num_heads; all by default. With fewer,
    in_proj_weight has fewer rows than torch's. rotary: an opdock.torch.nn.RotaryEmbedding that
    rotates queries and keys, or None.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        *,
        num_kv_heads=None,
        bias=True,
        rotary=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if embed_dim % num_heads or num_heads % num_kv_heads:
            raise ArgumentError(
                f"Attention: found embed_dim={embed_dim}, num_heads={num_heads}, "
                f"num_kv_heads={num_kv_heads}, wanted each to be a multiple of the next; change one"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim = embed_dim // num_heads
        self.rotary = rotary
        rows = (num_heads + 2 * num_kv_heads) * self.head_dim
        made = {"device": device, "dtype": dtype}
        self.in_proj_weight = torch.nn.Parameter(torch.empty(rows, embed_dim, **made))
        self.in_proj_bias = torch.nn.Parameter(torch.zeros(rows, **made)) if bias else None
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        torch.nn.init.xavier_uniform_(self.in_proj_weight)
        if bias:
            torch.nn.init.zeros_(self.out_proj.bias)

    def extra_repr(self):
        return f"{self.embed_dim}, {self.num_heads}, num_kv_heads={self.num_kv_heads}"

    def new_cache(self, batch, length):
        """Returns an empty cache for `batch` rows of at most `length` tokens."""
        weight = self.in_proj_weight
        return KVCache(
            batch,
            length,
            self.num_kv_heads,
            self.head_dim,
            device=weight.device,
            dtype=weight.dtype,
        )

    def forward(self, x, cache=None, is_causal=True):
        """Returns the layer's result, [batch, tokens, embed_dim].

        x: new tokens, [batch, tokens, embed_dim]. cache: a KVCache, to which they are added, and
        whose earlier tokens they see; the ops append_kv and attention then do the work, of which
        the first records no gradient. None: the tokens see only each other, and the layer trains:
        by the op attention_forward or by torch's scaled_dot_product_attention, whichever was
        measured to be faster. A cache without room for the tokens is an error on the CPU; on a GPU
        the rows become NaN.
        """
        batch, tokens, _ = x.shape
        heads = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        q, k, v = (
            F.linear(x, self.in_proj_weight, self.in_proj_bias)
            .view(batch, tokens, -1, self.head_dim)
            .split(heads, 2)
        )
        if cache is not None:
            mixed = self._with_cache(q, k, v, cache, is_causal)
        else:
            if self.rotary is not None:
                q, k = self.rotary(q, k)
            mixed = _attention(
                *(one.transpose(1, 2) for one in (q, k, v)),
                is_causal=is_causal,
                enable_gqa=self.num_heads != self.num_kv_heads,
            ).transpose(1, 2)
        return self.out_proj(mixed.reshape(batch, tokens, self.embed_dim))

    def _with_cache(self, q, k, v, cache, is_causal):
        rotary = self.rotary
        tables = (None, None) if rotary is None else (rotary.cos, rotary.sin)
        q = _OPS.append_kv(
            q,
            k,
            v,
            cache.keys,
            cache.values,
            cache.lengths,
            *tables,
            interleaved=rotary is not None and rotary.interleaved,
        )
        cache.lengths += q.shape[1]
        return _OPS.attention(q, cache.keys, cache.values, lengths=cache.lengths, causal=is_causal)
