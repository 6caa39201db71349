# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding: the tables of angles, and the function that rotates queries and keys."""

import functools

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    check_dims,
    refuse,
    refuse_count,
    without_gradients,
)
from opdock.compat.deepspeed.inference.padding import check_heads

_MIN_TOKENS = (
    1024  # least number of tokens in a table; longer tables have a power of two times as many
)
_FORMS = {7: "DeepSpeed 0.7.7, a bool last, and 0.19.8, rope_theta last"}


@functools.lru_cache(maxsize=32)
def _tables(length, rotary_dim, theta, device):
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    angles = torch.arange(length, dtype=torch.float64)[:, None] * theta**-exponents
    return angles.cos().float().to(device), angles.sin().float().to(device)


def tables(length, rotary_dim, theta, device):
    """Returns cos and sin, float32 [at least `length`, rotary_dim / 2].

    Row p has the angles p * theta ** (-2 i / rotary_dim). The tables are cached and shared by all
    callers, so they must not be written.
    """
    rounded = _MIN_TOKENS
    while rounded < length:
        rounded *= 2
    return _tables(rounded, rotary_dim, float(theta), device)


def check_rotary(at, rotary_dim, head_size):
    """Checks that rotary_dim is even and at most head_size."""
    if rotary_dim % 2 or rotary_dim > head_size:
        wanted = f"an even number of at most {head_size}, a head's elements"
        refuse(at, "rotary_dim", rotary_dim, wanted, "check the model's configuration")


def pairing(at, rotate_half, rotate_every_two):
    """Returns True to rotate pairs of neighbours, False to rotate halves, None to rotate
    nothing."""
    if rotate_half and rotate_every_two:
        found = "rotate_half and rotate_every_two"
        refuse(at, "rotate_half", found, "one of them", "they are two forms of one embedding")
    return None if not (rotate_half or rotate_every_two) else bool(rotate_every_two)


@without_gradients
def apply_rotary_pos_emb(at, *arguments):
    """Rotates the first rotary_dim elements of each head, in place; returns [mixed_query,
    key_layer].

    The arguments are mixed_query, key_layer, rotary_dim, offset, num_heads, rotate_half, and last
    either a bool, rotate_every_two (0.7.7), or a number, rope_theta (0.19.8, whose kernel rotates
    halves whatever rotate_half says).

    mixed_query, key_layer: [batch, sequence, heads * size]; the keys may have fewer heads. Token s
    is at position offset + s. For a tensor with gaps a rotated copy is returned, and the tensor is
    not changed.
    """
    if len(arguments) != 7:
        refuse_count(at, len(arguments), _FORMS)
    query, key, rotary_dim, offset, heads, rotate_half, last = arguments
    check(at, mixed_query=query, key_layer=key)
    theta, interleaved = 10000.0, None
    if isinstance(last, bool):
        interleaved = pairing(at, rotate_half, last)
    else:
        theta, interleaved = float(last), False
    check_dims(at, "mixed_query", query, 3)
    check_dims(at, "key_layer", key, 3)
    check_heads(at, "mixed_query", query, heads)
    size = query.shape[-1] // heads
    if key.shape[-1] % size or key.shape[:2] != query.shape[:2]:
        found, wanted = (
            f"shape {tuple(key.shape)}",
            f"[{query.shape[0]}, {query.shape[1]}, n * {size}]",
        )
        refuse(at, "key_layer", found, wanted, "it has the queries' tokens and size of heads")
    check_rotary(at, rotary_dim, size)
    query, key = query.contiguous(), key.contiguous()
    if interleaved is None or rotary_dim <= 0:
        return [query, key]
    cos, sin = tables(offset + query.shape[1], rotary_dim, theta, query.device)
    cos, sin = (table[offset : offset + query.shape[1]] for table in (cos, sin))
    by_head = [tensor.unflatten(-1, (-1, size)) for tensor in (query, key)]
    _ops.rope(*by_head, cos, sin, interleaved=interleaved, out=tuple(by_head))
    return [query, key]


apply_rotary_pos_emb.more = {
    7: {
        "mixed_query": torch.Tensor,
        "key_layer": torch.Tensor,
        "rotary_dim": int,
        "offset": int,
        "num_heads": int,
        "rotate_half": bool,
        "rope_theta": float,
    }
}
