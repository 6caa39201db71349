# SPDX-License-Identifier: Apache-2.0
"""Tests the binding's int8 weights, in the layouts of both versions, against float64."""

import pytest
import torch
from inference_cases import (
    NONE,
    assert_close,
    assert_product_close,
    each_dtype,
    exact,
    gelu,
    layer_norm,
    random,
)

import opdock
from opdock.compat.deepspeed import inference

__all__ = ["random"]
EPS = 1e-5


def quantized(random, rows, columns, groups, seed_scale=1.0):
    """Returns an int8 [rows, columns] weight, its float32 [groups, 3] scales as DeepSpeed keeps
    them (the first `groups` numbers in memory are the whole weight's), and the weight in float64.
    """
    q = (random((rows, columns)) * 50).clamp(-127, 127).to(torch.int8)
    scale = random((3 * groups,)).abs() * 0.02 * seed_scale / rows**0.5 + 1e-4
    whole = exact(scale[:groups])
    weight = (exact(q).view(groups, -1) * whole[:, None]).view(rows, columns)
    return q, scale.view(groups, 3), weight


@each_dtype
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_dequantize(groups, suffix, random):
    """The result has the dtype in the name: DeepSpeed's function writes float32 into a float16
    tensor."""
    q, scale, weight = quantized(random, 32, 24, groups)
    found = getattr(inference, f"dequantize_{suffix}")(q, scale, groups)
    assert_close(found, weight, suffix)


