# SPDX-License-Identifier: Apache-2.0
"""Tests the quantizer's ops on every device, bit for bit."""

import sys
from pathlib import Path

import numpy as np
import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
import quantizer_oracle as oracle

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
#: symmetric, scaled_offset
SCHEMES = {"symmetric": (True, False), "offset": (False, False), "scaled": (False, True)}
#: Groups of each way to share one: one thread, some of a warp, a warp, several, and read again.
LENGTHS = [8, 2, 6, 10, 24, 64, 100, 512, 1000, 1024, 4098, 8192, 16384, 16392]
ODD_LENGTHS = [1, 3, 7, 9, 31, 257, 1021, 5003, 20001]


def flat(x):
    return x.float().numpy().reshape(-1)


def assert_same(found, wanted, dtype=torch.float32):
    """Compares bit for bit, except that any two NaNs are equal."""
    wanted = torch.from_numpy(np.ascontiguousarray(wanted)).to(dtype).reshape(found.shape)
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def check_quantize(device, x, groups, bits=8, scheme="symmetric", **swizzle):
    symmetric, scaled = SCHEMES[scheme]
    q, params = on(device, opdock.ops.quantize_groups)(
        x, groups, bits, symmetric=symmetric, scaled_offset=scaled, **swizzle
    )
    assert q.shape == (*x.shape[:-1], x.shape[-1] * bits // 8)
    assert params.shape == (groups, 1 if symmetric else 2)
    wanted_q, wanted_params = oracle.quantize(flat(x), groups, bits, symmetric, scaled, **swizzle)
    assert_same(params, wanted_params)
    assert_same(q, wanted_q, torch.int8)
    return q, params


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantize(device, dtype, length, bits, scheme):
    groups = 3 if length > 4000 else 13
    check_quantize(device, random((groups, length), dtype, length, mean=0.3), groups, bits, scheme)


@pytest.mark.parametrize("length", ODD_LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_groups(device, dtype, length):
    groups = 3 if length > 4000 else 29
    check_quantize(device, random((groups, length), dtype, length), groups, 8, "offset")


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("begin", [1, 2, 4, 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_memory(device, dtype, begin, bits):
    x = random((900,), dtype, begin)[begin : begin + 72 * 12].view(3, 288)
    groups = {1: 12, 2: 36, 4: 3, 5: 432}[begin]
    q, params = check_quantize(device, x, groups, bits, "offset")
    memory = torch.zeros(q.numel() + 16, dtype=torch.int8)
    places = torch.zeros(params.numel() + 8)
    out = memory[begin : begin + q.numel()].view(q.shape), places[3:-5].view(params.shape)
    found = on(device, opdock.ops.quantize_groups)(x, groups, bits, symmetric=False, out=out)
    assert found[0] is out[0] and torch.equal(out[0], q) and torch.equal(out[1], params)
    assert memory[:begin].any() == memory[begin + q.numel() :].any() == False  # noqa: E712 (a pair)


def test_known_integers(device):
    """The integers of a few numbers, computed by hand: ties, the ends, and both nibbles."""
    x = torch.tensor([[-4.0, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.0]]).half()
    q, params = on(device, opdock.ops.quantize_groups)(x, 1, 4)
    # The factor is 16 / 8 = 2; 4 * 2 = 8 is limited to 7.
    assert params.tolist() == [[0.5]]
    assert q.view(torch.uint8).tolist() == [[0x8D, 0xF1, 0x35, 0x77]]
    x = torch.tensor([[-1.0, 0.00390625, 0.01171875, 1.0]])
    q, params = on(device, opdock.ops.quantize_groups)(x, 1, 8)
    assert params.tolist() == [[1 / 128]] and q.tolist() == [[-128, 0, 2, 127]]
    q, params = on(device, opdock.ops.quantize_groups)(x + 3, 1, 8, symmetric=False)
    assert params.tolist() == [[1 / 128, 3.0]] and q.tolist() == [[-128, 0, 2, 127]]
    options = {"symmetric": False, "scaled_offset": True}
    q, params = on(device, opdock.ops.quantize_groups)(x + 3, 1, 8, **options)
    assert params.tolist() == [[1 / 128, -128 - 2 * 128]] and q.tolist() == [[-128, 0, 2, 127]]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_numbers(device, dtype, scheme):
    x = random((12, 48), dtype, 3)
    x[0] = 0
    x[1] = 2.5
    x[2, 5], x[3, 4], x[4, ::7] = float("nan"), float("inf"), -float("inf")
    x[5] = float("nan")
    x[6] = float("inf")
    x[7] *= 1e-7
    x[8] *= 1e-20
    x[9] = x[9].sign() * torch.finfo(dtype).max
    x[10] = torch.finfo(dtype).tiny
    x[11, 0], x[11, 1] = 0.0, -0.0
    symmetric, scaled = SCHEMES[scheme]
    q, params = check_quantize(device, x, 12, 8, scheme)
    found = on(device, opdock.ops.dequantize_groups)(q, params, scaled_offset=scaled)
    assert_same(found, oracle.dequantize(q.numpy(), params.numpy(), 8, scaled))
    assert not found[0].any() and not q[2, 5] and not q[5].any()
    assert not found[3].isfinite().any()
    if dtype == torch.float32:
        # Factors that would be infinite.
        check_quantize(device, torch.full((2, 8), 1e-41), 2, 8, scheme)
        check_quantize(device, torch.tensor([[0.0, 1e-42], [3e38, -3e38]]), 2, 4, scheme)


@pytest.mark.parametrize("nodes,devices,slices", [(2, 4, 1), (2, 4, 2), (1, 8, 3), (4, 1, 1)])
@pytest.mark.parametrize("bits,length", [(4, 64), (8, 7), (4, 10), (8, 600)])
def test_swizzle(device, bits, length, nodes, devices, slices):
    groups = nodes * devices * slices * 3
    x = random((groups, length), torch.float16, slices)
    swizzle = {"slices": slices, "nodes": nodes, "devices": devices}
    check_quantize(device, x, groups, bits, "offset" if slices == 2 else "symmetric", **swizzle)


def test_swizzle_as_documented():
    """DeepSpeed's example: of two nodes with four devices, partitions 0 to 7 are in the order 0, 4,
    1, 5, 2, 6, 3, 7."""
    x = torch.arange(1, 9.0)[:, None].expand(8, 4).contiguous()
    _, params = opdock.ops.quantize_groups(x, 8, nodes=2, devices=4)
    assert (params[:, 0] * 128).round().tolist() == [1, 5, 2, 6, 3, 7, 4, 8]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("length", [8, 2, 6, 12, 40, 130, 1024, 16390])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dequantize(device, dtype, length, bits, scheme):
    groups = 2 if length > 4000 else 37
    symmetric, scaled = SCHEMES[scheme]
    q = integers((groups, length * bits // 8), length)
    params = random((groups, 1 if symmetric else 2), torch.float32, 5, mean=3)
    found = on(device, opdock.ops.dequantize_groups)(
        q, params, bits, scaled_offset=scaled, dtype=dtype
    )
    assert_same(
        found, oracle.dequantize(q.numpy().reshape(-1), params.numpy(), bits, scaled), dtype
    )


def integers(shape, seed=0, dtype=torch.int8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8).view(dtype)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("length", [1, 3, 5, 7, 9, 15, 257])
def test_dequantize_odd_groups(device, length, bits):
    if bits == 4:
        length *= 2
    q = integers((40, length * bits // 8), length)
    params = random((40, 2), torch.float32, 5)
    found = on(device, opdock.ops.dequantize_groups)(q, params, bits, dtype=torch.float16)
    wanted = oracle.dequantize(q.numpy().reshape(-1), params.numpy(), bits)
    assert_same(found, wanted, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("begin", [1, 2, 4])
def test_dequantize_misaligned_memory(device, begin, dtype):
    q = integers((4 * 64 + 8,))[begin : begin + 256].view(4, 64)
    params = random((4, 2), torch.float32)
    for bits in (8, 4):
        wanted = oracle.dequantize(q.numpy().reshape(-1), params.numpy(), bits)
        memory = torch.zeros(len(wanted) + 8, dtype=dtype)
        out = memory[begin : begin + len(wanted)].view(4, -1)
        on(device, opdock.ops.dequantize_groups)(q, params, bits, dtype=dtype, out=out)
        assert_same(out, wanted, dtype)
        assert not memory[:begin].any() and not memory[begin + len(wanted) :].any()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("length", [8, 2, 6, 12, 40, 130, 4096])
def test_dequantize_unsigned(device, length, bits):
    q = integers((37, length * bits // 8), length, torch.uint8)
    scale = (random((37, 1), torch.float16, 5).abs() + 0.01).half()
    least = random((37, 1), torch.float16, 6)
    found = on(device, opdock.ops.dequantize_unsigned)(q, scale, least, bits)
    flats = scale.numpy().reshape(-1), least.numpy().reshape(-1)
    assert_same(
        found, oracle.dequantize_unsigned(q.numpy().reshape(-1), *flats, bits), torch.float16
    )


def quantized_tensors(tensors, groups, length, bits, symmetric, seed=0):
    """Returns (q, params) of tensors of so many groups each, as sum_quantized takes them."""
    data = random((tensors * groups, length), torch.float32, seed).numpy()
    q, params = oracle.quantize(data, tensors * groups, bits, symmetric)
    return torch.from_numpy(q), torch.from_numpy(params)


def check_sum(device, q, params, tensors, groups, bits):
    found_q, found_params = on(device, opdock.ops.sum_quantized)(q, params, tensors, groups, bits)
    sums = oracle.total(q.numpy().reshape(-1), params.numpy(), tensors, bits)
    wanted_q, wanted_params = oracle.quantize(sums, groups, bits, params.shape[1] == 1)
    assert_same(found_params, wanted_params)
    assert_same(found_q, wanted_q, torch.int8)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("tensors", [1, 3, 8, 16])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    "groups,length,results",
    [(4, 64, 4), (6, 40, 3), (12, 10, 4), (3, 24, 9), (2, 2050, 1), (1, 12300, 2), (5, 8, 5)],
)
def test_sum(device, groups, length, results, bits, tensors, symmetric):
    if bits == 4 and groups * length // results % 2:
        pytest.skip("a byte would have integers of two groups")
    q, params = quantized_tensors(tensors, groups, length, bits, symmetric, tensors)
    check_sum(device, q, params, tensors, results, bits)


@pytest.mark.parametrize("bits", [8, 4])
def test_sum_of_tiny_and_infinite_steps(device, bits):
    q, params = quantized_tensors(3, 6, 16, bits, True)
    params[2], params[4], params[8] = 1e-38, 1e-45, float("inf")
    check_sum(device, q, params, 3, 6, bits)


@pytest.mark.parametrize("bits", [8, 4])
def test_sum_misaligned_memory(device, bits):
    q, params = quantized_tensors(3, 6, 22, bits, False)
    wide = torch.cat([q[:1], q])
    check_sum(device, wide[1:], params, 3, 2, bits)


def philox(seed, first, count):
    """Returns numbers first … of the seed as the plugins' dropout draws them."""
    return np.array(
        [
            word
            for block in range(first // 4, (first + count + 3) // 4)
            for word in philox_block(block, seed)
        ],
        np.uint32,
    )[first % 4 :][:count]


def philox_block(block, seed):
    """Returns the four words of Philox4x32-10."""
    c, mask = [block & 0xFFFFFFFF, block >> 32, 0, 0], 0xFFFFFFFF
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ key[0], b & mask, (a >> 32) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c


def check_fake(device, x, groups, bits, symmetric, seed=None):
    options = {} if seed is None else {"stochastic": True, "generator": (seed, 5)}
    drawn = None if seed is None else philox(seed, 5, x.numel())
    found = x.clone() if x.data_ptr() % 16 == 0 else torch.cat([x[:1], x])[1:]
    on(device, opdock.ops.fake_quantize_)(found, groups, bits, symmetric=symmetric, **options)
    assert_same(found, oracle.fake(flat(x), groups, bits, symmetric, drawn), x.dtype)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("seed", [None, 2**40 + 7])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("length", [1, 5, 8, 12, 257, 1024, 20001])
@pytest.mark.parametrize("dtype", DTYPES)
def test_fake(device, dtype, length, bits, seed, symmetric):
    groups = 1 if length > 4000 else 7
    x = random((groups, length), dtype, length, mean=0.2)
    check_fake(device, x, groups, bits, symmetric, seed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fake_of_misaligned_memory(device, dtype):
    x = random((481,), dtype)[1:]
    for groups in (1, 12, 32):
        check_fake(device, x, groups, 8, False)


def test_fake_of_special_numbers(device):
    x = random((6, 24), torch.float32)
    x[0], x[1, 3], x[2, 1], x[3], x[4] = 0, float("nan"), float("inf"), float("nan"), 1e30
    for symmetric in (True, False):
        check_fake(device, x, 6, 8, symmetric)
        check_fake(device, x, 6, 4, symmetric, 3)


def test_stochastic_rounding_keeps_the_mean():
    """The mean of many roundings is the number, within 5 standard deviations."""
    x = torch.full((1, 40000), 0.3)
    x[0, 0] = 1.0
    opdock.ops.fake_quantize_(x, 1, 4, stochastic=True, generator=(11, 0))
    y = x[0, 1:]
    step = y.max() - y.min()
    assert len(y.unique()) == 2
    assert abs(y.double().mean() - 0.3) < 5 * 0.5 * step / 200


@pytest.mark.parametrize("bits", [8, 4])
def test_several_threads(several_threads, bits):
    x = random((64, 1000), torch.float16)
    q, params = check_quantize("cpu", x, 64, bits)
    check_sum("cpu", q, params, 4, 16, bits)
    found = opdock.ops.dequantize_groups(q, params, bits)
    assert_same(found, oracle.dequantize(q.numpy().reshape(-1), params.numpy(), bits))


@pytest.mark.parametrize("bits", [8, 4])
def test_zero_sizes(device, bits):
    q, params = on(device, opdock.ops.quantize_groups)(torch.ones(3, 0), 5, bits, symmetric=False)
    assert q.shape == (3, 0) and params.tolist() == [[1.0, 0.0]] * 5
    found = on(device, opdock.ops.dequantize_groups)(q, params, bits)
    assert found.shape == (3, 0) and found.dtype == torch.float32
    q, params = on(device, opdock.ops.sum_quantized)(q, params[:4], 2, 3, bits)
    assert q.shape == (3, 0) and params.tolist() == [[1.0, 0.0]] * 3
    scale = torch.ones(2).half()
    q = torch.ones(0, 4, dtype=torch.uint8)
    assert on(device, opdock.ops.dequantize_unsigned)(q, scale, scale, bits).numel() == 0


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_reference(reference, bits, scheme):
    symmetric, scaled = SCHEMES[scheme]
    options = {"symmetric": symmetric, "scaled_offset": scaled}
    x = random((24, 40), torch.float16, 2)
    x[3], x[4, 2] = 0, float("nan")
    for swizzle in ({}, {"slices": 3, "nodes": 2, "devices": 4}):
        ours = opdock.ops.quantize_groups(x, 24, bits, **options, **swizzle)
        theirs = reference.quantize_groups(x, 24, bits, **options, **swizzle)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(other, one.numpy(), one.dtype)
    q, params = ours
    one = {"scaled_offset": scaled, "dtype": torch.bfloat16}
    found = reference.dequantize_groups(q, params, bits, **one)
    assert torch.equal(found, opdock.ops.dequantize_groups(q, params, bits, **one))
    if not scaled:
        for some in ((8, 3), (1, 24)):
            ours = opdock.ops.sum_quantized(q.view(-1), params, *some, bits)
            theirs = reference.sum_quantized(q.view(-1), params, *some, bits)
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    if not scaled:
        ours, theirs, drawn = x.clone(), x.clone(), x.clone()
        opdock.ops.fake_quantize_(ours, 24, bits, symmetric=symmetric)
        reference.fake_quantize_(theirs, 24, bits, symmetric=symmetric)
        torch.testing.assert_close(theirs, ours, equal_nan=True)
        reference.fake_quantize_(drawn, 24, bits, symmetric=symmetric, stochastic=True)
        assert (drawn - ours).abs().nanmean() < 1
    scale = random((24,), torch.float16).abs() + 1
    unsigned = [opdock.ops.dequantize_unsigned, reference.dequantize_unsigned]
    assert torch.equal(*(op(q.view(torch.uint8), scale, scale, bits) for op in unsigned))


def test_bad_inputs_name_the_argument(device):
    x, q = torch.ones(4, 6), integers((4, 6))
    params = torch.ones(4, 1)
    scale = torch.ones(4).half()
    quantize, dequantize = opdock.ops.quantize_groups, opdock.ops.dequantize_groups
    total, unsigned = opdock.ops.sum_quantized, opdock.ops.dequantize_unsigned
    for op, name, args, keywords in [
        (quantize, "x", (x.double(), 4), {}),
        (quantize, "x", (x.t(), 4), {}),
        (quantize, "x", (torch.ones(8, 3), 4, 4), {}),
        (quantize, "groups", (x, 5), {}),
        (quantize, "groups", (x, 0), {}),
        (quantize, "groups", (x, 8, 4), {}),
        (quantize, "groups", (x, 4), {"nodes": 3}),
        (quantize, "bits", (x, 4, 5), {}),
        (quantize, "nodes", (x, 4), {"nodes": 0}),
        (quantize, "devices", (x, 4), {"devices": -1}),
        (quantize, "slices", (x, 4), {"slices": 2**40}),
        (quantize, "scaled_offset", (x, 4), {"scaled_offset": True}),
        (dequantize, "q", (x, params), {}),
        (dequantize, "q", (integers((6, 4)).t(), params), {}),
        (dequantize, "params", (q, params.double()), {}),
        (dequantize, "params", (q, torch.ones(4)), {}),
        (dequantize, "params", (q, torch.ones(4, 3)), {}),
        (dequantize, "params", (q, torch.ones(5, 1)), {}),
        (dequantize, "params", (q, torch.ones(0, 1)), {}),
        (dequantize, "bits", (q, params, 16), {}),
        (dequantize, "scaled_offset", (q, params), {"scaled_offset": True}),
        (dequantize, "dtype", (q, params), {"dtype": torch.float64}),
        (total, "tensors", (q, params, 4, 2), {}),
        (total, "tensors", (q, params, 0, 2), {}),
        (total, "params", (q, torch.ones(5, 1), 2, 2), {}),
        (total, "params", (q, torch.ones(10, 1), 2, 2), {}),
        (total, "groups", (q, params, 2, 5), {}),
        (total, "groups", (q, params, 2, 0), {}),
        (opdock.ops.fake_quantize_, "x", (x.double(), 4), {}),
        (opdock.ops.fake_quantize_, "x", (x.t(), 4), {}),
        (opdock.ops.fake_quantize_, "groups", (x, 7), {}),
        (opdock.ops.fake_quantize_, "bits", (x, 4, 2), {}),
        (unsigned, "q", (q.short(), scale, scale), {}),
        (unsigned, "scale", (q, scale.float(), scale), {}),
        (unsigned, "scale", (q, scale[:0], scale[:0]), {}),
        (unsigned, "least", (q, scale, scale[:3]), {}),
    ]:
        row_cases.assert_refused(on(device, op), name, *args, **keywords)


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(cuda):
    size = 2**31 + 2**20
    if torch.cuda.mem_get_info()[0] < 8 * size:
        pytest.skip("needs 17 GB of free GPU memory")
    x = torch.zeros(size, device=cuda, dtype=torch.float16)
    x[-8192:] = random((8192,), torch.float16).to(cuda)
    q, params = opdock.ops.quantize_groups(x, size // 8192)
    wanted_q, wanted_params = oracle.quantize(flat(x[-8192:].cpu()), 1)
    assert_same(q[-8192:].cpu(), wanted_q, torch.int8)
    assert_same(params[-1:].cpu(), wanted_params)
    found = opdock.ops.dequantize_groups(q, params, dtype=torch.float16)
    assert_same(found[-8192:].cpu(), oracle.dequantize(wanted_q, wanted_params), torch.float16)
    assert not found[:-8192].any()
