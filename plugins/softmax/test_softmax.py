# SPDX-License-Identifier: Apache-2.0
"""Tests softmax through the Python package, on every device, against the reference in float64."""

import functools

import pytest
import row_cases
import torch

import opdock
from opdock.testing import move, on

# Bound of the relative rounding errors of the scores (|score| below 32), the exponential and the
# sum.
COMPUTED = 3e-6

DEVIATION = 3.0  # standard deviation of the scores: most are below 10, a few near 16
random = functools.partial(row_cases.random, deviation=DEVIATION)


def check(reference, assert_close, device, x, **options):
    found = on(device, opdock.ops.softmax)(x, **options)
    row_cases.assert_like(found, x)
    if options.get("mask") is not None:
        options["mask"] = options["mask"].double()
    assert_close(found, reference.softmax(x.double(), **options), COMPUTED)


@pytest.mark.pairs
@pytest.mark.parametrize("length", row_cases.LENGTHS)
def test_row_lengths(reference, assert_close, device, dtype, length):
    check(reference, assert_close, device, random((5, length), dtype, length), scale=0.7)


@pytest.mark.parametrize("length", row_cases.WAY_LENGTHS)
def test_each_way_to_launch(reference, assert_close, device, dtype, length):
    x, mask = random((3, length), dtype, length), random((3, length), dtype, 4)
    for options in ({"scale": 0.7}, {"causal": True}, {"mask": mask, "scale": 0.125}):
        wide = {name: v.double() if name == "mask" else v for name, v in options.items()}
        oracle = reference.softmax(x.double(), **wide)
        for _, found in row_cases.each_way(device, opdock.ops.softmax, x, **options):
            assert_close(found, oracle, COMPUTED)


@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(reference, assert_close, device, dtype, length):
    for x in row_cases.layouts(length, dtype, DEVIATION):
        check(reference, assert_close, device, x)


@pytest.mark.pairs
@pytest.mark.parametrize("length", [19, 256, 520, 1000])
@pytest.mark.parametrize(
    "shape",
    [(), (1,), (-1,), (4, -1), (4, 1), (1, -1), (3, 1, 1), (2, 1, 1, -1), (2, 1, 4, -1)]
    + [(1, 1, 4, -1), (2, 3, 4, 1), (2, 3, 4, -1)],
)
def test_masks(reference, assert_close, device, dtype, length, shape):
    shape = tuple(length if size == -1 else size for size in shape)
    x, mask = random((2, 3, 4, length), dtype, 3), random(shape, dtype, 4)
    if mask.numel() > 2:
        mask.view(-1)[1] = float("-inf")
    check(reference, assert_close, device, x, mask=mask, scale=0.125)
    check(reference, assert_close, device, x, mask=mask, causal=True)


