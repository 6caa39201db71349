# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module quantizer, by the plugin quantizer, for GPUs and the CPU.

Arguments are passed by position, in DeepSpeed's order. Tensors of other dtypes, or with gaps, are
converted where DeepSpeed reads their memory as something else.
"""

import enum
import sys

import torch

from opdock import ops
from opdock._errors import InvalidArgumentError


class QuantizationType(enum.IntEnum):
    """Whether a group's integers have an offset."""

    Symmetric = 0
    Asymmetric = 1


Symmetric = QuantizationType.Symmetric
Asymmetric = QuantizationType.Asymmetric


def _is_symmetric(function, kind):
    """Returns whether a QuantizationType, or its number, is the symmetric one."""
    if kind in (0, 1):
        return int(kind) == 0
    raise InvalidArgumentError(
        f"{function}(): argument 'quant_type': found {kind!r}, wanted Symmetric (0) or "
        "Asymmetric (1)"
    )


def _scales_offsets():
    """Returns whether DeepSpeed is so old that its offsets belong to scaled numbers."""
    version = getattr(sys.modules.get("deepspeed"), "__version__", "1")
    return version.split(".")[:2] in (["0", str(minor)] for minor in range(8))


def _floats(x):
    """Returns the numbers in row-major order, without gaps."""
    x = x.detach()
    return (x.float() if x.dtype == torch.float64 else x).contiguous()


def _integers(q):
    """Returns the bytes as int8, in row-major order, without gaps."""
    return (q.view(torch.int8) if q.dtype == torch.uint8 else q).contiguous()


def _params(function, params, groups, is_symmetric):
    """Returns the parameters as float32 [groups, 1 or 2]; there may be more, which do not count."""
    count = groups * (1 if is_symmetric else 2)
    if groups < 1 or params.numel() < count:
        raise InvalidArgumentError(
            f"{function}(): argument 'params': found {params.numel()} numbers for {groups} groups, "
            f"wanted {1 if is_symmetric else 2} for each, and at least one group"
        )
    return params.detach().float().reshape(-1)[:count].reshape(groups, -1).contiguous()


@torch.no_grad()
def quantize(input_vals, groups, num_bits, quant_type):
    """Quantises groups of equally many numbers; returns [q, params].

    input_vals: a tensor of any floating dtype. num_bits: 8 or 4. q: int8, of the same shape, with 4
    bits the last size halved. params: float32 [groups, 1], or [groups, 2] of asymmetric groups, in
    the layout of the DeepSpeed that the process has imported: up to 0.7, offsets are those of
    scaled numbers.
    """
    is_symmetric = _is_symmetric("quantize", quant_type)
    return list(
        ops.quantize_groups(
            _floats(input_vals),
            groups,
            num_bits,
            symmetric=is_symmetric,
            scaled_offset=not is_symmetric and _scales_offsets(),
        )
    )


