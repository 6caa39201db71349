# SPDX-License-Identifier: Apache-2.0
"""Tests the codes of fp_quantizer on every device, bit for bit: the oracle lists all numbers of a
format, chooses the nearest, and joins their bits."""

import itertools

import numpy as np
import pytest
import row_cases
import torch
from philox import numbers

import opdock
from opdock.testing import on

F16, BF16 = torch.float16, torch.bfloat16
FORMATS = {"e4m3": (4, 3), "e5m2": (5, 2), "e3m2": (3, 2), "e4m7": (4, 7), "e2m1": (2, 1)}
RANGES = {"e4m3": 480, "e5m2": 114688, "e3m2": 28, "e4m7": 510, "e2m1": 6}
SEED = 0xFEDC_BA98_7654_3210


def bits_of(name):
    return 1 + sum(FORMATS[name])


def keywords(name):
    exponent_bits, mantissa_bits = FORMATS[name]
    return {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}


def all_numbers(name):
    """Returns the number of each code, in float64: (-1)^s (1 + m / 2^M) 2^(e - bias)."""
    exponent_bits, mantissa_bits = FORMATS[name]
    bias = 2 ** (exponent_bits - 1) - 1
    parts = itertools.product((1, -1), range(2**exponent_bits), range(2**mantissa_bits))
    return np.array([s * (1 + m / 2**mantissa_bits) * 2.0 ** (e - bias) for s, e, m in parts])


def positive_numbers(name):
    return all_numbers(name)[: 2 ** (bits_of(name) - 1)]


def scaled(x, name):
    """Returns (the rows of x times range / largest, the scales), in float32, for finite numbers."""
    x = x.reshape(-1, x.shape[-1]).double().numpy()
    largest = np.abs(x).max(-1, keepdims=True).astype(np.float32)
    # In float32, but for exponents: numbers that are too small for it are raised by a power of 2.
    power = np.where(largest < 1e-20, 2.0**64, 1.0)
    raised = (largest * power).astype(np.float32)
    with np.errstate(divide="ignore"):
        factor = np.where(raised == 0, 0, np.float32(RANGES[name]) / raised).astype(np.float32)
    scale = (largest.astype(np.float64) / RANGES[name]).astype(np.float32)
    return (x * power).astype(np.float32) * factor, scale


def nearest(values, name):
    """Returns the nearest codes to float32 values, without signs; of two as near the larger one."""
    positive = positive_numbers(name)
    return np.searchsorted((positive[1:] + positive[:-1]) / 2, np.abs(values), side="right")


def to_bytes(codes, signs, scale, name):
    """Returns the bytes of each row: the bits of its codes, the lowest ones first, then its
    scale."""
    bits = bits_of(name)
    signed = codes.astype(np.int64) | signs.astype(np.int64) << bits - 1
    ones = signed[:, :, None] >> np.arange(bits) & 1
    whole = np.packbits(ones.astype(bool).reshape(len(codes), -1), axis=-1, bitorder="little")
    last = np.ascontiguousarray(scale, dtype="<f4").view(np.uint8)
    return torch.from_numpy(np.concatenate([whole, last], -1))


def wanted_bytes(x, name):
    values, scale = scaled(x, name)
    signs = torch.signbit(x).reshape(values.shape).numpy().astype(int)
    found = to_bytes(nearest(values, name), signs, scale, name)
    return found.view(*x.shape[:-1], -1)


def scales_of(q):
    """Returns the scales of rows of bytes, shape [rows, 1]."""
    rows = q.reshape(-1, q.shape[-1])[:, -4:]
    return rows.clone(memory_format=torch.contiguous_format).view(torch.float32)


def from_bytes(q, name):
    """Returns (codes, scales) of rows of bytes, as arrays."""
    bits = bits_of(name)
    rows = q.reshape(-1, q.shape[-1]).numpy()
    ones = np.unpackbits(rows[:, :-4], axis=-1, bitorder="little").reshape(len(rows), -1, bits)
    return ones @ (1 << np.arange(bits)), scales_of(q).numpy()


def wanted_numbers(q, name, dtype):
    codes, scales = from_bytes(q, name)
    with np.errstate(invalid="ignore", over="ignore"):
        product = all_numbers(name)[codes].astype(np.float32) * scales
    return torch.from_numpy(product).to(dtype).view(*q.shape[:-1], -1)


