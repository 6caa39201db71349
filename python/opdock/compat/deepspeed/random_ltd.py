# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module random_ltd, for GPUs and the CPU: tokens by the ops of the
plugin random_ltd, masks by PyTorch's indexing.

DeepSpeed's Python makes gradients of them: that of a gather is a scatter, and the other way round.
"""

import torch

from opdock import ops
from opdock._errors import InvalidArgumentError


def _with_rows(tensor):
    """Returns the tensor, or a copy if its last dimension has gaps."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _index(function, name, index, dimensions):
    if index.dtype != torch.int32 or index.dim() != dimensions:
        raise InvalidArgumentError(
            f"{function}(): argument {name!r}: found {index.dtype} of {index.dim()} dimensions, "
            f"wanted torch.int32 of {dimensions}; convert it"
        )
    return index.contiguous()


@torch.no_grad()
def token_sort_(unsorted_token_ids, original_tokens):
    """Sorts each row ascending, in place; returns the tensor.

    unsorted_token_ids: int32, shape [layers, B, r]: numbers from 0 to original_tokens - 1. Raises
    InvalidArgumentError for another dtype, and on the CPU for another number; on a GPU there is -1
    for it at the end of the row.
    """
    index = _index("token_sort_", "unsorted_token_ids", unsorted_token_ids, 3)
    unsorted_token_ids.copy_(ops.token_sort(index, original_tokens))
    return unsorted_token_ids


@torch.no_grad()
def token_gather(activations, sorted_indices, batch_first):
    """Returns the chosen tokens of activations, a new tensor: [B, r, C], or [r, B, C] if not
    batch_first.

    activations: float32, float16, bfloat16 or float64, [B, S, C] or [S, B, C], any strides.
    sorted_indices: int32, [B, r]. Raises InvalidArgumentError for what does not fit.
    """
    index = _index("token_gather", "sorted_indices", sorted_indices, 2)
    return ops.token_gather(_with_rows(activations), index, batch_first=bool(batch_first))


@torch.no_grad()
def token_scatter_(all_activations, layer_activations, sorted_indices, batch_first):
    """Writes layer_activations over the chosen tokens of all_activations, in place, and returns
    all_activations. Gradients may have elements that share memory (torch.Tensor.expand): the result
    is then a new tensor, and all_activations stays.

    The shapes are those of token_gather. Raises InvalidArgumentError for what does not fit.
    """
    index = _index("token_scatter_", "sorted_indices", sorted_indices, 2)
    is_shared = any(
        stride == 0 and size > 1
        for stride, size in zip(all_activations.stride(), all_activations.shape, strict=True)
    )
    out = all_activations.contiguous() if is_shared else _with_rows(all_activations)
    part = _with_rows(layer_activations)
    ops.token_scatter_(out, part, index, batch_first=bool(batch_first))
    if out is all_activations or is_shared:
        return out
    return all_activations.copy_(out)


@torch.no_grad()
def mask_gather_bert(dense_mask, sorted_indices):
    """Returns the mask of the chosen tokens of each layer, shape [layers, B, 1, r, r].

    dense_mask: [B, 1, S, S], any dtype. sorted_indices: int32, [layers, B, r]; DeepSpeed's kernel
    takes the first layer's for all.
    """
    index = _index("mask_gather_bert", "sorted_indices", sorted_indices, 3).long()
    batch = torch.arange(index.shape[1], device=index.device)[None, :, None, None]
    return dense_mask[:, 0][batch, index[..., :, None], index[..., None, :]].unsqueeze(2)


@torch.no_grad()
def mask_gather_gpt(dense_mask, truncated_seq_len):
    """Returns the mask of the first tokens, a new tensor [B, 1, r, r].

    dense_mask: [B, 1, S, S], any dtype.
    """
    part = dense_mask[:, :1, :truncated_seq_len, :truncated_seq_len]
    return part.clone(memory_format=torch.contiguous_format)
