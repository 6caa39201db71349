# SPDX-License-Identifier: Apache-2.0
"""Tests the module fp_quantizer: what DeepSpeed's Python does with it, and what its own decoder
gives. The plugin's tests have all codes."""

import numpy as np
import pytest
import torch
from conftest import needs_deepspeed, run_python

import opdock
from opdock.testing import move

BF16 = torch.bfloat16
# Bits, mantissa bits as DeepSpeed's Python passes them, exponent and mantissa bits of the codes.
FORMATS = [(8, 3, 4, 3), (8, 2, 5, 2), (12, 4, 4, 7), (6, 2, 3, 2), (4, 1, 2, 1)]


def decoded(rows, exponent_bits, mantissa_bits):
    """Returns the numbers of rows of bytes in float32, with all exponents as numbers."""
    bits = 1 + exponent_bits + mantissa_bits
    ones = np.unpackbits(rows[:, :-4].numpy(), axis=-1, bitorder="little")
    codes = ones.reshape(len(rows), -1, bits) @ (1 << np.arange(bits))
    mantissa = 1 + codes % 2**mantissa_bits / 2**mantissa_bits
    exponent = codes // 2**mantissa_bits % 2**exponent_bits - (2 ** (exponent_bits - 1) - 1)
    sign = 1 - 2.0 * (codes >> bits - 1)
    scale = np.ascontiguousarray(rows[:, -4:].numpy()).view(np.float32)
    return torch.from_numpy((sign * mantissa * 2.0**exponent).astype(np.float32) * scale)


@pytest.fixture
def module(compat):
    return compat.FPQuantizerBuilder().load()


