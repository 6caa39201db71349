# SPDX-License-Identifier: Apache-2.0
"""Tests dropout and its gradient on every device, bit for bit: the oracle draws the numbers in
NumPy."""

import numpy as np
import pytest
import row_cases
import torch
from philox import numbers, philox

import opdock
from opdock.testing import move, on

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
SIZES = [0, 1, 2, 3, 4, 5, 127, 1025]
SEED = 0xFEDC_BA98_7654_3210
# Each remainder modulo a block; a block number that outgrows 32 bits; and the last number of all.
OFFSETS = [0, 1, 2, 7, 2**34 - 6, 2**64 - 3]


def wanted(x, p, seed, offset):
    """Returns (result, mask) for a tensor; kept elements are multiplied in float32, or float64 for
    float64."""
    # Comparing an integer with p * 2^32, which is exact, is exact too.
    kept = [int(u) >= p * 2**32 for u in numbers(seed, offset, x.numel())]
    mask = torch.tensor(kept, dtype=torch.bool).view(x.shape)
    return scaled(x, mask, p), mask


def scaled(x, mask, p):
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    factor = torch.tensor(0.0 if p == 1 else 1 / (1 - p), dtype=torch.float64).to(compute)
    product = (x.to(compute) * factor).to(x.dtype)
    return torch.where(mask, product, torch.zeros((), dtype=x.dtype))


def assert_same(found, oracle):
    """Compares bit for bit, except that any two NaNs are equal."""
    torch.testing.assert_close(found, oracle, rtol=0, atol=0, equal_nan=True)


def check(device, x, p, offset, **options):
    found = on(device, opdock.ops.dropout)(x, p, generator=(SEED, offset), **options)
    for one, oracle in zip(found, wanted(x, p, SEED, offset), strict=True):
        assert_same(one, oracle)
    return found


def values(size, dtype, seed=0):
    return row_cases.random((size,), dtype, seed)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_oracle_is_the_published_generator(counter, key, words):
    """The known answers of Random123, the implementation by the generator's authors."""
    found = philox(np.array(counter).reshape(4, 1), key)
    assert " ".join(f"{int(word):08x}" for word in found[:, 0]) == words


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_masks_and_values(device, dtype, size):
    for number, offset in enumerate(OFFSETS):
        check(device, values(size, dtype, number), 0.3, offset)


@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_memory(device, dtype):
    wide = values(600, dtype)
    for begin in (1, 2, 3, 4, 8):
        check(device, wide[begin : begin + 517], 0.6, 3)
        out = torch.zeros(600, dtype=dtype)[begin : begin + 517]
        mask = torch.zeros(600, dtype=torch.bool)[begin : begin + 517]
        assert check(device, wide[:517], 0.6, 3, out=(out, mask))[1] is mask


