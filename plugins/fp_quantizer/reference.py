# SPDX-License-Identifier: Apache-2.0
"""The ops of fp_quantizer in PyTorch: the plugin's fallback. Random rounding draws torch's numbers
instead of the plugin's."""

import torch

FORMATS = {(4, 3), (5, 2), (3, 2), (4, 7), (2, 1)}
SCALE_BYTES = 4


def _bias(exponent_bits, mantissa_bits):
    if (exponent_bits, mantissa_bits) not in FORMATS:
        raise ValueError(
            f"argument 'exponent_bits': found {exponent_bits} with {mantissa_bits} "
            f"'mantissa_bits', wanted one of {sorted(FORMATS)}; choose one of these formats"
        )
    return 2 ** (exponent_bits - 1) - 1


def _decode(codes, exponent_bits, mantissa_bits):
    """Returns the numbers of codes, as float32."""
    bias = _bias(exponent_bits, mantissa_bits)
    mantissa = codes % 2**mantissa_bits
    exponent = codes // 2**mantissa_bits % 2**exponent_bits
    sign = 1 - 2 * (codes >> (exponent_bits + mantissa_bits))
    number = (1 + mantissa.double() / 2**mantissa_bits) * torch.exp2(exponent.double() - bias)
    return (sign * number).float()


def _to_bytes(codes, bits):
    """Returns the codes of each row in bytes, the first one in the lowest bits."""
    ones = codes[..., None] >> torch.arange(bits, device=codes.device) & 1
    ones = ones.reshape(*codes.shape[:-1], -1, 8)
    return (ones << torch.arange(8, device=codes.device)).sum(-1).to(torch.uint8)


def _from_bytes(q, bits):
    ones = q[..., None].long() >> torch.arange(8, device=q.device) & 1
    ones = ones.reshape(*q.shape[:-1], -1, bits)
    return (ones << torch.arange(bits, device=q.device)).sum(-1)


def fp_quantize(x, *, exponent_bits=4, mantissa_bits=3, stochastic=False, generator=None):
    """Returns the codes and the scale of each row of x, in bytes."""
    bits, bias = 1 + exponent_bits + mantissa_bits, _bias(exponent_bits, mantissa_bits)
    if x.shape[-1] == 0 or x.shape[-1] * bits % 8:
        raise ValueError(
            f"argument 'x': found rows of {x.shape[-1]} elements, wanted some whose {bits}-bit "
            "codes are whole bytes; reshape it"
        )
    most = 2 ** (exponent_bits + mantissa_bits) - 1
    largest_code = torch.tensor(most, device=x.device)
    range_ = _decode(largest_code, exponent_bits, mantissa_bits)
    magnitude = x.float().abs()
    largest = magnitude.amax(-1, keepdim=True)  # NaN if one is
    before = torch.where(largest < 2.0**-80, 2.0**64, 1.0)
    raised = largest * before
    factor = torch.where(raised == 0, 0.0, range_ / raised)
    whole = (magnitude * before * factor).view(torch.int32).long() & 0x7FFFFFFF  # of NaN too
    shift = 23 - mantissa_bits
    if stochastic:
        device = generator.device if generator is not None else x.device
        addend = torch.randint(2**shift, x.shape, generator=generator, device=device).to(x.device)
    else:
        addend = 2 ** (shift - 1)
    codes = ((whole + addend) >> shift) - ((127 - bias) << mantissa_bits)
    codes = codes.clamp(0, most) | x.view(torch.int16).long() >> 15 & 1 << (bits - 1)
    scale = (largest / range_).view(torch.uint8)
    return torch.cat([_to_bytes(codes, bits), scale], -1)


def fp_dequantize(q, *, exponent_bits=4, mantissa_bits=3, dtype=None):
    """Returns the numbers of fp_quantize's result."""
    scale = q[..., -SCALE_BYTES:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    codes = _from_bytes(q[..., :-SCALE_BYTES], 1 + exponent_bits + mantissa_bits)
    return (_decode(codes, exponent_bits, mantissa_bits) * scale).to(dtype or torch.bfloat16)


def fp_selective_dequantize(q, index, *, exponent_bits=4, mantissa_bits=3, dtype=None):
    """Returns the numbers of q[index]."""
    return fp_dequantize(
        q[index.long()], exponent_bits=exponent_bits, mantissa_bits=mantissa_bits, dtype=dtype
    )


def fp_matmul(x, weight, scale, *, exponent_bits=4, mantissa_bits=3):
    """Returns x times the numbers of the weight, which are rounded to the dtype of x."""
    numbers = _decode(weight.long(), exponent_bits, mantissa_bits)
    if weight.numel():
        numbers = (numbers.reshape(scale.numel(), -1) * scale.reshape(-1, 1)).view(weight.shape)
    return torch.matmul(x.float(), numbers.to(x.dtype).float()).to(x.dtype)
