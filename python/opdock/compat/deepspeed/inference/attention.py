# SPDX-License-Identifier: Apache-2.0
"""Attention with cached keys and values (softmax_context), and with the caller's (_int8)."""

import functools

import torch

from opdock.compat.deepspeed.inference import _ops, arenas
from opdock.compat.deepspeed.inference._checks import (
    check,
    check_dims,
    optional,
    refuse,
    refuse_count,
    rows,
    without_gradients,
)
from opdock.compat.deepspeed.inference.padding import check_heads
from opdock.compat.deepspeed.inference.rotary import check_rotary, pairing, tables
from opdock.compat.deepspeed.inference.softmax import alibi_over_scores, mask_over_scores

_FORMS = {14: "DeepSpeed 0.7.7", 19: "0.19.8"}


def _window(at, local_attention, window_size, causal, queries):
    """Returns the arguments `causal` and `window` of the op attention, as a dict."""
    if not local_attention:
        return {"causal": causal}
    if window_size < 1:
        refuse(at, "window_size", window_size, "at least 1", "or pass local_attention=False")
    if not causal and queries > 1:
        wanted = "triangular: a window up to the query itself"
        refuse(at, "local_attention", "a window over later keys", wanted, "pass attn_mask instead")
    return {"causal": True, "window": int(window_size)}


@without_gradients
def softmax_context(
    at,
    query_key_value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    rotary_dim: int,
    rotate_half: bool,
    rotate_every_two: bool,
    heads: int,
    *arguments,
):
    """Attention of one layer; returns [output [batch, sequence, heads * size], keys, values].

    The further positional arguments are norm_factor, triangular, local_attention, window_size,
    no_masking, layer_id, num_layers, alibi (0.7.7); or num_kv, norm_factor, triangular,
    local_attention, window_size, no_masking, layer_id, num_layers, alibi, rope_theta, is_prompt,
    token_idx, position_ids (0.19.8).

    query_key_value: [batch, sequence, (heads + 2 * key heads) * size]. num_kv: the number of key
    heads; below 1 it is `heads`. A sequence of several tokens is a prompt: its keys and values
    replace the layer's. A single token is appended, unless it is the first one after reset_cache()
    or attn_mask has room for only one key. The token counter advances after the last layer.

    Scores are q k norm_factor ** 2 + alibi + attn_mask. triangular: a token attends to the tokens
    up to itself. local_attention: only to the last window_size of these. rotary_dim: the first
    rotary_dim elements of a head get a rotary embedding, at the token's place in the cache or at
    position_ids, int64 [batch or 1, sequence]. token_idx: the number of tokens including this one;
    for a prompt, how many of its tokens count. no_masking and is_prompt have no effect.

    keys, values: views [batch, key heads, tokens, size] of the cache. They stay valid while they
    are held; the next prompt does not overwrite them.
    """
    num_kv, theta, token_idx, position_ids = 0, 10000.0, None, None
    if len(arguments) == 8:
        norm_factor, triangular, local, window, _, layer, layers, alibi = arguments
    elif len(arguments) == 13:
        num_kv, norm_factor, triangular, local, window, _, layer, layers, alibi = arguments[:9]
        theta, _, token_idx, position_ids = arguments[9:]
    else:
        refuse_count(at, len(arguments) + 6, _FORMS)
    alibi, mask = optional(alibi), optional(attn_mask)
    check(at, query_key_value=query_key_value, attn_mask=mask, alibi=alibi)
    check_dims(at, "query_key_value", query_key_value, 3)
    key_heads = num_kv if num_kv > 0 else heads
    check_heads(at, "query_key_value", query_key_value, heads + 2 * key_heads)
    if heads % key_heads:
        refuse(
            at, "num_kv", f"{num_kv} for {heads} heads", "a number that divides them", "check it"
        )
    batch, length, width = query_key_value.shape
    size = width // (heads + 2 * key_heads)
    by_head = rows(query_key_value).view(batch, length, heads + 2 * key_heads, size)
    new = by_head.split_with_sizes((heads, key_heads, key_heads), 2)

    arena = arenas.current().arena(query_key_value.device)
    if length == 1 and token_idx is not None:
        arena.tokens = int(token_idx)
    prompt = length > 1 or arena.tokens <= 1 or (mask is not None and mask.shape[-1] == 1)
    tokens = length if prompt else arena.tokens
    terms = {
        "mask": mask_over_scores(at, mask, batch, length, tokens),
        "bias": alibi_over_scores(at, alibi, batch, heads, tokens),
        **_window(at, local, window, bool(triangular), length),
    }
    arena.tokens = tokens
    cache = arena.cache(at, layer, batch, key_heads, size, query_key_value, prompt)
    start = arena.count(tokens - length, batch, query_key_value.device)
    rotated = None
    if rotary_dim > 0:
        rotated = pairing(at, rotate_half, rotate_every_two)
    query = _append(at, new, cache, start, rotated, (rotary_dim, theta, position_ids))
    keys, values = cache.keys.narrow(1, 0, tokens), cache.values.narrow(1, 0, tokens)
    out = _ops.attention(query, keys, values, scale=float(norm_factor) ** 2, **terms)
    if prompt and token_idx is not None:
        arena.tokens = tokens = _of_prompt(at, token_idx, length)
        keys, values = keys.narrow(1, 0, tokens), values.narrow(1, 0, tokens)
    cache.tokens = tokens
    arena.end(layer, layers)
    return [out.view(batch, length, heads * size), keys.transpose(1, 2), values.transpose(1, 2)]