def assert_same(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def quantize(device, x, name, **more):
    return on(device, opdock.ops.fp_quantize)(x, **keywords(name), **more)


def dequantize(device, q, name, dtype, **more):
    return on(device, opdock.ops.fp_dequantize)(q, **keywords(name), dtype=dtype, **more)


def check(device, x, name, **more):
    q = quantize(device, x, name, **more)
    assert torch.equal(q, wanted_bytes(x, name))
    assert_same(dequantize(device, q, name, x.dtype), wanted_numbers(q, name, x.dtype))
    return q


@pytest.mark.parametrize("name", FORMATS)
def test_ranges(name):
    """The largest numbers, which DeepSpeed's Python names too."""
    assert all_numbers(name).max() == RANGES[name]
    assert len(set(all_numbers(name))) == 2 ** bits_of(name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("groups", range(1, 10))
@pytest.mark.parametrize("group", [8, 24, 128, 136, 512, 1536])
def test_groups(device, name, dtype, groups, group):
    """Also groups of DeepSpeed's Python, and numbers of groups that do not fill a block."""
    check(device, row_cases.random((groups, group), dtype, groups), name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("group", [4, 12, 20, 132, 4100, 9000])
def test_other_groups(device, name, dtype, group):
    """Groups that are not whole vectors, and some that no block holds."""
    check(device, row_cases.random((3, group), dtype, group), name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("group", [8, 4096, 4104])
def test_many_groups(device, several_threads, name, group):
    check(device, row_cases.random((max(2, 6000 // group), group), BF16), name)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
@pytest.mark.parametrize("group", [1, 2, 3, 7, 9, 33])
def test_bytes_of_any_number(device, name, group):
    check(device, row_cases.random((5, group), F16), name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("begin", [1, 2, 4, 8, 11])
def test_misaligned_memory(device, name, begin):
    """Of numbers by elements, and of bytes."""
    x = row_cases.random((begin + 3 * 64,), BF16)[begin:].view(3, 64)
    row = 8 * bits_of(name) + 4
    memory = torch.zeros(begin + 3 * row + 5, dtype=torch.uint8)
    out = memory[begin : begin + 3 * row].view(3, row)
    q = check(device, x, name, out=out)
    assert q is out
    assert not memory[:begin].any() and not memory[-5:].any()
    found = torch.zeros(begin + 3 * 64 + 5, dtype=BF16)
    into = found[begin : begin + 3 * 64].view(3, 64)
    assert dequantize(device, q, name, BF16, out=into) is into
    assert_same(into, wanted_numbers(q, name, BF16))
    assert not found[:begin].any() and not found[-5:].any()


def all_finite():
    """Returns all numbers of bfloat16 but infinities and NaNs, which become 0."""
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(BF16)
    return torch.where(x.isfinite(), x, torch.zeros((), dtype=BF16))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("largest", ["range", 1.0, 0.7, 3e-30, 3e38, 1e-39])
def test_every_bfloat16(device, name, largest):
    """With the range as the largest magnitude the scale is 1; 1e-39 is subnormal."""
    largest = torch.tensor(RANGES[name] if largest == "range" else largest, dtype=BF16).item()
    x = all_finite().clamp(-largest, largest)
    check(device, x[None], name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_every_code(device, name, dtype):
    """Times scales of which some make numbers that the dtype rounds, or lacks."""
    codes = np.arange(2 ** bits_of(name))
    scale = np.array([[1], [0.37], [-3], [2**-20 / 3], [1e-38], [3e38], [0], [np.inf], [np.nan]])
    rows = np.repeat(codes[None], len(scale), 0)
    q = to_bytes(rows, np.zeros_like(rows), scale.astype(np.float32), name)
    assert_same(dequantize(device, q, name, dtype), wanted_numbers(q, name, dtype))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_every_code_comes_back(device, name, dtype):
    """Numbers that have a code get it: each once in a row, whose scale is 1."""
    values = torch.from_numpy(all_numbers(name))
    if dtype == F16 and name == "e5m2":
        values = values / 4  # in float16 there is no 114688
    x = values.to(dtype)[None]
    assert torch.equal(x.double(), values[None])
    codes, scales = from_bytes(quantize(device, x, name), name)
    assert codes.tolist() == [list(range(2 ** bits_of(name)))]
    assert scales.item() == (0.25 if dtype == F16 and name == "e5m2" else 1)
    assert_same(dequantize(device, quantize(device, x, name), name, dtype), x)


@pytest.mark.parametrize("name", FORMATS)
def test_zeros(device, name):
    """DeepSpeed's code of 0 stands for 2, and its smallest code is twice the smallest number."""
    x = torch.zeros(3, 64, dtype=BF16)
    x[1, 5] = RANGES[name]
    x[2] = -0.0
    q = check(device, x, name)
    found = dequantize(device, q, name, BF16)
    assert not found[0].any() and not found[2].any()
    smallest = positive_numbers(name)[0]
    assert found[1].tolist() == [RANGES[name] if i == 5 else smallest for i in range(64)]


def test_infinities_and_nans(device):
    x = row_cases.random((4, 64), F16)
    x[1, 3], x[2, 7], x[3, 9], x[3, 10] = float("inf"), float("nan"), float("nan"), float("inf")
    found = dequantize(device, quantize(device, x, "e4m3"), "e4m3", F16)
    assert found[0].isfinite().all()
    assert_same(found[1], torch.copysign(torch.tensor(float("inf"), dtype=F16), x[1]))
    assert found[2:].isnan().all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("group", [136, 12])
def test_stochastic_codes(device, name, offset, group):
    """The random number's lowest bits are added to those that the code drops."""
    x = row_cases.random((5, group), BF16)
    values, scale = scaled(x, name)
    drawn = numbers(SEED, offset, x.numel()).astype(np.int64).reshape(x.shape)
    shift = 23 - FORMATS[name][1]
    bits = np.abs(values).view(np.int32).astype(np.int64) + drawn % 2**shift
    cut = (bits >> shift << shift).astype(np.int32).view(np.float32)
    signs = torch.signbit(x).numpy().astype(int)
    wanted = to_bytes(nearest(cut, name), signs, scale, name)
    found = quantize(device, x, name, stochastic=True, generator=(SEED, offset))
    assert torch.equal(found, wanted)


def test_stochastic_rounding_is_right_on_average():
    x = torch.full((4000, 64), 0.7, dtype=F16)
    x[:, 0] = 1
    generator = opdock.Generator(5)
    q = quantize("cpu", x, "e2m1", stochastic=True, generator=generator)
    assert generator.offset == x.numel()
    found = dequantize("cpu", q, "e2m1", F16)[:, 1:].double()
    share = (found.max() - found.mean()) / (found.max() - found.min())
    assert len(found.unique()) == 2
    assert abs(found.mean() - 0.7) < 5 * (share * (1 - share) / found.numel()) ** 0.5
    opdock.ops.fp_quantize(x, generator=generator)
    assert generator.offset == x.numel(), "draws none"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("groups", [(), (3,), (2, 2)])
def test_selective_dequantize(device, name, groups):
    q = quantize("cpu", row_cases.random((4, *groups, 128), BF16), name)
    for index in ([1, 3], [0], [3, 3, 0, 1, 2], []):
        chosen = torch.tensor(index, dtype=torch.int32)
        op = on(device, opdock.ops.fp_selective_dequantize)
        found = op(q, chosen, **keywords(name), dtype=F16)
        if index:
            assert_same(found, wanted_numbers(q[chosen.long()], name, F16))
        assert found.shape == (len(index), *groups, 128)


@pytest.mark.parametrize("outside", [-1, 4, 2**31 - 1])
def test_an_index_that_is_outside(device, outside):
    q = quantize("cpu", row_cases.random((4, 2, 16), BF16), "e3m2")
    index = torch.tensor([1, outside, 2], dtype=torch.int32)
    op = on(device, opdock.ops.fp_selective_dequantize)
    if device == "cpu":
        with pytest.raises(opdock.InvalidArgumentError, match=f"'index': found {outside} as elem"):
            op(q, index, **keywords("e3m2"))
    else:
        found = op(q, index, **keywords("e3m2"))
        assert found[1].isnan().all()
        assert_same(found[::2], wanted_numbers(q[1:3], "e3m2", BF16))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(("shape", "columns", "groups"), [((3, 64), 48, 24), ((2, 5, 7), 6, 1)])
def test_matmul(device, name, dtype, shape, columns, groups):
    x = row_cases.random(shape, dtype)
    q = quantize("cpu", row_cases.random((groups, shape[-1] * columns // groups), dtype, 1), name)
    weight, scale = q[:, :-4].reshape(shape[-1], columns), scales_of(q)
    found = on(device, opdock.ops.fp_matmul)(x, weight, scale, **keywords(name))
    assert (found.dtype, found.shape) == (dtype, (*shape[:-1], columns))
    exact = x.double() @ wanted_numbers(q, name, dtype).view(shape[-1], columns).double()
    spread = (
        x.double().abs()
        @ wanted_numbers(q, name, dtype).view(exact.shape[:0] + (shape[-1], columns)).double().abs()
    )
    eps = torch.finfo(dtype).eps
    assert ((found.double() - exact).abs() <= eps * exact.abs() + 1e-6 * spread).all()


@pytest.mark.parametrize(("rows", "inner", "columns"), [(0, 16, 8), (3, 16, 0), (3, 0, 8)])
def test_matmul_of_nothing(device, rows, inner, columns):
    weight = torch.zeros(inner, columns, dtype=torch.uint8)
    x, scale = torch.ones(rows, inner, dtype=F16), torch.ones(1)
    found = on(device, opdock.ops.fp_matmul)(x, weight, scale)
    assert_same(found, torch.zeros(rows, columns, dtype=F16))


@pytest.mark.parametrize("name", FORMATS)
def test_the_reference(reference, name):
    x = row_cases.random((4, 3, 96), F16)
    x[1], x[2, 1, 5], x[3, 0, 1] = 0, float("nan"), float("inf")
    q = quantize("cpu", x, name)
    found = reference.fp_quantize(x, **keywords(name))
    assert torch.equal(found[..., :-4], q[..., :-4])
    # The scale of a row with a NaN may be any NaN.
    assert_same(dequantize("cpu", found, name, F16), dequantize("cpu", q, name, F16))
    again = reference.fp_dequantize(q, **keywords(name), dtype=F16)
    assert_same(again, dequantize("cpu", q, name, F16))
    index = torch.tensor([3, 0], dtype=torch.int32)
    assert_same(
        reference.fp_selective_dequantize(q, index, **keywords(name), dtype=F16), again[[3, 0]]
    )
    drawn = reference.fp_quantize(x, **keywords(name), stochastic=True)
    assert drawn.shape == q.shape


def test_the_reference_of_a_product(reference):
    x, weight = row_cases.random((5, 32), BF16), torch.arange(256, dtype=torch.uint8).view(32, 8)
    scale = torch.rand(16, 1)
    found = opdock.ops.fp_matmul(x, weight, scale)
    torch.testing.assert_close(reference.fp_matmul(x, weight, scale), found, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8)])
def test_no_groups(device, shape):
    q = quantize(device, torch.ones(shape, dtype=F16), "e4m3")
    assert q.shape == (*shape[:-1], 12)
    assert dequantize(device, q, "e4m3", F16).shape == shape


def test_bad_inputs_name_the_argument(device):
    ops = opdock.ops
    x, q = torch.ones(4, 16, dtype=BF16), torch.zeros(4, 12, dtype=torch.uint8)
    weight, scale, index = q[:, :8].clone(), torch.ones(4), torch.zeros(2, dtype=torch.int32)
    for op, name, args, named in [
        (ops.fp_quantize, "x", (x.float(),), {}),
        (ops.fp_quantize, "x", (x.t(),), {}),
        (ops.fp_quantize, "x", (x[0, 0],), {}),
        (ops.fp_quantize, "x", (torch.ones(4, 0, dtype=F16),), {}),
        (ops.fp_quantize, "x", (torch.ones(4, 18, dtype=F16),), keywords("e3m2")),
        (ops.fp_quantize, "x", (torch.ones(4, 17, dtype=F16),), keywords("e2m1")),
        (ops.fp_quantize, "exponent_bits", (x,), {"exponent_bits": 3}),
        (ops.fp_quantize, "mantissa_bits", (x,), {"exponent_bits": -1, "mantissa_bits": 0}),
        (ops.fp_dequantize, "q", (q.to(torch.int8),), {}),
        (ops.fp_dequantize, "q", (q.t(),), {}),
        (ops.fp_dequantize, "q", (q[:, :4].clone(),), {}),
        (ops.fp_dequantize, "q", (q[:, :11].clone(),), keywords("e3m2")),
        (ops.fp_dequantize, "dtype", (q,), {"dtype": torch.float32}),
        (ops.fp_selective_dequantize, "q", (q[0], index), {}),
        (ops.fp_selective_dequantize, "index", (q, index.long()), {}),
        (ops.fp_selective_dequantize, "index", (q, index.view(1, 2)), {}),
        (ops.fp_matmul, "exponent_bits", (x[:, :4].clone(), weight, scale), keywords("e3m2")),
        (ops.fp_matmul, "x", (x[:, :4].float(), weight, scale), {}),
        (ops.fp_matmul, "weight", (x, weight, scale), {}),
        (ops.fp_matmul, "weight", (x[:, :4].clone(), weight[0], scale), {}),
        (ops.fp_matmul, "weight", (x[:, :4].clone(), weight.char(), scale), {}),
        (ops.fp_matmul, "scale", (x[:, :4].clone(), weight, scale.half()), {}),
        (ops.fp_matmul, "scale", (x[:, :4].clone(), weight, torch.ones(3)), {}),
        (ops.fp_matmul, "scale", (x[:, :4].clone(), weight, torch.ones(0)), {}),
    ]:
        row_cases.assert_refused(on(device, op), name, *args, **named)