@pytest.mark.parametrize(("queries", "keys"), [(5, 64), (16, 128), (1, 1024), (2, 4096), (1, 8192)])
def test_masks_of_whole_vectors(reference, assert_close, device, dtype, queries, keys):
    """Masks aligned as x is, and broadcast over heads and queries; their rows are evenly spaced or
    not."""
    x = random((3, 2, queries, keys), dtype, 3)
    x[0, 1, 0, 7] = float("nan")
    for batch in (1, 3):
        mask = random((batch, 1, 1, keys), dtype, 4)
        mask[..., 1 :: 2 * keys // 3] = float("-inf")
        for options in ({}, {"causal": True, "scale": 0.125}):
            check(reference, assert_close, device, x, mask=mask, **options)
    hidden = torch.full((1, keys), float("-inf"), dtype=dtype)
    found = on(device, opdock.ops.softmax)(x[1:], mask=hidden)
    assert found.count_nonzero() == 0
    place = x.clone()
    on(device, opdock.ops.softmax)(place, mask=mask, out=place)
    assert_close(place, reference.softmax(x.double(), mask=mask.double()), COMPUTED)


@pytest.mark.parametrize("length", [8200, 33001])
def test_masks_of_long_rows(reference, assert_close, device, dtype, length):
    x, mask = random((2, 3, length), dtype, 3), random((3, length + 1), dtype, 4, deviation=1.0)
    mask[:, 5] = float("-inf")
    check(reference, assert_close, device, x, mask=mask[:, :length], causal=True)
    check(reference, assert_close, device, x, mask=mask[:, 1:], scale=0.3)


@pytest.mark.parametrize("scale", [0.0, -1.5, 1e-39, 100.0])
def test_unusual_scales(reference, assert_close, device, dtype, scale):
    for length in (5, 200, 1024, 5000):
        x = random((3, length), dtype, 5)
        check(reference, assert_close, device, x / 128 if scale > 1 else x, scale=scale)
        check(reference, assert_close, device, x[:, :3] / 128, scale=scale, causal=True)


@pytest.mark.parametrize("queries", [1, 2, 7, 64, 100])
@pytest.mark.parametrize("keys", [1, 64, 520, 1024])
def test_causal(reference, assert_close, device, dtype, queries, keys):
    x = random((2, queries, keys), dtype, 5)
    check(reference, assert_close, device, x, causal=True)


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
@pytest.mark.parametrize("keys", [3, 64, 1024, 5000])
def test_causal_rows_with_nan_or_infinity(reference, assert_close, device, dtype, keys, odd):
    x = random((4, keys), dtype, 5)
    x[1, 0] = odd  # this element takes part
    x[2, -1] = odd  # this element does not take part
    check(reference, assert_close, device, x, causal=True)


@pytest.mark.parametrize("length", [3, 64, 1000, 1024, 5000])
def test_masked_rows_nan_and_infinity(reference, assert_close, device, dtype, length):
    x = random((5, length), dtype, 6)
    x[0] = float("-inf")
    x[1, length // 2] = float("nan")
    x[2] = float("-inf")
    x[2, -1] = float("nan")
    x[3, 0] = float("inf")
    check(reference, assert_close, device, x)


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, shape):
    found = on(device, opdock.ops.softmax)(torch.empty(shape, dtype=dtype))
    assert found.shape == shape


def test_float64_is_for_the_cpu(reference, device):
    row_cases.assert_float64_is_for_the_cpu(
        opdock.ops.softmax, reference.softmax, device, rtol=1e-14, atol=0
    )


def bad_inputs():
    x = torch.ones(2, 3, 8)
    return [
        ("x", (torch.ones(2, 8, dtype=torch.int32),), {}),
        ("x", (torch.ones(()),), {}),
        ("x", (torch.ones(8),), {"causal": True}),
        ("x", (x.transpose(1, 2),), {}),
        ("mask", (x,), {"mask": torch.ones(8, dtype=torch.float16)}),
        ("mask", (x,), {"mask": torch.ones(7)}),
        ("mask", (x,), {"mask": torch.ones(1, 2, 3, 8)}),
        ("mask", (x,), {"mask": torch.ones(2, 8, 3).transpose(1, 2)}),
        ("mask", (x,), {"mask": torch.ones(2, 3, 8, dtype=torch.bool)}),
        ("scale", (x,), {"scale": "much"}),
        ("nope", (x,), {"nope": 1}),
    ]


@pytest.mark.parametrize("number", range(11))
def test_bad_inputs_name_the_argument(device, number):
    name, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, opdock.ops.softmax), name, *args, **keywords)


def test_mask_on_another_device(device):
    if device == "cpu":
        pytest.skip("there is no other device to have the mask on")
    with pytest.raises(opdock.OpdockError, match="'mask'.*cpu"):
        opdock.ops.softmax(move(torch.ones(2, 8), device), mask=torch.ones(8))


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(reference, assert_close, cuda):
    x = random((64, 1024), torch.float16).to(cuda)
    found = row_cases.on_another_stream(opdock.ops.softmax, x)
    assert_close(found, reference.softmax(x.double()), COMPUTED)
    found = row_cases.in_a_graph(opdock.ops.softmax, x)
    assert_close(found, reference.softmax(x.double()), COMPUTED)


@pytest.mark.gpu
@pytest.mark.parametrize("length", row_cases.HUGE_LENGTHS)
def test_more_than_2_to_the_31_elements(reference, assert_close, cuda, length):
    x, last = row_cases.huge_rows(length, cuda, copies=2)
    found = opdock.ops.softmax(x)
    assert_close(found[-40:], reference.softmax(last.double()), COMPUTED)
    torch.testing.assert_close(found[0].float(), torch.full_like(found[0], 1 / length).float())


@pytest.mark.gpu
def test_one_row_of_more_than_2_to_the_31_elements(cuda):
    length = 2**31 + 16
    if torch.cuda.mem_get_info()[0] < 5 * length:
        pytest.skip("needs 11 GB of free GPU memory")
    x = torch.full((1, length), float("-inf"), device=cuda, dtype=torch.float16)
    x[0, -1] = 2.0
    x[0, 5] = 2.0
    found = opdock.ops.softmax(x)
    assert found[0, -1].item() == found[0, 5].item() == 0.5
    assert found.count_nonzero().item() == 2