_REST = {
    "norm_factor": float,
    "triangular": bool,
    "local_attention": bool,
    "window_size": int,
    "no_masking": bool,
    "layer_id": int,
    "num_layers": int,
    "alibi": torch.Tensor | None,
}
softmax_context.more = {
    8: _REST,
    13: {
        "num_kv": int,
        **_REST,
        "rope_theta": float,
        "is_prompt": bool,
        "token_idx": int | None,
        "position_ids": torch.Tensor | None,
    },
}


def _of_prompt(at, token_idx, length):
    """Returns token_idx, how many of the prompt's tokens count, as a checked int."""
    tokens = int(token_idx)
    if not 1 <= tokens <= length:
        refuse(at, "token_idx", tokens, f"1 to {length}, the prompt's length", "check it")
    return tokens


def _append(at, new, cache, start, interleaved, rotary):
    """Writes the keys and values to the cache; returns the queries, rotated like the keys."""
    query, key, value = new
    rotary_dim, theta, position_ids = rotary
    places = cache.keys, cache.values
    if interleaved is None:
        return _put(query, key, value, places, start)
    check_rotary(at, rotary_dim, query.shape[-1])
    cos, sin = tables(cache.both.shape[3], rotary_dim, theta, query.device)
    if position_ids is None:
        return _ops.append_kv(query, key, value, *places, start, cos, sin, interleaved=interleaved)
    batch, length = query.shape[:2]
    if position_ids.dim() != 2 or position_ids.shape[1] != length:
        found = f"shape {tuple(position_ids.shape)}"
        refuse(at, "position_ids", found, f"[{batch} or 1, {length}]", "one for each token")
    positions = position_ids.expand(batch, length)
    query, key = _ops.rope(query, key, cos, sin, positions.contiguous(), interleaved=interleaved)
    return _put(query, key, value, places, start)


def _put(query, key, value, places, start):
    """Writes the keys and values to the cache; returns the queries without copying them."""
    _ops.append_kv(query.narrow(2, 0, 0), key, value, *places, start)
    return query


@functools.lru_cache
def _has_matrices(device):
    """Returns whether the plugin computes attention of prompts on the device's tensor cores."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _read_by_columns(queries, keys, size, dtype, has_matrices):
    """Returns whether plugins/attention is fast with the transposed keys of softmax_context_int8.

    It is for few queries, and for prompts that tensor cores compute with keys in shared memory,
    which every GPU with tensor cores has enough of. For all others the keys are copied to rows
    first.
    """
    if queries <= 2:
        return True
    is_whole = size % 8 == 0 and keys % 8 == 0
    return has_matrices and queries > 16 and dtype.itemsize == 2 and size <= 128 and is_whole


@without_gradients
def softmax_context_int8(
    at,
    query: torch.Tensor,
    prev_key: torch.Tensor,
    new_key: torch.Tensor | None,
    attn_mask: torch.Tensor | None,
    prev_value: torch.Tensor,
    new_value: torch.Tensor | None,
    heads: int,
    norm_factor: float,
    merging: bool,
    triangular: bool,
    local_attention: bool,
    window_size: int,
    no_masking: bool,
):
    """Attention in float16; returns [output [batch, heads, sequence, size], prev_key, prev_value].

    query, prev_value: shape [batch, sequence, heads * size], with memory laid out as [batch, heads,
    sequence, size]. prev_key: shape [batch, keys, heads * size], with memory laid out as [batch,
    heads, size, keys]. Scores are q k norm_factor + attn_mask. triangular applies only if new_value
    has at most one dimension, which means that the keys belong to the queries. new_key, merging and
    no_masking have no effect.
    """
    mask = optional(attn_mask)
    check(at, query=query, prev_key=prev_key, prev_value=prev_value, attn_mask=mask)
    for argument, tensor in (("query", query), ("prev_key", prev_key), ("prev_value", prev_value)):
        check_dims(at, argument, tensor, 3)
        check_heads(at, argument, tensor, heads)
    batch, length, width = query.shape
    keys, size = prev_value.shape[1], width // heads
    if prev_key.shape != (batch, keys, width) or prev_value.shape != (batch, keys, width):
        found = f"shapes {tuple(prev_key.shape)} and {tuple(prev_value.shape)}"
        refuse(at, "prev_key", found, f"[{batch}, {keys}, {width}] of both", "check prev_value too")
    by_head = query.contiguous().view(batch, heads, length, size)
    key = prev_key.contiguous().view(batch, heads, size, keys).transpose(2, 3)
    if not _read_by_columns(length, keys, size, query.dtype, _has_matrices(query.device)):
        key = key.contiguous()
    value = prev_value.contiguous().view(batch, heads, keys, size)
    causal = bool(triangular) and (new_value is None or new_value.dim() <= 1)
    out = _ops.attention(
        *(tensor.transpose(1, 2) for tensor in (by_head, key, value)),
        mask=mask_over_scores(at, mask, batch, length, keys),
        scale=float(norm_factor),
        **_window(at, local_attention, window_size, causal, length),
    )
    return [out.transpose(1, 2), prev_key, prev_value]
