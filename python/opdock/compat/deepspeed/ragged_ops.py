# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module ragged_ops: memory for the inference v2."""

import torch

from opdock._errors import InvalidArgumentError


def allocate_fast_host_buffer(device_mirror):
    """Returns a new CPU tensor of the tensor's shape and dtype, without gaps. It is pinned if the
    tensor is on a GPU, so that copies to it do not wait for the host, and freed with its last
    view."""
    return torch.empty(
        device_mirror.shape, dtype=device_mirror.dtype, pin_memory=device_mirror.is_cuda
    )


def _view(function, shape, strides, dtype, buffer, offset):
    """Returns a view of the buffer's bytes from `offset` on, which keeps the memory alive."""
    size = torch.empty(0, dtype=dtype).element_size()
    last = sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    needed = (last + 1) * size if all(shape) else 0
    there = buffer.numel() * buffer.element_size()
    if not buffer.is_contiguous():
        raise InvalidArgumentError(
            f"{function}(): argument 'buffer': found strides {buffer.stride()}, wanted a tensor "
            "without gaps; pass .contiguous()"
        )
    if offset < 0 or needed > there - offset or any(stride < 0 for stride in strides):
        raise InvalidArgumentError(
            f"{function}(): argument 'offset': found {offset} for a view of {needed} bytes, shape "
            f"{tuple(shape)}, wanted one that ends within the {there} bytes of 'buffer'; pass a "
            "larger buffer"
        )
    first = buffer.storage_offset() * buffer.element_size() + offset
    if first % size:
        raise InvalidArgumentError(
            f"{function}(): argument 'offset': found {offset}, byte {first} of the memory, wanted "
            f"a multiple of the {size} bytes of {dtype}; round it up"
        )
    made = torch.empty(0, dtype=dtype, device=buffer.device)
    return made.set_(buffer.untyped_storage(), first // size, tuple(shape), tuple(strides))


@torch.no_grad()
def allocate_view_on(tensor, buffer, offset):
    """Returns a view of the buffer, from byte `offset` on, with the tensor's shape, strides and
    dtype. Raises InvalidArgumentError if the buffer ends before it."""
    shape, strides = tensor.shape, tensor.stride()
    return _view("allocate_view_on", shape, strides, tensor.dtype, buffer, int(offset))


@torch.no_grad()
def allocate_view_like(shape, strides, dummy_tensor, buffer, offset):
    """Returns such a view of this shape, these strides in elements, and dummy_tensor's dtype."""
    dtype = dummy_tensor.dtype
    return _view("allocate_view_like", shape, strides, dtype, buffer, int(offset))
