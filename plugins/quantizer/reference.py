# SPDX-License-Identifier: Apache-2.0
"""The quantizer's ops in PyTorch: the plugin's fallback."""

import torch


def _fused(a, b, c):
    """Returns a * b + c of float32 tensors, rounded once but for ties that float64 cannot tell."""
    return (a.double() * b.double() + c.double()).float()


def _pack(q, bits, shape):
    """Returns integers as int8 of this shape, with 4 bits two a byte: the first one is high."""
    q = q.to(torch.int8)
    if bits == 4:
        pairs = q.reshape(-1, 2)
        q = pairs[:, 0] * 16 + (pairs[:, 1] & 15)
    return q.reshape(*shape[:-1], shape[-1] * bits // 8)


def _unpack(q, bits):
    """Returns the integers of bytes, signed if they are int8, flat, as float32."""
    q = q.reshape(-1)
    if bits == 4:
        low = q & 15 if q.dtype == torch.uint8 else ((q & 15) ^ 8) - 8
        q = torch.stack([q >> 4, low], 1).reshape(-1)
    return q.float()


def _quantize(x, groups, bits, symmetric, scaled_offset=False):
    """Returns (integers as floats, params) of x as groups, both [groups, …]."""
    x, levels = x.float().reshape(groups, -1), 2.0 ** (bits - 1)
    if x.numel() == 0:
        x = x.new_zeros(groups, 1)[:, :0]
        least = most = x.new_zeros(groups, 1)
    else:
        least = torch.where(x.isnan(), torch.inf, x).amin(1, keepdim=True)
        most = torch.where(x.isnan(), -torch.inf, x).amax(1, keepdim=True)
        is_empty = ~(least <= most)
        least, most = least.masked_fill(is_empty, 0), most.masked_fill(is_empty, 0)
    if symmetric:
        reach, is_flat = torch.maximum(most, -least), (most == 0) & (least == 0)
    else:
        reach, is_flat = most / 2 - least / 2, most == least
    factor = torch.where(is_flat, 1.0, levels / reach).clamp_max(torch.finfo(torch.float32).max)
    offset = torch.zeros_like(factor) if symmetric else most / 2 + least / 2
    if scaled_offset:
        offset = _fused(-least, factor, torch.tensor(-levels, device=x.device))
        y = _fused(x, factor, offset)
    else:
        y = (x - offset) * factor
    params = 1 / factor
    q = y.nan_to_num(0, torch.inf, -torch.inf).round().clamp(-levels, levels - 1)
    return q, params if symmetric else torch.cat([params, offset], 1)


def quantize_groups(
    x, groups, bits=8, *, symmetric=True, scaled_offset=False, slices=1, nodes=1, devices=1
):
    """Returns (q, params); partitions of groups are in the order [slice, device, node]."""
    q, params = _quantize(x, groups, bits, symmetric, scaled_offset)
    parts = (nodes, devices, slices, groups // (nodes * devices * slices))

    def reordered(one):
        return one.reshape(*parts, one.shape[1]).permute(2, 1, 0, 3, 4).reshape(one.shape)

    return _pack(reordered(q), bits, x.shape), reordered(params).contiguous()


def dequantize_groups(q, params, bits=8, *, scaled_offset=False, dtype=None):
    """Returns q * step + offset, or (q - offset) * step with scaled_offset."""
    shape = (*q.shape[:-1], q.shape[-1] * 8 // bits)
    dtype = dtype or torch.float32
    if q.numel() == 0:
        return torch.empty(shape, dtype=dtype, device=q.device)
    numbers = _unpack(q, bits).reshape(params.shape[0], -1)
    step = params[:, :1]
    offset = params[:, 1:] if params.shape[1] == 2 else torch.zeros_like(step)
    out = (numbers - offset) * step if scaled_offset else _fused(numbers, step, offset)
    return out.to(dtype).reshape(shape)


def sum_quantized(q, params, tensors, groups, bits=8):
    """Returns (q, params) of the sum of the tensors, which lie one after the other."""
    shape = (*q.shape[:-1], q.shape[-1] // tensors * (8 // bits))
    numbers = _unpack(q, bits).reshape(tensors, -1)
    total = torch.zeros_like(numbers[0])
    for one, own in zip(numbers, params.reshape(tensors, -1, params.shape[1]), strict=True):
        one = one.reshape(own.shape[0], -1) if one.numel() else one.reshape(own.shape[0], 0)
        step = own[:, :1]
        offset = own[:, 1:] if own.shape[1] == 2 else torch.zeros_like(step)
        total = (_fused(one, step, total.reshape(one.shape)) + offset).reshape(-1)
    found, params = _quantize(total, groups, bits, params.shape[1] == 1)
    return _pack(found, bits, shape), params


def dequantize_unsigned(q, scale, least, bits=8):
    """Returns q / scale + least, rounded to float16 after each step."""
    shape = (*q.shape[:-1], q.shape[-1] * 8 // bits)
    if q.numel() == 0:
        return torch.empty(shape, dtype=torch.float16, device=q.device)
    numbers = _unpack(q.view(torch.uint8), bits).reshape(scale.numel(), -1)
    ratio = (numbers / scale.reshape(-1, 1).float()).half()
    return (ratio.float() + least.reshape(-1, 1).float()).half().reshape(shape)


def fake_quantize_(x, groups, bits=8, *, symmetric=True, stochastic=False, generator=None):
    """Replaces x by the numbers that its integers stand for; draws torch's random numbers."""
    if x.numel() == 0:
        return
    y, levels = x.float().reshape(groups, -1), 2.0**bits
    least = torch.where(y.isnan(), torch.inf, y).amin(1, keepdim=True)
    most = torch.where(y.isnan(), -torch.inf, y).amax(1, keepdim=True)
    is_empty = ~(least <= most)
    least, most = least.masked_fill(is_empty, 0), most.masked_fill(is_empty, 0)
    factor = levels / (2 * torch.maximum(most, -least) + 1e-5)
    step = (most - least + 1e-5) / levels
    y = y * factor if symmetric else (y - least) / step
    if stochastic:
        numbers = torch.rand(y.shape, generator=generator, device=y.device)
        towards = y.trunc()
        q = torch.where(numbers < (y - towards).abs(), towards + y.sign(), towards)
    else:
        q = y.round()
    q = q.clamp(-levels / 2, levels / 2 - 1) / factor if symmetric else _fused(q, step, least)
    x.copy_(q.to(x.dtype).reshape(x.shape))