@pytest.mark.parametrize("shape", [(), (1, 1), (3, 0, 2), (5, 7, 11)])
def test_shapes(device, shape):
    x = row_cases.random(shape, torch.float32)
    check(device, x, 0.5, 1)
    mask = torch.ones(shape, dtype=torch.bool)
    assert_same(on(device, opdock.ops.dropout_backward)(x, mask, 0.5), x * 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_with_a_residual(reference, device, dtype, size):
    """The mask is dropout's; what is dropped leaves the residual, bit for bit, also in misaligned
    memory."""
    x, wide, p = values(size, dtype), values(size + 1, dtype, 1), 0.3
    for residual in (wide[:size], wide[1:]):
        for offset in OFFSETS[:4]:
            generator = SEED, offset
            found = on(device, opdock.ops.dropout_add)(x, residual, p, generator=generator)
            dropped, mask = wanted(x.double(), p, SEED, offset)
            assert_same(found[1], mask)
            assert_same(found[0][~mask], residual[~mask])
            # Two roundings in float32, if it is computed there, and one at the end.
            sums, least = dropped.abs() + residual.double().abs(), torch.finfo(dtype).tiny
            bound = (
                sums * (torch.finfo(dtype).eps / 2 + (dtype != torch.float64) * 2.0**-23) + least
            )
            bound *= 1 + (dtype == torch.float64)
            assert ((found[0].double() - (dropped + residual.double())).abs() <= bound).all()
    found, mask = reference.dropout_add(x, residual, p)
    assert_same(found[~mask], residual[~mask])


@pytest.mark.parametrize("size", [70_001, 16_384 * 3])
def test_many_elements(several_threads, device, size):
    """Several CPU threads, or several blocks on a GPU."""
    check(device, values(size, torch.float16), 0.1, 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ends_of_p(device, dtype):
    x = values(1025, dtype)
    x[::7], x[3::7] = float("inf"), float("nan")
    y, mask = check(device, x, 0.0, 2)
    assert mask.all()
    assert_same(y, x)
    y, mask = check(device, x, 1.0, 2)
    assert not mask.any() and not y.any(), "not the NaN of 0 times infinity"
    assert not on(device, opdock.ops.dropout_backward)(x, ~mask, 1.0).any()
    y, mask = check(device, x, 0.5, 2)
    assert not y[~mask].any()


def test_the_comparison_is_exact(device):
    """With p = u / 2^32 the number u keeps its element, but with the next larger double it does
    not."""
    drawn = [int(u) for u in numbers(SEED, 0, 64)]
    x = torch.ones(64)
    for i, u in enumerate(drawn):
        p = u / 2**32
        assert check(device, x, p, 0)[1][i]
        assert not check(device, x, float(np.nextafter(p, 1)), 0)[1][i]
    # The largest number below 1, and the smallest above 0.
    assert not check(device, x, 1 - 2.0**-53, 0)[1].any()
    assert check(device, x, 5e-324, 0)[1].all()


def test_the_numbers_are_uniform():
    """The means and correlations lie within 5 standard deviations; a call's mask is independent of
    the next one's."""
    size = 2**20
    generator = opdock.Generator(2024)
    for p in (0.01, 0.3, 0.5, 0.9):
        masks = [
            opdock.ops.dropout(np.ones(size, np.float32), p, generator=generator)[1].astype(float)
            for _ in range(2)
        ]
        deviation = (p * (1 - p) / size) ** 0.5
        for mask in masks:
            assert abs(mask.mean() - (1 - p)) < 5 * deviation
            neighbours = np.corrcoef(mask[:-1], mask[1:])[0, 1]
            assert abs(neighbours) < 5 / size**0.5
        assert abs(np.corrcoef(*masks)[0, 1]) < 5 / size**0.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_backward(reference, device, dtype, size):
    grad, p = values(size, dtype), 0.3
    mask = torch.from_numpy(np.random.default_rng(size).random(size) >= p)
    found = on(device, opdock.ops.dropout_backward)(grad, mask, p)
    assert_same(found, scaled(grad, mask, p))
    assert_same(found, reference.dropout_backward(grad, mask, p))
    wide = torch.cat([mask[:1], mask])[1:]  # aligned differently from the gradient
    assert_same(on(device, opdock.ops.dropout_backward)(grad, wide, p), found)


def test_the_reference(reference):
    """The plugin's fallback draws its own numbers, and does the same with them."""
    x = values(100_000, torch.float32)
    y, mask = reference.dropout(x, 0.3, generator=torch.Generator().manual_seed(1))
    assert abs(mask.double().mean() - 0.7) < 0.01
    assert_same(y, scaled(x, mask, 0.3))
    assert not reference.dropout(x, 1.0)[0].any()


def bad_inputs():
    x, mask = torch.ones(4, 6), torch.ones(4, 6, dtype=torch.bool)
    dropout, backward = opdock.ops.dropout, opdock.ops.dropout_backward
    add = opdock.ops.dropout_add
    return [
        (dropout, "x", (torch.ones(4, dtype=torch.int32),)),
        (dropout, "x", (x.t(),)),
        (dropout, "p", (x, -0.1)),
        (dropout, "p", (x, 1.5)),
        (dropout, "p", (x, float("nan"))),
        (backward, "grad", (x.to(torch.int64), mask, 0.5)),
        (backward, "grad", (x.t(), mask.t(), 0.5)),
        (backward, "mask", (x, mask.to(torch.uint8), 0.5)),
        (backward, "mask", (x, mask[:3], 0.5)),
        (backward, "mask", (x, torch.ones(6, 4, dtype=torch.bool).t(), 0.5)),
        (backward, "p", (x, mask, 2.0)),
        (add, "residual", (x, torch.ones(6, 4).t(), 0.5)),
        (add, "residual", (x, torch.ones(3, 6), 0.5)),
        (add, "residual", (x, x.half(), 0.5)),
        (add, "p", (x, x, 2.0)),
    ]


@pytest.mark.parametrize("number", range(15))
def test_bad_inputs_name_the_argument(device, number):
    op, name, args = bad_inputs()[number]
    row_cases.assert_refused(on(device, op), name, *args)


@pytest.mark.parametrize(("p", "shown"), [(-1e-9, "-1e-09"), (1 + 1e-9, "1.000000001"), (7, "7")])
def test_p_is_shown_in_as_many_digits_as_it_needs(p, shown):
    with pytest.raises(opdock.InvalidArgumentError, match=f"'p': found {shown}, wanted"):
        opdock.ops.dropout(torch.ones(4), p)


def test_mask_on_another_device(device):
    if device == "cpu":
        pytest.skip("there is no other device to have the mask on")
    mask = torch.ones(4, dtype=torch.bool)
    with pytest.raises(opdock.OpdockError, match="'mask'.*cpu"):
        opdock.ops.dropout_backward(move(torch.ones(4), device), mask, 0.5)


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(cuda):
    size = 2**31 + 5
    if torch.cuda.mem_get_info()[0] < 6 * size:
        pytest.skip("needs 13 GB of free GPU memory")
    x = torch.ones(size, device=cuda, dtype=torch.float16)
    y, mask = opdock.ops.dropout(x, 0.3, generator=(SEED, 1))
    for found, first in ((mask[-40:], size - 40), (mask[:40], 0)):
        kept = numbers(SEED, 1 + first, 40) >= 0.3 * 2**32
        assert found.cpu().tolist() == kept.tolist()
    assert torch.equal(y[-40:] != 0, mask[-40:])
    assert abs(mask.count_nonzero().item() / size - 0.7) < 1e-4
