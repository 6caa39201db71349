# SPDX-License-Identifier: Apache-2.0
"""Argument checks that the binding's functions make before they call an op."""

from typing import NamedTuple

import torch

from opdock._errors import ArgumentError, InvalidArgumentError
from opdock.compat.deepspeed._gradients import without_gradients as without_gradients

#: suffix of a function's name -> dtype
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SUFFIXES = {dtype: suffix for suffix, dtype in DTYPES.items()}


class Caller(NamedTuple):
    """The function that the program called: its name, and the dtype of its tensors.

    dtype None: the function accepts all DTYPES and takes that of its first tensor.
    """

    name: str
    dtype: torch.dtype | None


def refuse(at, argument, found, wanted, remedy):
    """Raises InvalidArgumentError about an argument of the function."""
    raise InvalidArgumentError(
        f"{at.name}(): argument {argument!r}: found {found}, wanted {wanted}; {remedy}"
    )


def refuse_type(at, argument, found, wanted, cause=None):
    """Raises ArgumentError about an argument of a wrong type."""
    raise ArgumentError(
        f"{at.name}(): argument {argument!r}: found an object of type {type(found).__name__}, "
        f"wanted {wanted}; pass one"
    ) from cause


def refuse_count(at, count, forms):
    """Raises ArgumentError about the number of arguments. forms: {number: the version that passes
    it}."""
    wanted = ", ".join(f"{number} ({whose})" for number, whose in forms.items())
    raise ArgumentError(
        f"{at.name}(): found {count} arguments, wanted {wanted}; pass them by position, as "
        "DeepSpeed does"
    )


def _dtype_remedy(at, found, wanted):
    stem, _, suffix = at.name.rpartition("_")
    if suffix in DTYPES and found in _SUFFIXES:
        return f"call {stem}_{_SUFFIXES[found]}, or convert it by .to({wanted})"
    return f"convert it by .to({wanted})"


def check(at, **tensors):
    """Checks that all are tensors of the function's dtype on one device. All but the first may be
    None.

    The first tensor decides the device, and the dtype if the function's name does not. Raises
    InvalidArgumentError.
    """
    dtype, first, device = at.dtype, None, 0
    for argument, tensor in tensors.items():
        if first is None:
            dtype = _dtype_of(at, argument, tensor)
            first, device = tensor, tensor.get_device()
        elif tensor is None:
            continue
        elif not isinstance(tensor, torch.Tensor):
            refuse(at, argument, f"a {type(tensor).__name__}", "a torch.Tensor", "pass one")
        if tensor.dtype is not dtype:
            refuse(at, argument, tensor.dtype, dtype, _dtype_remedy(at, tensor.dtype, dtype))
        if tensor.get_device() != device:
            remedy = f"move it by .to({str(first.device)!r})"
            refuse(at, argument, f"a tensor on {tensor.device}", f"one on {first.device}", remedy)


def _dtype_of(at, argument, tensor):
    """Returns the function's dtype, or the tensor's if the function accepts several."""
    if not isinstance(tensor, torch.Tensor):
        refuse(at, argument, f"a {type(tensor).__name__}", "a torch.Tensor", "pass one")
    if at.dtype is not None:
        return at.dtype
    if tensor.dtype not in _SUFFIXES:
        wanted = "float32, float16 or bfloat16"
        refuse(at, argument, tensor.dtype, wanted, "convert it by .to()")
    return tensor.dtype


def check_dims(at, argument, tensor, *wanted):
    """Checks that the tensor has one of the wanted numbers of dimensions."""
    if tensor.dim() not in wanted:
        numbers = " or ".join(map(str, wanted))
        refuse(
            at,
            argument,
            f"shape {tuple(tensor.shape)}",
            f"a tensor of {numbers} dimensions",
            "reshape it",
        )


def given(**named):
    """Returns the arguments that are not None; for the others the op's defaults apply."""
    return {name: value for name, value in named.items() if value is not None}


def rows(tensor):
    """Returns the tensor itself if its last dimension is contiguous, which all ops require, else a
    copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def optional(tensor):
    """Returns None for a tensor of at most one dimension, which DeepSpeed passes instead of
    None."""
    return None if tensor is None or tensor.dim() <= 1 else tensor