def quantized(module, x, group, bits, mantissa, stochastic=0):
    groups = x.numel() // group
    out = torch.ones(groups, group * bits // 8 + 4, dtype=torch.uint8, device=x.device)
    assert module.quantize(out, x, group, stochastic, bits, mantissa) is out
    return out


def numbers(*shape, dtype=BF16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


@pytest.mark.parametrize(("bits", "mantissa", "exponent_bits", "mantissa_bits"), FORMATS)
@pytest.mark.parametrize("dtype", [torch.float16, BF16])
@pytest.mark.parametrize("stochastic", [0, 1])
def test_there_and_back(
    module, device, bits, mantissa, exponent_bits, mantissa_bits, dtype, stochastic
):
    x = move(numbers(6, 4, 128, dtype=dtype), device)
    q = quantized(module, x, 128, bits, mantissa, stochastic)
    wanted = decoded(q.cpu(), exponent_bits, mantissa_bits).to(dtype).view(x.shape)
    found = torch.empty_like(x)
    assert module.dequantize(found, q, 128, mantissa, bits - mantissa - 1) is None
    assert torch.equal(found.cpu(), wanted)
    step = 2.0**-mantissa_bits if stochastic else 2.0 ** -(mantissa_bits + 1)
    smallest = 2.0 * q[:, -4:].cpu().contiguous().view(torch.float32).max()
    error = (wanted.double() - x.cpu().double()).abs()
    assert (error <= 1.01 * step * x.cpu().double().abs() + smallest).all()
    chosen = torch.empty(2, 4, 128, dtype=dtype, device=device)
    index = torch.tensor([5, 1], dtype=torch.int32, device=device)
    module.selective_dequantize(chosen, q, index, 128, mantissa, bits - mantissa - 1)
    assert torch.equal(chosen.cpu(), wanted[[5, 1]])


def test_zeros_are_small(module, device):
    """DeepSpeed's kernel makes the code of 2 of a zero, absmax / 240 in e4m3."""
    x = torch.zeros(2, 128, dtype=BF16, device=device)
    x[0, 7] = 480
    q = quantized(module, x, 128, 8, 3)
    found = torch.empty_like(x)
    module.dequantize(found, q, 128, 3, 4)
    assert found[0].tolist() == [480 if i == 7 else 2.0**-7 for i in range(128)]
    assert not found[1].any()


def test_views_and_gaps(module, device):
    """DeepSpeed's kernels read and write the memory as if there were no gaps."""
    x = numbers(8, 64).to(device)
    q = quantized(module, x.t(), 64, 6, 2)
    assert torch.equal(q, quantized(module, x.t().contiguous(), 64, 6, 2))
    found, plain = torch.zeros(8, 64, dtype=BF16, device=device), torch.zeros_like(x)
    module.dequantize(found.t(), q, 64, 2, 3)
    module.dequantize(plain, q, 64, 2, 3)
    assert torch.equal(found.t().reshape(-1), plain.view(-1))
    # Elements that fill no group are left out.
    more = torch.cat([x.view(-1), x.view(-1)[:9]])
    same = quantized(module, more, 64, 6, 2)
    assert torch.equal(same, quantized(module, x, 64, 6, 2))


def test_scales(module, device):
    x = numbers(5, 128).to(device)
    q = quantized(module, x, 128, 8, 3)
    scale = q[:, 128:].contiguous()
    found = module.get_scales(scale, 5)
    assert found.dtype == torch.float32 and found.shape == (5, 1)
    assert torch.equal(found.cpu(), x.abs().amax(-1, keepdim=True).float().cpu() / 480)
    assert found.data_ptr() == scale.data_ptr()
    del scale  # the view keeps it alive
    assert torch.equal(module.get_scales(q[:, 128:], 4), found[:4])
    with pytest.raises(opdock.InvalidArgumentError, match="'out': found rows of torch.uint8 every"):
        module.get_scales(q.view(-1)[: 5 * 130].view(5, 130)[:, 126:], 5)
    with pytest.raises(opdock.InvalidArgumentError, match="from element 2 on"):
        module.get_scales(q[:, 2:], 5)


def test_what_does_not_fit_is_refused(module):
    x, q = numbers(4, 128), torch.zeros(4, 132, dtype=torch.uint8)
    for call, text in [
        (lambda: module.quantize(q, x, 128, 0, 8, 1), "codes of 8 bits with 1 of mantissa"),
        (lambda: module.quantize(q[:3], x, 128, 0, 8, 3), "'out': found shape .3, 132."),
        (lambda: module.quantize(q, x.float(), 128, 0, 8, 3), "float16"),
        (lambda: module.dequantize(x.view(-1)[:500], q, 128, 3, 4), "500 elements, wanted a mul"),
        (lambda: module.dequantize(x, q[:3], 128, 3, 4), "'val_q': found shape .3, 132."),
        (lambda: module.dequantize(x.float(), q, 128, 3, 4), "float16"),
        (
            lambda: module.selective_dequantize(x, q, torch.zeros(3), 128, 3, 4),
            "'indexes': found 3 for 4 groups",
        ),
    ]:
        with pytest.raises(opdock.OpdockError, match=text):
            call()


def test_static_methods_of_the_builder(compat):
    kind = compat.FPQuantizerBuilder
    assert kind.get_default_quant_dtype() == torch.uint8
    assert [kind.get_quant_range(bits) for bits in (8, 6, 12, 4)] == [480, 28, 510, 6]
    with pytest.raises(opdock.InvalidArgumentError, match="'q_bits': found None"):
        kind.get_quant_range()


THEIRS = """
import torch
from opdock.compat import deepspeed as compat
compat.install()
from deepspeed.linear import LoRAConfig, OptimizedLinear, QuantizationConfig
from deepspeed.linear.quantization import QuantizedParameter
from deepspeed.ops.fp_quantizer import FP_Quantize, fp8_gemm
torch.manual_seed(0)

def error(found, wanted):
    return ((found - wanted).double().norm() / wanted.double().norm()).item()

# How far numbers are from their codes on average, in a normal distribution, times 1.2.
for bits, most in ((8, 0.032), (6, 0.075), (12, 0.0022), (4, 0.15)):
    quantizer = FP_Quantize(QuantizationConfig(q_bits=bits, group_size=128))
    x = torch.randn(4, 16, 128, dtype=torch.bfloat16)
    q = quantizer.quantize(x, q_bits=bits)
    found = quantizer.dequantize(q, q_bits=bits)
    assert error(found, x) < most, (bits, error(found, x))
    rows = torch.tensor([1, 3], dtype=torch.int32)
    assert torch.equal(quantizer.selective_dequantize(q, rows, q_bits=bits), found[[1, 3]])

quantizer = FP_Quantize(QuantizationConfig(group_size=128))
weight = torch.randn(64, 256, dtype=torch.bfloat16)
codes, scale = quantizer.quantize(weight, return_meta_tensor=True)
assert codes.shape == weight.shape and scale.shape == (128, 4)
whole = quantizer.dequantize(codes, scale=scale)
assert error(whole, weight) < 0.032
x = torch.randn(5, 64, dtype=torch.bfloat16)
# Its fallback joins the codes to scales of float32, with which DeepSpeed's own module reads them as
# bytes.
for one in (scale, quantizer.get_scales()):
    found = fp8_gemm.matmul_fp8_fallback(x, codes, one, 128, quantizer)
    assert torch.equal(found, x @ whole)

config = QuantizationConfig(group_size=64)
layer = OptimizedLinear(64, 96, quantization_config=config)
assert isinstance(layer.weight, QuantizedParameter) and layer.weight.dtype == torch.uint8
dense = layer.weight.dequantized()
assert dense.shape == (96, 64) and torch.equal(layer(x), torch.nn.functional.linear(x, dense))

lora = OptimizedLinear(64, 96, lora_config=LoRAConfig(lora_r=8), quantization_config=config)
weights = [p for p in lora.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(weights, lr=0.1)
losses = []
for _ in range(8):
    optimizer.zero_grad()
    loss = (lora(x) - 1).float().square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
import sys
assert "opdock.compat.deepspeed.fp_quantizer" in sys.modules
"""


@needs_deepspeed
def test_deepspeeds_own_python():
    """FP_Quantize, QuantizedParameter and OptimizedLinear, unmodified. On the CPU DeepSpeed has no
    builder for the op."""
    quiet = {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}
    run_python(THEIRS, prelude="import torch, deepspeed", start=tuple(quiet.items()), **quiet)
