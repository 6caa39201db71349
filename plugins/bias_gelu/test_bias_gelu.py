# SPDX-License-Identifier: Apache-2.0
"""Tests this plugin's bias_gelu, on every device, against the reference in float64."""

import pytest
import row_cases
import torch

import opdock
from opdock.testing import on

if not any(plugin["name"] == "bias_gelu" for plugin in opdock.plugins()):
    pytest.skip("the plugin bias_gelu was not built: no nvcc", allow_module_level=True)

# Bound of the errors of x + bias, the cube and the exponential, relative to |x + bias|: the slope
# is at most 1.13.
COMPUTED = 4e-7

random = row_cases.random


def op(device):
    """Returns the op of this plugin or of its twin for AMD GPUs, instead of the preferred one; it
    takes CPU tensors."""
    plugin = "bias_gelu_hip" if device == "rocm" else "bias_gelu"
    return on(device, opdock.load(f"{plugin}/bias_gelu"))


def check(reference, assert_close, device, x, bias):
    found = op(device)(x, bias)
    row_cases.assert_like(found, x)
    scale = (x.double() + bias.double()).abs()
    assert_close(found, reference.bias_gelu(x.double(), bias.double()), COMPUTED, scale)


# DeepSpeed's grid: batch, sequence, channels.
@pytest.mark.parametrize("channels", [512, 1232, 4096])
@pytest.mark.parametrize("sequence", [1, 128, 255])
@pytest.mark.parametrize("batch", [1, 2])
def test_activations(reference, assert_close, device, dtype, batch, sequence, channels):
    x = random((batch, sequence, channels), dtype, 1)
    check(reference, assert_close, device, x, random(channels, dtype, 2))


@pytest.mark.parametrize("length", row_cases.LENGTHS)
def test_row_lengths(reference, assert_close, device, dtype, length):
    bias = random(length, dtype, length + 1)
    check(reference, assert_close, device, random((5, length), dtype, length), bias)
    check(reference, assert_close, device, random((length,), dtype, length), bias)
    check(reference, assert_close, device, random((1031, 1), dtype, length), bias[:1])


@pytest.mark.parametrize("length", [8, 33, 520, 4096])
@pytest.mark.parametrize("begin", row_cases.OFFSETS)
def test_misaligned(reference, assert_close, device, dtype, length, begin):
    x = random(7 * length + 24, dtype, 3)
    bias = random(length + 24, dtype, 4)
    rows = x[begin : begin + 7 * length].view(7, length)
    check(reference, assert_close, device, rows, bias[:length])
    check(
        reference,
        assert_close,
        device,
        x[: 7 * length].view(7, length),
        bias[begin : begin + length],
    )


def test_far_from_zero(reference, assert_close, device, dtype):
    """Large positive values are unchanged; large negative values become zero."""
    x = torch.tensor([-1e4, -50, -12, -6, -3, -0.0, 0, 3, 6, 12, 50, 1e4])
    x = x.to(dtype)
    check(reference, assert_close, device, x, torch.zeros_like(x))
    found = op(device)(x, torch.zeros_like(x))
    assert found[0] == 0 and found[-1] == x[-1] and found.isfinite().all()


def test_nan_and_infinity(device, dtype):
    x = torch.tensor([float("nan"), float("inf"), 1.0], dtype=dtype)
    found = op(device)(x, torch.zeros_like(x))
    assert found[0].isnan() and found[1] == float("inf") and found[2].isfinite()


@pytest.mark.parametrize("length", [33, 1024])
def test_in_place(device, dtype, length):
    x, bias = random((9, length), dtype, 5), random(length, dtype, 6)
    wanted = op(device)(x, bias)
    assert op(device)(x, bias, out=x) is x
    assert torch.equal(x, wanted)


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(device, dtype, shape):
    x = torch.empty(shape, dtype=dtype)
    assert op(device)(x, x.new_empty(shape[-1])).shape == shape


def bad_inputs():
    x, bias = torch.ones(4, 8), torch.ones(8)
    return [
        ("x", x.double(), bias.double()),
        ("x", x.long(), bias.long()),
        ("x", torch.ones(()), bias),
        ("x", torch.ones(8, 4).t(), bias),
        ("bias", x, bias[:7]),
        ("bias", x, torch.ones(1, 8)),
        ("bias", x, torch.ones(16)[::2]),
        ("bias", x, bias.half()),
        ("bias", x, None),
    ]


@pytest.mark.parametrize("number", range(9))
def test_bad_inputs_name_the_argument(device, number):
    name, x, bias = bad_inputs()[number]
    row_cases.assert_refused(op(device), name, x, bias)


def test_an_output_that_overlaps_is_refused(device):
    memory = torch.ones(80)
    x, bias = memory[:64].view(8, 8), memory[64:72]
    for out in (memory[8:72].view(8, 8), memory[16:80].view(8, 8)):
        with pytest.raises(opdock.OpdockError, match="'out'|output 0"):
            op(device)(x, bias, out=out)


@pytest.mark.gpu
def test_arguments_on_two_devices(cuda):
    row_cases.assert_refused(
        opdock.load("bias_gelu/bias_gelu"), "bias", torch.ones(8, device=cuda), torch.ones(8)
    )


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(reference, assert_close, cuda):
    x, bias = (random(shape, torch.float16, 7).to(cuda) for shape in ((64, 1024), (1024,)))
    bias_gelu = opdock.load("bias_gelu/bias_gelu")

    def check_result(found):
        scale = (x.double() + bias.double()).abs()
        assert_close(found, reference.bias_gelu(x.double(), bias.double()), COMPUTED, scale)

    check_result(row_cases.on_another_stream(lambda y: bias_gelu(y, bias), x))
    check_result(row_cases.in_a_graph(lambda y: bias_gelu(y, bias), x))


@pytest.mark.gpu
def test_the_call_does_not_wait(cuda):
    x, bias = torch.randn(64, 1024, device=cuda), torch.randn(1024, device=cuda)
    bias_gelu = opdock.load("bias_gelu/bias_gelu")
    bias_gelu(x, bias)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        bias_gelu(x, bias)
    assert not stream.query()
    stream.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("length", row_cases.HUGE_LENGTHS)
def test_more_than_2_to_the_31_elements(reference, assert_close, cuda, length):
    x, last = row_cases.huge_rows(length, cuda, copies=2)
    bias = random(length, torch.bfloat16, 8).to(cuda)
    found = opdock.load("bias_gelu/bias_gelu")(x, bias)[-40:]
    scale = (last.double() + bias.double()).abs()
    assert_close(found, reference.bias_gelu(last.double(), bias.double()), COMPUTED, scale)