def _dequantize(function, dtype, quantized_data, params, groups, num_bits, quant_type):
    is_symmetric = _is_symmetric(function, quant_type)
    q = _integers(quantized_data)
    params = _params(function, params, groups, is_symmetric)
    numel = q.numel() * 8 // num_bits if num_bits in (4, 8) else 0
    rest = numel % groups
    if rest == 0:
        return ops.dequantize_groups(q, params, num_bits, dtype=dtype)
    # ZeRO leaves out what pads the last group of a gathered parameter: fewer elements than ranks.
    length = -(-numel // groups)
    if (groups - 1) * length >= numel:
        raise InvalidArgumentError(
            f"{function}(): argument 'groups': found {groups} groups of {numel} elements, wanted "
            "groups of equally many elements, of which only the last one may be shorter; pass a "
            "number that divides the elements"
        )
    padded = torch.nn.functional.pad(
        q.reshape(-1), (0, groups * length * num_bits // 8 - q.numel())
    )
    found = ops.dequantize_groups(padded, params, num_bits, dtype=dtype)
    return found[:numel].reshape(*q.shape[:-1], q.shape[-1] * 8 // num_bits)


@torch.no_grad()
def dequantize(quantized_data, params, groups, num_bits, quant_type):
    """Returns q * step + offset as float16; with 4 bits the last size is doubled.

    quantized_data: int8 or uint8. params: the steps, or the steps and offsets, in any shape. If the
    groups do not divide the elements, the last group is shorter.
    """
    return _dequantize(
        "dequantize", torch.float16, quantized_data, params, groups, num_bits, quant_type
    )


@torch.no_grad()
def dequantize_fp32(quantized_data, params, groups, num_bits, quant_type):
    """Returns what dequantize() does, as float32."""
    return _dequantize(
        "dequantize_fp32", torch.float32, quantized_data, params, groups, num_bits, quant_type
    )


def _dequantize_unsigned(function, bits, data_in, scale, least, num_group, group_size):
    numel = num_group * group_size
    if num_group < 1 or group_size * bits % 8 or data_in.numel() * 8 != numel * bits:
        raise InvalidArgumentError(
            f"{function}(): argument 'data_in': found {data_in.numel()} bytes, wanted those of "
            f"{num_group} groups of {group_size} integers of {bits} bits; pass whole groups"
        )
    for name, one in (("scale_buffer", scale), ("min_val_buffer", least)):
        if one.numel() != num_group:
            raise InvalidArgumentError(
                f"{function}(): argument {name!r}: found {one.numel()} numbers, wanted one for "
                f"each of {num_group} groups"
            )
    return ops.dequantize_unsigned(
        data_in.detach().contiguous().view(num_group, -1),
        scale.detach().half().reshape(num_group).contiguous(),
        least.detach().half().reshape(num_group).contiguous(),
        bits,
    )


@torch.no_grad()
def dequantize_int4_to_half_experimental(
    data_in, scale_buffer, min_val_buffer, num_group, group_size
):
    """Returns q / scale + least as float16 [num_group, group_size], of integers without sign, two a
    byte, the first one in the high bits."""
    function = "dequantize_int4_to_half_experimental"
    return _dequantize_unsigned(
        function, 4, data_in, scale_buffer, min_val_buffer, num_group, group_size
    )


@torch.no_grad()
def dequantize_int8_to_half_experimental(
    data_in, scale_buffer, min_val_buffer, num_group, group_size
):
    """Returns q / scale + least as float16 [num_group, group_size], of bytes without sign."""
    function = "dequantize_int8_to_half_experimental"
    return _dequantize_unsigned(
        function, 8, data_in, scale_buffer, min_val_buffer, num_group, group_size
    )


@torch.no_grad()
def swizzle_quant(input_vals, groups, num_bits, quant_type, pipeline_size, nodes, devices_per_node):
    """Quantises groups and reorders them for a reduction over nodes; returns [q, params].

    q: int8, flat. The groups of a slice (pipeline_size slices) lie together, and in it those of one
    device of each node.
    """
    is_symmetric = _is_symmetric("swizzle_quant", quant_type)
    return list(
        ops.quantize_groups(
            _floats(input_vals).reshape(-1),
            groups,
            num_bits,
            symmetric=is_symmetric,
            slices=pipeline_size,
            nodes=nodes,
            devices=devices_per_node,
        )
    )


@torch.no_grad()
def quantized_reduction(
    input_vals, input_scales, in_groups, out_groups, num_bits, quant_type, devices_per_node
):
    """Adds quantised tensors, which lie one after the other, and quantises the sum; returns [q,
    params].

    in_groups: of all devices_per_node tensors together. q: int8, the last size divided by
    devices_per_node. Sums are float32, where DeepSpeed's are float16.
    """
    is_symmetric = _is_symmetric("quantized_reduction", quant_type)
    params = _params("quantized_reduction", input_scales, in_groups, is_symmetric)
    return list(
        ops.sum_quantized(_integers(input_vals), params, devices_per_node, out_groups, num_bits)
    )


def _fake_quantizer(name, dtype, is_symmetric, is_stochastic):
    """Makes one of the functions that DeepSpeed has up to 0.19.6, which change x in place."""

    @torch.no_grad()
    def fake_quantizer(x, groups, bits):
        if x.dtype != dtype:
            raise InvalidArgumentError(
                f"{name}(): argument 'x': found {x.dtype}, wanted {dtype}, of which the function "
                "has its name; convert it"
            )
        whole = x.detach().contiguous()
        options = {"symmetric": is_symmetric, "stochastic": is_stochastic}
        ops.fake_quantize_(whole, groups, bits, **options)
        if whole.data_ptr() != x.data_ptr():
            x.copy_(whole)
        return x

    rounding = "at random" if is_stochastic else "to nearest"
    fake_quantizer.__name__ = fake_quantizer.__qualname__ = name
    fake_quantizer.__doc__ = (
        f"Rounds {dtype} numbers {rounding} to those that integers of `bits` bits stand for, in "
        f"place; groups are {'symmetric' if is_symmetric else 'asymmetric'}. Returns x."
    )
    return fake_quantizer


def _fake_quantizers():
    for sort, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
        for stochastic in ("", "sr_"):
            for kind in ("", "_asym"):
                name = f"ds_{stochastic}quantize{kind}_{sort}"
                yield name, _fake_quantizer(name, dtype, not kind, bool(stochastic))


globals().update(_fake_quantizers())
