# SPDX-License-Identifier: Apache-2.0
"""The formulas of the quantizer's ops, step by step in NumPy's float32, for the tests. Each step is
rounded once."""

import numpy as np

F = np.float32


def fused(a, b, c):
    """Returns a * b + c of float32 numbers, rounded once. The product is exact in float64. Where
    the sum is not, its last bit is set, so that rounding it again sees no tie that is none."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.asarray(c, np.float64)
    total = product + c
    rest = total - product
    error = (product - (total - rest)) + (c - rest)
    inexact = (error != 0) & np.isfinite(total)
    last = total.view(np.int64) & 1
    towards = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where(last == 1, total.view(np.int64), total.view(np.int64) + towards)
    return np.where(inexact, odd.view(np.float64), total).astype(F)


def parameters(x, bits, symmetric, scaled_offset):
    """Returns (factor, step, offset) of one group, a float32 vector."""
    half = F(2 ** (bits - 1))
    numbers = x[~np.isnan(x)]
    least, most = (F(numbers.min()), F(numbers.max())) if len(numbers) else (F(0), F(0))
    if symmetric:
        reach = max(most, F(-least))
        factor = F(1) if reach == 0 else half / reach
        offset = F(0)
    else:
        factor = F(1) if most == least else half / (most / F(2) - least / F(2))
        offset = most / F(2) + least / F(2)
    factor = min(factor, np.finfo(F).max)
    if scaled_offset:
        offset = fused(np.array([-least]), np.array([factor]), np.array([-half]))[0]
    return factor, F(1) / factor, offset


def integers(x, factor, offset, bits, scaled_offset):
    """Returns a group's integers as int64."""
    half = 2 ** (bits - 1)
    y = fused(x, factor, offset) if scaled_offset else (x - offset) * factor
    y = np.where(np.isnan(y), F(0), y)
    return np.clip(np.rint(y.astype(np.float64)), -half, half - 1).astype(np.int64)


def packed(q, bits):
    """Returns bytes of flat integers; the first of two integers of 4 bits is in the high bits."""
    if bits == 4:
        q = (q[0::2] & 15) << 4 | (q[1::2] & 15)
    return (q & 255).astype(np.uint8).view(np.int8)


def unpacked(data, bits):
    """Returns the integers of flat bytes."""
    if bits == 8:
        return data.view(np.int8).astype(np.int64)
    pairs = data.view(np.uint8).astype(np.int64)
    both = np.stack([pairs >> 4, pairs & 15], 1).reshape(-1)
    return np.where(both > 7, both - 16, both)


def slot(group, groups, slices, nodes, devices):
    """Returns where a group goes: partitions by device, then by node, in each slice."""
    run = groups // (slices * nodes * devices)
    partition, rest = divmod(group, slices * run)
    part, i = divmod(rest, run)
    order = partition % devices * nodes + partition // devices
    return (part * nodes * devices + order) * run + i


@np.errstate(all="ignore")
def quantize(x, groups, bits=8, symmetric=True, scaled_offset=False, slices=1, nodes=1, devices=1):
    """Returns (bytes, params) of a float32 array, flat and [groups, 1 or 2]."""
    x = np.asarray(x, F).reshape(groups, -1)
    q, params = [None] * groups, [None] * groups
    for group in range(groups):
        factor, step, offset = parameters(x[group], bits, symmetric, scaled_offset)
        at = slot(group, groups, slices, nodes, devices)
        q[at] = integers(x[group], factor, offset, bits, scaled_offset)
        params[at] = [step] if symmetric else [step, offset]
    return packed(np.concatenate(q), bits), np.array(params, F)


@np.errstate(all="ignore")
def dequantize(data, params, bits=8, scaled_offset=False):
    """Returns the float32 numbers, flat."""
    q = unpacked(data, bits).reshape(len(params), -1).astype(F)
    step = params[:, :1]
    offset = params[:, 1:] if params.shape[1] == 2 else np.zeros_like(step)
    if scaled_offset:
        return ((q - offset) * step).reshape(-1)
    return fused(q, step, offset).reshape(-1)


@np.errstate(all="ignore")
def total(data, params, tensors, bits=8):
    """Returns the float32 sum of the tensors, flat."""
    found = None
    own = params.reshape(tensors, -1, params.shape[1])
    for q, some in zip(unpacked(data, bits).reshape(tensors, -1), own, strict=True):
        numbers = q.reshape(len(some), -1).astype(F)
        before = np.zeros_like(numbers) if found is None else found.reshape(numbers.shape)
        found = fused(numbers, some[:, :1], before)
        if params.shape[1] == 2:
            found = found + some[:, 1:]
        found = found.reshape(-1)
    return found


@np.errstate(all="ignore")
def dequantize_unsigned(data, scale, least, bits=8):
    """Returns the float16 numbers, flat."""
    q = unpacked(data, bits) & (255 if bits == 8 else 15)
    q = q.reshape(len(scale), -1).astype(np.float16)
    return (q / scale[:, None] + least[:, None]).reshape(-1)


@np.errstate(all="ignore")
def fake(x, groups, bits=8, symmetric=True, drawn=None):
    """Returns the float32 numbers that integers stand for, flat. drawn: a random integer below 2^32
    for each number, or None."""
    x = np.asarray(x, F).reshape(groups, -1)
    found, levels = np.empty_like(x), F(2**bits)
    for group, numbers in enumerate(x):
        real = numbers[~np.isnan(numbers)]
        least, most = (real.min(), real.max()) if len(real) else (F(0), F(0))
        factor = levels / (F(2) * max(most, F(-least)) + F(1e-5))
        step = (most - least + F(1e-5)) / levels
        y = numbers * factor if symmetric else (numbers - least) / step
        if drawn is None:
            q = np.rint(y)
        else:
            towards = np.trunc(y)
            shares = (drawn.reshape(x.shape)[group] >> 8).astype(F) / F(2**24)
            q = np.where(shares < abs(y - towards), towards + np.sign(y), towards)
        if symmetric:
            q = np.where(np.isnan(q), q, np.clip(q, -levels / 2, levels / 2 - 1))
            found[group] = q / factor
        else:
            found[group] = fused(q, step, least)
    return found.reshape(-1)
