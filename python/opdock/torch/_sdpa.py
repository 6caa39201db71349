# SPDX-License-Identifier: Apache-2.0
"""torch's scaled_dot_product_attention by Opdock's op attention: which calls the op computes, and
how it gets their arguments. Nothing here reads a tensor's data, so that torch.compile evaluates the
conditions while it makes a graph."""

import torch

from opdock.torch import _functional

_OPS = torch.ops.opdock


def why_not(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """Returns why a call with these arguments is torch's, or None if the op computes it."""
    if not query.dim() == key.dim() == value.dim() == 4:
        return "its tensors do not have 4 dimensions"
    if not _functional.takes_rows(query):
        return "the op has no kernel for its dtype on its device"
    if not _functional.are_alike(query, key, value):
        return "its tensors have several dtypes"
    if query.shape[-1] > 256 or query.shape[-1] != value.shape[-1]:
        return "its heads have more than 256 elements, or values have other heads than queries"
    if query.shape[0] != key.shape[0] or key.shape[:3] != value.shape[:3]:
        return "its tensors are broadcast"
    if query.shape[1] != key.shape[1] and (not enable_gqa or query.shape[1] % key.shape[1]):
        return "its heads are no groups that share keys (enable_gqa)"
    if is_causal and query.shape[2] > key.shape[2]:
        return "is_causal with more queries than keys: the op has the last query see the last key"
    if attn_mask is None:
        return None
    if dropout_p != 0 and torch.is_grad_enabled() and attn_mask.requires_grad:
        return "the op has no gradient of a mask beside dropout"
    return _why_not_mask(query, key, attn_mask, is_causal)


def _why_not_mask(query, key, mask, is_causal):
    if is_causal:
        return "a mask beside is_causal, which torch refuses"
    if mask.dtype not in (torch.bool, torch.float32, query.dtype):
        return "its mask is of another dtype"
    sizes = *query.shape[:3], key.shape[2]
    wanted = sizes[4 - mask.dim() :]
    if not 2 <= mask.dim() <= 4 or any(
        one not in (1, size) for one, size in zip(mask.shape, wanted, strict=True)
    ):
        return "its mask has another shape than [batch, heads, queries, keys]"
    return None


def takes(*args, **keywords):
    """Returns whether the op computes the call."""
    return why_not(*args, **keywords) is None


def situation(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """Returns what, beside the number of rows and the size of a head, decides which is faster: the
    numbers of queries and keys between two powers of two, heads that share keys, and the mask."""
    counts = (f"{1 << x.shape[2].bit_length() >> 1}" for x in (query, key))
    words = ["x".join(counts)]
    if query.shape[1] != key.shape[1]:
        words.append(f"group {query.shape[1] // key.shape[1]}")
    if is_causal:
        words.append("causal")
    if attn_mask is not None:
        words.append("bool mask" if attn_mask.dtype == torch.bool else "mask")
    if dropout_p != 0:
        words.append("dropout")
    return " ".join(words)


def attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """Computes scaled_dot_product_attention, for calls that takes() takes."""
    if is_causal and key.shape[2] > query.shape[2]:
        # torch's first query sees the first key alone, so nobody sees the keys behind the last
        # query's. The op's last query sees the last key.
        key, value = (x[:, :, : query.shape[2]] for x in (key, value))
    q, k, v = (_functional.with_rows(x.transpose(1, 2)) for x in (query, key, value))
    added = _added(attn_mask, query.dtype)
    # The op's bias has a gradient, its mask has none.
    learns = added is not None and added.requires_grad
    if dropout_p != 0:
        options = {"mask": added, "scale": scale, "causal": is_causal}
        return _OPS.attention_dropout(q, k, v, dropout_p, **options)[0].transpose(1, 2)
    options = {"bias" if learns else "mask": added, "scale": scale, "causal": is_causal}
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *(added,) * learns)):
        # The gradients begin with the op's second result.
        return _OPS.attention_forward(q, k, v, **options)[0].transpose(1, 2)
    return _OPS.attention(q, k, v, **options).transpose(1, 2)


def _added(mask, dtype):
    """Returns a mask as the op adds it to the scores, with 4 dimensions."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        for dim, stride in enumerate(mask.stride()):
            if stride == 0:  # an expanded mask must not become as large as it looks
                mask = mask.narrow(dim, 0, 1)
        zero = torch.zeros((), dtype=dtype, device=mask.device)
        mask = torch.where(mask, zero, -float("inf"))
    return mask[(None,) * (4 - mask.dim())]