@pytest.mark.parametrize("groups, elements", [(1, 8), (13, 13 * 64), (512, 16384)])
def test_dequantize_on_deepspeeds_grid(groups, elements, random):
    q, scale, weight = quantized(random, groups, elements // groups, groups)
    assert_close(inference.dequantize_fp16(q, scale, groups), weight, "fp16")
    zeros = torch.zeros_like(q)
    assert (inference.dequantize_fp16(zeros, scale, groups) == 0).all()


@each_dtype
@pytest.mark.parametrize("groups", [1, 8])
def test_products_with_int8_weights(groups, suffix, random):
    """Weights are [out, in] with groups of rows; transposed_mode does not matter."""
    x = random((2, 3, 48), suffix)
    residual, bias = random((2, 3, 48), suffix), random((32,), suffix)
    gamma, beta = random((48,), suffix), random((48,), suffix)
    q, scale, w = quantized(random, 32, 48, groups)
    q2, scale2, w2 = quantized(random, 48, 32, groups)

    def call(stem, *arguments):
        return getattr(inference, f"{stem}_{suffix}")(*arguments)

    wanted = exact(x) @ w.t()
    for transposed in ((), (False,), (True,)):
        found = call("vector_matmul", x, q, False, scale, True, *transposed)
        assert_product_close(found, wanted, suffix, 4)
    norm = layer_norm(x, gamma, beta)
    wanted = norm.to(x.dtype).double() @ w.t() + exact(bias)
    found = call("qkv_gemm", x, q, scale, bias, gamma, beta, EPS, True, True, False)
    assert_product_close(found[0], wanted, suffix, 4)
    old = call("qkv_gemm", x, q, scale, bias, gamma, beta, EPS, True, 1, False, 1, 0, True)
    assert torch.equal(old[0], found[0])
    inner = gelu(exact(x) @ w.t() + exact(bias)).to(x.dtype).double()
    found = call("fused_gemm_gelu", x, q, scale, bias, q2, scale2, True, False)
    assert_product_close(found, inner @ w2.t(), suffix, 4)
    rest = (bias, gamma, beta, EPS, True, False, scale, scale2, True, 1)
    found = call("mlp_gemm", x, x, None, q, q2, *rest)
    inner = gelu(norm.to(x.dtype).double() @ w.t() + exact(bias)).to(x.dtype).double()
    assert_product_close(found[0], inner @ w2.t(), suffix, 4)
    found = call("rms_mlp_gemm", x, residual, q, q2, gamma, EPS, scale, scale2, True, 2, False)
    assert_close(found[1], exact(x) + exact(residual), suffix)


def merged(random, into, out, groups, merge_count):
    """Returns DeepSpeed 0.7.7's weight [in, out], its scales, and the weight in float64. Each of
    2**merge_count models quantised its part of the rows as [out, part], in consecutive groups."""
    parts = 1 << merge_count
    pieces, weights = [], []
    scales = random((groups, parts)).abs() * 0.02 / into**0.5 + 1e-4
    for i in range(parts):
        q = (random((out, into // parts)) * 50).clamp(-127, 127).to(torch.int8)
        by_group = exact(q).view(groups, -1) * exact(scales[:, i, None])
        pieces.append(q.t())
        weights.append(by_group.view(out, -1).t())
    return torch.cat(pieces).contiguous(), scales, torch.cat(weights)


@pytest.mark.parametrize("groups, merge_count", [(1, 0), (8, 0), (4, 1), (2, 2)])
def test_the_int8_functions_of_0_7_7(groups, merge_count, random):
    """The weight is not square: DeepSpeed's functions then swap the sizes."""
    x = random((2, 3, 48), "fp16")
    bias = random((32,), "fp16")
    gamma, beta = random((48,), "fp16"), random((48,), "fp16")
    q, scale, w = merged(random, 48, 32, groups, merge_count)
    found = inference.vector_matmul_int8(x, q, scale, groups, merge_count)
    assert_product_close(found, exact(x) @ w, "fp16", 4)
    if merge_count:
        return
    linear = inference.linear_layer_int8(x, q, bias, scale, groups)
    assert_product_close(linear, exact(x) @ w + exact(bias), "fp16", 4)
    norm = layer_norm(x, gamma, beta).half().double()
    qkv = inference.qkv_gemm_int8(x, q, bias, gamma, beta, EPS, scale, groups, True)
    assert_product_close(qkv, norm @ w + exact(bias), "fp16", 4)
    plain = inference.qkv_gemm_int8(x, q, bias, gamma, beta, EPS, scale, groups, False)
    assert_product_close(plain, norm @ w, "fp16", 4)
    fused = inference.fused_gemm_gelu_int8(x, q, bias, EPS, scale, groups, True)
    assert_product_close(fused, gelu(exact(x) @ w + exact(bias)), "fp16", 4)


@pytest.mark.parametrize("preln", [True, False])
def test_mlp_gemm_int8_normalises(preln, random):
    """DeepSpeed's function never does: it multiplies uninitialised memory."""
    x, residual = random((2, 3, 48), "fp16"), random((2, 3, 48), "fp16")
    bias, (gamma, beta, input_bias) = random((32,), "fp16"), (random((48,), "fp16") for _ in "abc")
    q, scale, w = merged(random, 48, 32, 4, 0)
    found = inference.mlp_gemm_int8(
        x, residual, input_bias, q, bias, gamma, beta, EPS, scale, 4, preln
    )
    total = (x.float() + residual.float() + input_bias.float()).half()
    norm = layer_norm(total, gamma, beta)
    assert_product_close(found[0], gelu(norm.half().double() @ w + exact(bias)), "fp16", 4)
    assert_close(found[1], exact(total) if preln else norm, "fp16", 2)


def test_the_int8_names_in_the_form_of_0_19_8(random):
    """DeepSpeed 0.19.8 calls these names, but its own module does not have them."""
    x, bias = random((1, 2, 48), "fp16"), random((32,), "fp16")
    q, scale, w = quantized(random, 32, 48, 4)
    q2, scale2, w2 = quantized(random, 48, 32, 4)
    found = inference.vector_matmul_int8(x, q, False, scale, True, False)
    assert_product_close(found, exact(x) @ w.t(), "fp16", 4)
    found = inference.fused_gemm_gelu_int8(x, q, scale, bias, q2, scale2, True, False)
    inner = gelu(exact(x) @ w.t() + exact(bias)).half().double()
    assert_product_close(found, inner @ w2.t(), "fp16", 4)
    with pytest.raises(opdock.ArgumentError, match="wanted 5 .DeepSpeed 0.7.7., 6"):
        inference.vector_matmul_int8(x, q, scale)


def test_scales_that_do_not_fit(device, random):
    x = random((1, 2, 48), "fp16")
    q, scale, _ = quantized(random, 32, 48, 4)
    cases = (
        (x, q, False, NONE.half(), True),
        (x, q, False, torch.ones(5, device=device), True),
        (x, q, False, None, True),
        (x, q.half(), False, scale, True),
        (x, q, False, scale, False),
    )
    wanted = ("wanted a float32 tensor", "5 groups", "NoneType", "torch.int8", "found torch.int8")
    for arguments, message in zip(cases, wanted, strict=True):
        with pytest.raises(opdock.InvalidArgumentError, match=message):
            inference.vector_matmul_fp16(*arguments)
    with pytest.raises(opdock.InvalidArgumentError, match="'groups': found 7"):
        inference.dequantize_fp16(q, scale, 7)
    with pytest.raises(opdock.InvalidArgumentError, match="'groups': found 16 .* 12 scales"):
        inference.dequantize_fp16(q, scale, 16)
