# SPDX-License-Identifier: Apache-2.0
"""Pads heads with zeros to sizes that DeepSpeed's attention kernels accept. Results are new
tensors."""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    check_dims,
    refuse,
    rows,
    without_gradients,
)

_KEYS = 128  # number of keys and values that DeepSpeed pads to


def padded_size(at, argument, size):
    """Returns the padded size of a head with `size` elements: 32, 64 or 128."""
    if size > 128:
        remedy = "attend without padding: Opdock's attention takes such heads as they are"
        refuse(at, argument, f"heads of {size} elements", "128 at most", remedy)
    return 32 if size < 32 else 64 if size < 64 else 128


def _keys(at, argument, tensor, keys):
    if keys > _KEYS:
        remedy = "attend without padding: what is behind would be lost"
        refuse(
            at, argument, f"{keys} keys in shape {tuple(tensor.shape)}", f"{_KEYS} at most", remedy
        )


@without_gradients
def add_padding(at, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor):
    """Returns [query, key, value] with heads padded to 32, 64 or 128 elements, and 128 keys and
    values.

    query, key, value: [batch, heads, sequence, size].
    """
    check(at, query=query, key=key, value=value)
    made = []
    for argument, tensor in (("query", query), ("key", key), ("value", value)):
        check_dims(at, argument, tensor, 4)
        columns = padded_size(at, argument, tensor.shape[3])
        count = tensor.shape[2]
        if argument != "query":
            _keys(at, argument, tensor, count)
            count = _KEYS
        made.append(_ops.pad_rows(rows(tensor), count, columns))
    return made


@without_gradients
def pad_transform(
    at, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, add_padding: bool
):
    """Returns [query, key, value] as [batch, heads, sequence, size].

    query, key, value: [batch, sequence, heads * size]. add_padding: also pad as add_padding() does.
    """
    check(at, query=query, key=key, value=value)
    made = []
    for argument, tensor in (("query", query), ("key", key), ("value", value)):
        check_dims(at, argument, tensor, 3)
        _, count, width = tensor.shape
        check_heads(at, argument, tensor, heads)
        columns = width // heads
        if add_padding:
            columns = padded_size(at, argument, columns)
            if argument != "query":
                _keys(at, argument, tensor, count)
                count = _KEYS
        by_head = tensor.unflatten(-1, (heads, width // heads)).transpose(1, 2)
        made.append(_ops.pad_rows(rows(by_head), count, columns))
    return made


def check_heads(at, argument, tensor, heads):
    """Checks that the last dimension divides into `heads` heads."""
    if heads < 1 or tensor.shape[-1] % heads:
        found = f"shape {tuple(tensor.shape)} for {heads} heads"
        refuse(at, argument, found, "a last dimension that they divide", "check both numbers")
