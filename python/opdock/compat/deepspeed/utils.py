# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module utils. torch itself has them: nothing is compiled."""

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def flatten(tensors):
    """All elements of the tensors, of one dtype and device, one after the other in a new one."""
    return _flatten_dense_tensors(list(tensors))


def unflatten(flat, tensors):
    """Views of `flat`, a tensor of one dimension, with the shapes of `tensors`."""
    return list(_unflatten_dense_tensors(flat, list(tensors)))


def cast_to_byte_tensor(src_tensor):
    """The tensor's memory as uint8 of one dimension; of a list of tensors a list of these.

    A tensor of one byte at most comes back as it is. One with gaps is refused (ValueError): its
    bytes do not lie together.
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
