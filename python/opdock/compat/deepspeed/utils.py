# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module utils, from torch itself: nothing is compiled."""

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def flatten(tensors):
    """Returns a new one-dimensional tensor with all elements of the tensors, of one dtype and
    device."""
    return _flatten_dense_tensors(list(tensors))


def unflatten(flat, tensors):
    """Returns views of `flat`, a one-dimensional tensor, with the shapes of `tensors`."""
    return list(_unflatten_dense_tensors(flat, list(tensors)))


def cast_to_byte_tensor(src_tensor):
    """Returns the tensor's memory as a one-dimensional uint8 tensor; for a list of tensors, a list.

    Returns a tensor of at most one byte unchanged. Raises ValueError for a tensor with gaps, whose
    bytes are not adjacent.
    """
    if not isinstance(src_tensor, torch.Tensor):
        return [cast_to_byte_tensor(tensor) for tensor in src_tensor]
    if src_tensor.numel() * src_tensor.element_size() <= 1:
        return src_tensor
    if not src_tensor.is_contiguous():
        raise ValueError(
            f"cast_to_byte_tensor(): found strides {tuple(src_tensor.stride())} of shape "
            f"{tuple(src_tensor.shape)}, wanted a contiguous tensor; use .contiguous(), a copy"
        )
    return src_tensor.detach().view(-1).view(torch.uint8)
