# SPDX-License-Identifier: Apache-2.0
"""softmax through the Python package, on every device, against the reference in float64."""

import pytest
import torch

import opdock

# Rounding of the scores (|score| below 32), of the exponential and of the sum, relative.
COMPUTED = 3e-6

LENGTHS = [1, 2, 3, 7, 31, 32, 33, 64, 65, 127, 128, 129, 255, 256, 257, 264, 512, 1000, 1024]
LENGTHS += [1032, 2048, 4096, 8192, 14432, 16384, 32768, 32769, 32776, 65536]


def random(shape, device, dtype, seed=0, deviation=3.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * deviation).to(device, dtype)


def check(reference, assert_close, x, **options):
    found = opdock.ops.softmax(x, **options)
    assert found.dtype == x.dtype and found.shape == x.shape and found.device == x.device
    if options.get("mask") is not None:
        options["mask"] = options["mask"].double()
    assert_close(found, reference.softmax(x.double(), **options), COMPUTED)


@pytest.mark.parametrize("length", LENGTHS)
def test_row_lengths(reference, assert_close, device, dtype, length):
    check(reference, assert_close, random((5, length), device, dtype, length), scale=0.7)


@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(reference, assert_close, device, dtype, length):
    wide = random((7, length + 24), device, dtype, 1)
    for begin in (0, 1, 8, 16):
        check(reference, assert_close, wide[:, begin : begin + length])
    check(reference, assert_close, wide[::2, 8 : 8 + length])
    check(reference, assert_close, wide[:1, :length].expand(3, length))
    batch = random((3, 4, 2, length), device, dtype, 2)
    check(reference, assert_close, batch.permute(2, 0, 1, 3))


@pytest.mark.parametrize("length", [19, 256, 520, 1000])
@pytest.mark.parametrize(
    "shape",
    [(), (1,), (-1,), (4, -1), (4, 1), (1, -1), (3, 1, 1), (2, 1, 1, -1), (2, 1, 4, -1)]
    + [(1, 1, 4, -1), (2, 3, 4, 1), (2, 3, 4, -1)],
)
def test_masks(reference, assert_close, device, dtype, length, shape):
    shape = tuple(length if size == -1 else size for size in shape)
    x, mask = random((2, 3, 4, length), device, dtype, 3), random(shape, device, dtype, 4)
    if mask.numel() > 2:
        mask.view(-1)[1] = float("-inf")
    check(reference, assert_close, x, mask=mask, scale=0.125)
    check(reference, assert_close, x, mask=mask, causal=True)


@pytest.mark.parametrize("queries", [1, 2, 7, 64, 100])
@pytest.mark.parametrize("keys", [1, 64, 520, 1024])
def test_causal(reference, assert_close, device, dtype, queries, keys):
    check(reference, assert_close, random((2, queries, keys), device, dtype, 5), causal=True)


@pytest.mark.parametrize("length", [3, 64, 1000, 1024, 5000])
def test_masked_rows_nan_and_infinity(reference, assert_close, device, dtype, length):
    x = random((5, length), device, dtype, 6)
    x[0] = float("-inf")
    x[1, length // 2] = float("nan")
    x[2] = float("-inf")
    x[2, -1] = float("nan")
    x[3, 0] = float("inf")
    check(reference, assert_close, x)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_zero_sizes(device, dtype, shape):
    found = opdock.ops.softmax(torch.empty(shape, device=device, dtype=dtype))
    assert found.shape == shape


def test_float64_is_for_the_cpu(reference, device):
    x = random((5, 1000), device, torch.float64)
    if device == "cpu":
        found = opdock.ops.softmax(x)
        torch.testing.assert_close(found, reference.softmax(x), rtol=1e-14, atol=0)
    else:
        with pytest.raises(opdock.OpdockError, match="float64"):
            opdock.ops.softmax(x)


def bad_inputs(device):
    x = torch.ones(2, 3, 8, device=device)
    return [
        ("x", (torch.ones(2, 8, dtype=torch.int32, device=device),), {}),
        ("x", (torch.ones((), device=device),), {}),
        ("x", (torch.ones(8, device=device),), {"causal": True}),
        ("x", (x.transpose(1, 2),), {}),
        ("mask", (x,), {"mask": torch.ones(8, device=device, dtype=torch.float16)}),
        ("mask", (x,), {"mask": torch.ones(7, device=device)}),
        ("mask", (x,), {"mask": torch.ones(1, 2, 3, 8, device=device)}),
        ("mask", (x,), {"mask": torch.ones(2, 8, 3, device=device).transpose(1, 2)}),
        ("mask", (x,), {"mask": torch.ones(2, 3, 8, dtype=torch.bool, device=device)}),
        ("scale", (x,), {"scale": "much"}),
        ("nope", (x,), {"nope": 1}),
    ]


@pytest.mark.parametrize("number", range(11))
def test_bad_inputs_name_the_argument(device, number):
    name, args, keywords = bad_inputs(device)[number]
    with pytest.raises(opdock.OpdockError, match=f"'{name}'"):
        opdock.ops.softmax(*args, **keywords)


@pytest.mark.gpu
def test_mask_on_another_device(cuda):
    with pytest.raises(opdock.OpdockError, match="'mask'.*cpu"):
        opdock.ops.softmax(torch.ones(2, 8, device=cuda), mask=torch.ones(8))


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(reference, assert_close, cuda):
    x = random((64, 1024), cuda, torch.float16)
    wanted = reference.softmax(x.double())
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10_000_000)
        y = x + 0
        found = opdock.ops.softmax(y)
    torch.cuda.synchronize()
    assert_close(found, wanted, COMPUTED)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = opdock.ops.softmax(x)
    x.copy_(random((64, 1024), cuda, torch.float16, 9))
    graph.replay()
    assert_close(found, reference.softmax(x.double()), COMPUTED)


@pytest.mark.gpu
@pytest.mark.parametrize("length", [32776, 32777, 256, 3])
def test_more_than_2_to_the_31_elements(reference, assert_close, cuda, length):
    rows = 2**31 // length + 70
    if torch.cuda.mem_get_info()[0] < 5 * rows * length:
        pytest.skip("needs 11 GB of free GPU memory")
    x = torch.zeros(rows, length, device=cuda, dtype=torch.bfloat16)
    last = random((40, length), cuda, torch.bfloat16, 7)
    x[-40:] = last
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
