# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module fp_quantizer, by the ops of the plugin fp_quantizer, for GPUs
and the CPU.

Groups are consecutive elements of a tensor, whatever its shape. Each has a row of bytes: its codes,
and a float32 scale.
"""

import torch

from opdock import ops
from opdock._errors import InvalidArgumentError

_SCALE_BYTES = 4
# (bits of a code, bits of its mantissa as DeepSpeed's Python passes them) -> (bits of the exponent
# and of the mantissa that its kernels use): 12 bits have a mantissa of 7.
_FORMATS = {(8, 3): (4, 3), (8, 2): (5, 2), (12, 4): (4, 7), (12, 7): (4, 7)}
_FORMATS |= {(6, 2): (3, 2), (4, 1): (2, 1)}


def _format(function, bits, mantissa_bits):
    """Returns the format's bits as keywords of Opdock's ops."""
    try:
        exponent_bits, mantissa_bits = _FORMATS[bits, mantissa_bits]
    except KeyError:
        known = ", ".join(f"{one} with {of} of mantissa" for one, of in _FORMATS)
        raise InvalidArgumentError(
            f"{function}(): found codes of {bits} bits with {mantissa_bits} of mantissa, wanted "
            f"one of: {known}"
        ) from None
    return {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}


def _row_bytes(keywords, group_size):
    bits = 1 + keywords["exponent_bits"] + keywords["mantissa_bits"]
    return group_size * bits // 8 + _SCALE_BYTES


def _rows(function, name, tensor, rows, length):
    """Returns the first elements of a contiguous tensor as rows, a view."""
    if not tensor.is_contiguous() or tensor.numel() < rows * length:
        raise InvalidArgumentError(
            f"{function}(): argument {name!r}: found shape {tuple(tensor.shape)} with strides "
            f"{tensor.stride()}, wanted a contiguous tensor of at least {rows * length} elements: "
            f"{rows} groups of {length}"
        )
    return tensor.view(-1)[: rows * length].view(rows, length)


@torch.no_grad()
def quantize(out, val, group_size, stochastic_rounding, q_bits, q_mantissa_bits):
    """Quantises the groups of val; writes their rows to `out`, and returns it.

    out: uint8, contiguous, with room for the rows. val: float16 or bfloat16; elements that do not
    fill a group are left out, as DeepSpeed leaves them. stochastic_rounding: draws from torch's
    generator of val's device. Raises InvalidArgumentError for a format or a tensor that does not
    fit.
    """
    keywords = _format("quantize", q_bits, q_mantissa_bits)
    groups = val.numel() // group_size
    rows = _rows("quantize", "out", out, groups, _row_bytes(keywords, group_size))
    x = _rows("quantize", "val", val.contiguous(), groups, group_size)
    ops.fp_quantize(x, **keywords, stochastic=bool(stochastic_rounding), out=rows)
    return out


def _joined(val_q, group_size):
    """Returns codes and scales in bytes. DeepSpeed's matmul_fp8 without Triton joins codes to
    scales that are float32 numbers, which makes all of them float32."""
    if val_q.dtype != torch.float32 or val_q.shape[-1:] != (group_size + 1,):
        return val_q.contiguous()
    scale = val_q[:, group_size:].contiguous().view(torch.uint8)
    return torch.cat([val_q[:, :group_size].to(torch.uint8), scale], -1)


def _decode(function, val, val_q, group_size, mantissa_bits, exponent_bits, count, index=None):
    """Writes to val the groups of val_q, or those that the index chooses, `count` in all."""
    keywords = _format(function, 1 + mantissa_bits + exponent_bits, mantissa_bits)
    if val.numel() % group_size:
        raise InvalidArgumentError(
            f"{function}(): argument 'val': found {val.numel()} elements, wanted a multiple of the "
            f"group size {group_size}: the last ones are in no group, and nothing would write them"
        )
    q, row = _joined(val_q, group_size), _row_bytes(keywords, group_size)
    # A copy is made of a tensor with gaps only.
    out = (
        val if val.is_contiguous() else torch.empty_like(val, memory_format=torch.contiguous_format)
    )
    into = out.view(-1, group_size)
    if index is None:
        q = _rows(function, "val_q", q, count, row)
        ops.fp_dequantize(q, **keywords, dtype=val.dtype, out=into)
    else:
        groups = count // index.numel()  # of an element of the index
        q = _rows(function, "val_q", q, q.numel() // row // groups, groups * row)
        q, into = q.view(-1, groups, row), into.view(-1, groups, group_size)
        index = index.to(torch.int32).contiguous()
        ops.fp_selective_dequantize(q, index, **keywords, dtype=val.dtype, out=into)
    if out is not val:
        val.copy_(out)


@torch.no_grad()
def dequantize(val, val_q, group_size, q_mantissa_bits, q_exponent_bits):
    """Writes the numbers of the rows val_q to val, float16 or bfloat16, of whole groups.

    Raises InvalidArgumentError for a format or a tensor that does not fit.
    """
    groups = val.numel() // group_size
    _decode("dequantize", val, val_q, group_size, q_mantissa_bits, q_exponent_bits, groups)


@torch.no_grad()
def selective_dequantize(val, val_q, indexes, group_size, q_mantissa_bits, q_exponent_bits):
    """Writes to val[i] the numbers of part indexes[i] of val_q, whose parts have as many groups as
    an element of val has.

    indexes: integers, one for each element of val in its first dimension. Raises
    InvalidArgumentError for a format or a tensor that does not fit, and on the CPU for an index
    that is outside; on a GPU its part becomes NaN.
    """
    function, groups = "selective_dequantize", val.numel() // group_size
    count = indexes.shape[0]
    if val.numel() == 0:
        return
    if count == 0 or groups % count:
        raise InvalidArgumentError(
            f"{function}(): argument 'indexes': found {count} for {groups} groups of 'val', wanted "
            "as many groups for each index"
        )
    bits = q_mantissa_bits, q_exponent_bits
    _decode(function, val, val_q, group_size, *bits, groups, indexes.reshape(-1))


def get_scales(out, num_groups):
    """Returns the scales as float32, shape [num_groups, 1]: a view of `out`, uint8, which has the
    four bytes of a scale in each row, or at the beginning of it.

    Raises InvalidArgumentError for rows that do not begin at multiples of 4 bytes.
    """
    stride, first = out.stride(0), out.storage_offset()
    if out.dtype != torch.uint8 or stride % _SCALE_BYTES or first % _SCALE_BYTES:
        raise InvalidArgumentError(
            f"get_scales(): argument 'out': found rows of {out.dtype} every {stride} elements from "
            f"element {first} on, wanted uint8 at multiples of {_SCALE_BYTES}; copy the scales: "
            ".contiguous()"
        )
    return out.as_strided((num_groups, _SCALE_BYTES), (stride, 1)).view(torch.float32)
