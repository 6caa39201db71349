# SPDX-License-Identifier: Apache-2.0
"""Tests evoformer_attn against attention in float64, and through DeepSpeed's own function."""

import pytest
import torch
from conftest import needs_deepspeed, run_python

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# The largest error, relative to the largest element of what is compared, at least 1.
ERRORS = {F32: 1e-5, F16: 3e-3, BF16: 2e-2}


def tensors(shape, dtype, biases):
    """Returns q, k, v, the gradient of the result, and the two biases."""
    batch, rows, length, heads, _ = shape
    made = torch.Generator().manual_seed(length)
    found = [torch.randn(shape, generator=made).to(dtype) for _ in range(4)]
    keep = torch.rand(batch, rows, 1, 1, length, generator=made) > 0.2
    bias1 = (1e9 * (keep.double() - 1)).clamp(min=torch.finfo(dtype).min).to(dtype)
    bias2 = torch.randn(batch, 1, heads, length, length, generator=made).to(dtype)
    none = torch.empty(0, dtype=dtype)
    return (*found, bias1 if 1 in biases else none, bias2 if 2 in biases else none)


def wanted_of(q, k, v, grad, *biases):
    """Returns the result, the logarithms, and the gradients of q, k, v and the biases there are."""
    inputs = [x.double().requires_grad_() for x in (q, k, v, *biases) if x.numel()]
    q_, k_, v_ = (x.transpose(-2, -3) for x in inputs[:3])
    scores = q_ @ k_.mT * q.shape[-1] ** -0.5
    for bias in inputs[3:]:
        scores = scores + bias
    result = (scores.softmax(-1) @ v_).transpose(-2, -3)
    grads = torch.autograd.grad(result, inputs, grad.double())
    return result.detach(), scores.logsumexp(-1).detach().flatten(0, 1), grads


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("biases", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("shape", [(1, 3, 33, 2, 8), (2, 2, 17, 3, 24)])
def test_both_passes(compat, shape, biases, dtype):
    module = compat.EvoformerAttnBuilder().load()
    q, k, v, grad, *both = tensors(shape, dtype, biases)
    result, sums, grads = wanted_of(q, k, v, grad, *both)
    length, heads = shape[2:4]
    padded = (length + 31) // 32 * 32
    lse = torch.full((shape[0] * shape[1], heads, padded), 7.0)
    o = torch.empty_like(q)
    assert module.attention(q, k, v, *both, o, lse) is None
    found = [torch.empty_like(x) for x in (q, k, v)]
    added = [torch.zeros(x.shape) for x in both]
    swapped = grad.transpose(1, 2).contiguous().transpose(1, 2)  # of another layout
    module.attention_bwd(swapped, q, k, v, o, lse, torch.empty(0), *both, *found, *added)
    pairs = [(o, result), (lse[..., :length], sums)]
    pairs += zip([*found, *(x for x in added if x.numel())], grads, strict=True)
    for one, right in pairs:
        bound = ERRORS[dtype] * max(1.0, right.abs().max().item())
        assert (one.double() - right).abs().max() <= bound
    assert (lse[..., length:] == 7).all()


@needs_deepspeed
def test_deepspeeds_function():
    code = """
import torch
from opdock.compat import deepspeed as compat
compat.install()
from deepspeed.ops.deepspeed4science import DS4Sci_EvoformerAttention
made = torch.Generator().manual_seed(1)
x = [torch.randn(2, 3, 20, 2, 16, generator=made).requires_grad_() for _ in range(3)]
shapes = ((2, 3, 1, 1, 20), (2, 1, 2, 20, 20))
biases = [torch.randn(s, generator=made).requires_grad_() for s in shapes]
grad = torch.randn(2, 3, 20, 2, 16, generator=made)
found = torch.autograd.grad(DS4Sci_EvoformerAttention(*x, list(biases)), [*x, *biases], grad)
q, k, v = (one.transpose(-2, -3) for one in x)
scores = q @ k.mT / 4 + biases[0] + biases[1]
plain = (scores.softmax(-1) @ v).transpose(-2, -3)
for one, right in zip(found, torch.autograd.grad(plain, [*x, *biases], grad), strict=True):
    assert (one - right).abs().max() < 1e-5, (one - right).abs().max()
"""
    run_python(code, prelude=None, DS_ACCELERATOR="cpu", DS_SKIP_CUDA_CHECK="1")
