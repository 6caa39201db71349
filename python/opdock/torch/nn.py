# SPDX-License-Identifier: Apache-2.0
"""Layers with the constructor arguments and the state_dict of torch.nn's, on Opdock's ops.

A call that the ops cannot compute (another dtype or device, weights of classes, …) is torch's own,
so that a layer can take the place of torch's in any model. docs/reference/pytorch.md lists these.
"""

import torch

from opdock.torch import _functional
from opdock.torch._attention import Attention, KVCache

__all__ = [
    "Attention", "CrossEntropyLoss", "GeGLU", "KVCache", "LayerNorm", "RMSNorm", "RotaryEmbedding",
    "SwiGLU",
]  # fmt: skip


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm by the op layer_norm."""

    def forward(self, input):
        args = input, self.normalized_shape, self.weight, self.bias, self.eps
        if _functional.takes_layer_norm(*args):
            return _functional.layer_norm(*args)
        return super().forward(input)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm by the op rms_norm."""

    def forward(self, x):
        args = x, self.normalized_shape, self.weight, self.eps
        return (
            _functional.rms_norm(*args) if _functional.takes_rms_norm(*args) else super().forward(x)
        )


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss by the op cross_entropy: of classes in the last dimension, without
    weights."""

    def forward(self, input, target):
        options = {
            "ignore_index": self.ignore_index,
            "reduction": self.reduction,
            "label_smoothing": self.label_smoothing,
        }
        if self.weight is None and _functional.takes_cross_entropy(input, target, **options):
            return _functional.cross_entropy(input, target, **options)
        return super().forward(input, target)


class _Gated(torch.nn.Module):
    """An activation of one half of the last dimension times the other half, or of two tensors."""

    def forward(self, x, up=None):
        """Returns a * act(b) with a, b = x.chunk(2, -1): like torch.nn.GLU, the second half is the
        gate. Of two tensors act(x) * up: the first one is the gate, as in Llama's MLP."""
        if up is None:
            if _functional.takes_rows(x) and x.shape[-1] % 2 == 0:
                return self._of_halves(_functional.with_rows(x))
            up, x = x.chunk(2, -1)
        elif _functional.takes_gated(x, up):
            return self._of_two(x, up)
        return self._activated(x) * up


class SwiGLU(_Gated):
    """silu(gate) * up by the ops swiglu and silu_mul; it has no parameters."""

    def _of_halves(self, x):
        return torch.ops.opdock.swiglu(x)

    def _of_two(self, gate, up):
        return _functional.silu_mul(gate, up)

    def _activated(self, gate):
        return torch.nn.functional.silu(gate)


class GeGLU(_Gated):
    """gelu(gate) * up by the ops geglu and gelu_mul; it has no parameters.

    approximate: "none" or "tanh", as for torch.nn.GELU.
    """

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def extra_repr(self):
        return f"approximate={self.approximate!r}"

    def _of_halves(self, x):
        return torch.ops.opdock.geglu(x, None, self.approximate)

    def _of_two(self, gate, up):
        return _functional.gelu_mul(gate, up, self.approximate)

    def _activated(self, gate):
        return torch.nn.functional.gelu(gate, approximate=self.approximate)


class RotaryEmbedding(torch.nn.Module):
    """Rotates queries and keys by their positions, by the op rope; its tables are no part of the
    state_dict.

    dim: how many elements of a head are rotated, an even number; the rest is copied.
    max_positions: rows of the tables. base: angle i of a position p is p / base^(2 i / dim).
    interleaved: False: element i is paired with element i + dim / 2 (Llama); True: elements 2 i and
    2 i + 1 (GPT-J).
    dtype: of the tables, float32 or that of q and k.
    """

    def __init__(
        self,
        dim,
        max_positions=4096,
        base=10000.0,
        *,
        interleaved=False,
        device=None,
        dtype=torch.float32,
    ):
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(
                f"RotaryEmbedding: argument 'dim': found {dim}, wanted an even number; pass how "
                "many elements of a head are to be rotated"
            )
        self.dim, self.max_positions, self.base = dim, max_positions, base
        self.interleaved = interleaved
        # Computed in float64: in float32 the angles of long sequences lose digits.
        frequencies = base ** -(torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim)
        positions = torch.arange(max_positions, dtype=torch.float64, device=device)
        angles = torch.outer(positions, frequencies)
        self.register_buffer("cos", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(dtype), persistent=False)

    def extra_repr(self):
        more = ", interleaved=True" if self.interleaved else ""
        return f"{self.dim}, max_positions={self.max_positions}, base={self.base}{more}"

    def forward(self, q, k, positions=None):
        """Returns (q, k), rotated. q, k: [batch, sequence, heads, D], or [tokens, heads, D], with
        numbers of heads of their own. positions: int64 or int32, [batch, sequence], [sequence] or
        [tokens]; None: a sequence begins at 0."""
        cos, sin = self.cos, self.sin
        if cos.dtype not in (torch.float32, q.dtype):  # the module was converted, q was not
            cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        q, k = _functional.with_rows(q), _functional.with_rows(k)
        return torch.ops.opdock.rope(q, k, cos, sin, positions, self.interleaved)
