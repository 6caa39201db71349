# SPDX-License-Identifier: Apache-2.0
"""Softmax of attention scores that the program has computed."""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    optional,
    refuse,
    refuse_count,
    without_gradients,
)

_FORMS = {11: "DeepSpeed 0.7.7 and 0.19.8", 7: "their MoE layer"}


def mask_over_scores(at, mask, batch, queries, keys):
    """Returns the mask, of 2, 3 or 4 dimensions, as 4 that broadcast to the scores; or None.

    The dimensions are [batch, keys]; [batch, queries, keys]; or [batch, heads, queries, keys].
    """
    mask = optional(mask)
    if mask is None:
        return None
    if mask.dim() == 2:
        view = mask[:, None, None, :]
    elif mask.dim() == 3:
        view = mask[:, None]
    else:
        view = mask
    wanted = (batch, None, queries, keys)
    fits = view.dim() == 4 and view.shape[-1] == keys
    if not fits or any(n not in (1, w) for n, w in zip(view.shape, wanted, strict=True) if w):
        refuse(
            at,
            "attn_mask",
            f"shape {tuple(mask.shape)}",
            f"[{batch}, {keys}], or [{batch}, 1, {queries} or 1, {keys}]",
            "cut it to the keys that there are",
        )
    return view


def alibi_over_scores(at, alibi, batch, heads, keys, head_offset=0, mp_size=1):
    """Returns ALiBi of shape [batch * all heads, 1, keys] or [all heads, 1, keys] as [.., heads, 1,
    keys].

    "all heads" are those of all mp_size devices; the result has `heads` of them from head_offset
    on. Returns None for None.
    """
    alibi = optional(alibi)
    if alibi is None:
        return None
    all_heads = heads * mp_size
    counts = {batch * all_heads * keys: batch, all_heads * keys: 1}
    if alibi.shape[-1] != keys or alibi.numel() not in counts or head_offset + heads > all_heads:
        refuse(
            at,
            "alibi",
            f"shape {tuple(alibi.shape)}, heads {head_offset} to {head_offset + heads - 1}",
            f"[{batch} * {all_heads}, 1, {keys}] or [{all_heads}, 1, {keys}]",
            "cut it to the keys that there are, and to this device's heads",
        )
    view = alibi.reshape(counts[alibi.numel()], all_heads, 1, keys)
    return view[:, head_offset : head_offset + heads]


def _window(queries, keys, size, dtype, device):
    """Returns a tensor [queries, keys]: 0 for the last `size` keys up to the query and all later
    keys, -inf for the keys before them."""
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    before = torch.arange(keys, device=device)[None] <= query - size
    return torch.zeros(queries, keys, dtype=dtype, device=device).masked_fill(before, -torch.inf)


def _sum(terms, shape):
    """Returns the sum of the terms that are not None, broadcast to `shape`; None if all are
    None."""
    terms = [term for term in terms if term is not None]
    if len(terms) < 2:
        return terms[0] if terms else None
    total = _ops.vector_add(*(term.expand(shape) for term in terms[:2]))
    for term in terms[2:]:
        total = _ops.vector_add(term.expand(shape), total, out=total)
    return total


@without_gradients
def softmax(at, attn_scores: torch.Tensor, attn_mask: torch.Tensor | None, *arguments):
    """Computes softmax(attn_scores * layer_scale + alibi + attn_mask) over the last dimension, in
    place; returns it.

    The further positional arguments are alibi, triangular, recompute, local_attention, window_size,
    async_op, layer_scale, head_offset, mp_size. DeepSpeed's MoE layer leaves out alibi and the
    arguments after async_op.

    attn_scores: [batch, heads, queries, keys]; or any other shape, without alibi, triangular and
    local_attention. attn_mask: as for mask_over_scores(). triangular: query i attends to the keys
    up to i; a single query attends to all. local_attention: only the last window_size keys up to
    the query. recompute and async_op have no effect. Masked elements become 0.
    """
    if len(arguments) == 9:
        alibi, triangular, _, local_attention, window_size, _, layer_scale, offset, mp = arguments
    elif len(arguments) == 5:
        triangular, _, local_attention, window_size, _ = arguments
        alibi, layer_scale, offset, mp = None, 1.0, 0, 1
    else:
        refuse_count(at, len(arguments) + 2, _FORMS)
    alibi, mask = optional(alibi), optional(attn_mask)
    check(at, attn_scores=attn_scores, attn_mask=mask, alibi=alibi)
    out = attn_scores.contiguous()
    causal = bool(triangular) and out.dim() >= 2 and out.shape[-2] > 1
    if out.dim() == 4:
        batch, heads, queries, keys = out.shape
        mask = mask_over_scores(at, mask, batch, queries, keys)
        alibi = alibi_over_scores(at, alibi, batch, heads, keys, offset, mp)
        if causal and queries != keys:
            remedy = "of scores over cached keys pass attn_mask, which says what a query sees"
            refuse(at, "triangular", f"{queries} queries and {keys} keys", "as many", remedy)
        window = None
        if local_attention:
            window = _window(queries, keys, int(window_size), out.dtype, out.device)
        mask = _sum([mask, alibi, window], out.shape)
    elif alibi is not None or causal or local_attention:
        found = f"shape {tuple(out.shape)} with alibi, triangular or local_attention"
        wanted = "[batch, heads, queries, keys]"
        refuse(at, "attn_scores", found, wanted, "reshape it, or pass neither of these")
    return _ops.softmax(out, scale=float(layer_scale), mask=mask, causal=causal, out=out)


_FLAGS = {"triangular": bool, "recompute": bool, "local_attention": bool, "window_size": int}
_FLAGS["async_op"] = bool
softmax.more = {
    5: _FLAGS,
    9: {
        "alibi": torch.Tensor | None,
        **_FLAGS,
        "layer_scale": float,
        "head_offset": int,
        "mp_size": int,
    },
}
