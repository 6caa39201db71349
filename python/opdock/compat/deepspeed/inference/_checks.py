# SPDX-License-Identifier: Apache-2.0
"""What the functions of the binding check before an op sees their arguments."""

import functools
from typing import NamedTuple

import torch

from opdock._errors import ArgumentError, InvalidArgumentError

#: the ends of the functions' names, and the dtypes that these mean
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SUFFIXES = {dtype: suffix for suffix, dtype in DTYPES.items()}


class Caller(NamedTuple):
    """The function that the program has called: its name, and the dtype of its tensors.

    dtype None: the function takes any of DTYPES, and its first tensor says which one.
    """

    name: str
    dtype: torch.dtype | None


def without_gradients(function):
    """The function with gradients not recorded: DeepSpeed's functions record none either."""

    @functools.wraps(function)
    def call(*arguments, **named):
        if not torch.is_grad_enabled():
            return function(*arguments, **named)
        with torch.no_grad():
            return function(*arguments, **named)

    return call


def refuse(at, argument, found, wanted, remedy):
    """Raises InvalidArgumentError about an argument of the function."""
    raise InvalidArgumentError(
        f"{at.name}(): argument {argument!r}: found {found}, wanted {wanted}; {remedy}"
    )


def refuse_type(at, argument, found, wanted, cause=None):
    """Raises ArgumentError about an argument that is none of what the function takes."""
    raise ArgumentError(
        f"{at.name}(): argument {argument!r}: found an object of type {type(found).__name__}, "
        f"wanted {wanted}; pass one"
    ) from cause


def refuse_count(at, count, forms):
    """Raises ArgumentError about the number of arguments. forms: {number: whose form it is}."""
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
    """That all are tensors of the function's dtype on one device; None is accepted but first.

    The first one counts for the others: it gives the device, and the dtype where the name of the
    function does not.
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
    """The function's dtype, or of one that takes any the tensor's."""
    if not isinstance(tensor, torch.Tensor):
        refuse(at, argument, f"a {type(tensor).__name__}", "a torch.Tensor", "pass one")
    if at.dtype is not None:
        return at.dtype
    if tensor.dtype not in _SUFFIXES:
        wanted = "float32, float16 or bfloat16"
        refuse(at, argument, tensor.dtype, wanted, "convert it by .to()")
    return tensor.dtype


def check_dims(at, argument, tensor, *wanted):
    """That the tensor has one of the wanted numbers of dimensions."""
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
    """The arguments that are not None: an op's defaults count for the others."""
    return {name: value for name, value in named.items() if value is not None}


def rows(tensor):
    """The tensor itself where elements of a row lie side by side, as all ops want, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def optional(tensor):
    """A tensor that DeepSpeed passes for "none", of one dimension at most, as None."""
    return None if tensor is None or tensor.dim() <= 1 else tensor
