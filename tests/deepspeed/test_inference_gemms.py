# SPDX-License-Identifier: Apache-2.0
"""Tests the binding's products, in the forms of both versions, against float64."""

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
    rms_norm,
)

import opdock
from opdock.compat.deepspeed import inference

__all__ = ["random"]
SHAPES = [(1, 1, 64, 96), (2, 5, 96, 64), (1, 130, 48, 7)]  # batch, sequence, in, out
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
EPS = 1e-5


def call(stem, suffix, *arguments):
    return getattr(inference, f"{stem}_{suffix}")(*arguments)


class Layer:
    """x, a weight [in, out] of DeepSpeed's scale, and the other arguments of the products."""

    def __init__(self, random, shape, suffix):
        batch, length, self.k, self.n = shape
        self.x, self.residual = (random((batch, length, self.k), suffix) for _ in range(2))
        self.w = random((self.k, self.n), suffix, self.k**-0.5)
        self.w2 = random((self.n, self.k), suffix, self.n**-0.5)
        self.gated = random((self.k, 2 * self.n), suffix, self.k**-0.5)
        self.bias, self.gated_bias = random((self.n,), suffix), random((2 * self.n,), suffix)
        self.gamma, self.beta, self.input_bias = (random((self.k,), suffix) for _ in range(3))


def rounded(wanted, like):
    """Returns float64 values rounded as the function rounds them between its steps."""
    return wanted.to(like.dtype).double()


@each_dtype
@each_shape
def test_vector_matmul(shape, suffix, random):
    one = Layer(random, shape, suffix)
    wanted = exact(one.x) @ exact(one.w)
    old = call("vector_matmul", suffix, one.x, one.w, False, NONE, False)
    new = call("vector_matmul", suffix, one.x, one.w, True, NONE, False, False)
    turned = call("vector_matmul", suffix, one.x, one.w.t().contiguous(), False, NONE, False, True)
    short = call("vector_matmul", suffix, one.x, one.w, True)
    for found in (old, new, turned, short):
        assert_product_close(found, wanted, suffix)


@each_dtype
@each_shape
def test_linear_layer(shape, suffix, random):
    one = Layer(random, shape, suffix)
    product = exact(one.x) @ exact(one.w)
    for add_bias in (True, False):
        wanted = product + exact(one.bias) * add_bias
        old = call("linear_layer", suffix, one.x, one.w, one.bias, add_bias, False, 4)
        assert_product_close(old, wanted, suffix)
        turned = one.w.t().contiguous()
        new = call(
            "linear_layer", suffix, one.x, turned, one.bias, add_bias, False, 4, True, 10000.0
        )
        assert_product_close(new, wanted, suffix)


@each_dtype
@pytest.mark.parametrize(
    "size, padded", [(8, 32), (32, 64), (40, 64), (64, 64), (96, 128), (128, 128)]
)
def test_linear_layer_for_flash_attention(size, padded, suffix, random):
    """Padding works in float32 too, whose kernel is empty in DeepSpeed."""
    heads = 2
    x = random((2, 5, 24), suffix)
    w = random((24, 3 * heads * size), suffix, 24**-0.5)
    bias = random((3 * heads * size,), suffix)
    product = (exact(x) @ exact(w) + exact(bias)).view(2, 5, 3, heads, size)
    wanted = torch.zeros(3, 2, heads, 5, padded, dtype=torch.float64)
    wanted[..., :size] = product.permute(2, 0, 3, 1, 4)
    found = call("linear_layer", suffix, x, w, bias, True, True, heads)
    assert found.is_contiguous()
    assert_product_close(found, wanted, suffix)


def test_heads_that_do_not_fit(random):
    x, bias = random((1, 2, 8)), NONE
    with pytest.raises(opdock.InvalidArgumentError, match="heads of 160 elements"):
        inference.linear_layer_fp32(x, random((8, 480)), bias, False, True, 1)
    with pytest.raises(opdock.InvalidArgumentError, match="for 15 heads"):
        inference.linear_layer_fp32(x, random((8, 96)), bias, False, True, 5)


@each_dtype
@each_shape
def test_qkv_gemm(shape, suffix, random):
    one = Layer(random, shape, suffix)
    norm = layer_norm(one.x, one.gamma, one.beta)
    for add_bias in (True, False):
        wanted = rounded(norm, one.x) @ exact(one.w) + exact(one.bias) * add_bias
        given = one.bias if add_bias else one.beta  # DeepSpeed 0.7.7 passes this for no bias
        rest = (given, one.gamma, one.beta, EPS, add_bias)
        old = call("qkv_gemm", suffix, one.x, one.w, NONE, *rest, 12, False, 1, 0, False)
        turned = one.w.t().contiguous()
        new = call("qkv_gemm", suffix, one.x, turned, NONE, *rest, False, True)
        for found in (old, new):
            assert isinstance(found, list)
            assert_product_close(found[0], wanted, suffix, 4)
            assert_close(found[1], norm, suffix, 2)


@each_dtype
@each_shape
def test_rms_qkv_gemm(shape, suffix, random):
    one = Layer(random, shape, suffix)
    norm = rms_norm(one.x, one.gamma)
    for turned in (False, True):
        weight = one.w.t().contiguous() if turned else one.w
        found = call("rms_qkv_gemm", suffix, one.x, weight, NONE, one.gamma, EPS, False, turned)
        assert_product_close(found[0], rounded(norm, one.x) @ exact(one.w), suffix, 4)
        assert_close(found[1], norm, suffix, 2)


def activated(one, number, norm, bias=True):
    x = rounded(norm, one.x)
    if number in (1, 2):
        y = x @ exact(one.w) + exact(one.bias) * bias
        return gelu(y) if number == 1 else y.clamp(min=0)
    y = x @ exact(one.gated) + exact(one.gated_bias) * bias
    hidden, gate = y.chunk(2, -1)
    return hidden * (gelu(gate, "none") if number == 3 else gate / (1 + torch.exp(-gate)))


@each_dtype
@each_shape
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_mlp_gemm(shape, number, suffix, random):
    one = Layer(random, shape, suffix)
    weight, bias = (one.gated, one.gated_bias) if number > 2 else (one.w, one.bias)
    for after in (True, False):
        before = [one.x, one.input_bias] if after else []
        total = sum(t.float() for t in (one.residual, *before)).to(one.x.dtype)
        norm = layer_norm(total, one.gamma, one.beta)
        wanted = rounded(activated(one, number, norm), one.x) @ exact(one.w2)
        head = (one.x, one.residual, one.input_bias)
        rest = (bias, one.gamma, one.beta, EPS, True, after, NONE, NONE, False, number)
        old = call("mlp_gemm", suffix, *head, weight, one.w2, *rest)
        turned = (weight.t().contiguous(), one.w2.t().contiguous())
        new = call("mlp_gemm", suffix, *head, *turned, *rest, True)
        for found in (old, new):
            assert_product_close(found[0], wanted, suffix, 6)
            assert_product_close(found[1], norm, suffix)


@each_dtype
@each_shape
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_rms_mlp_gemm(shape, number, suffix, random):
    """The sum is a new tensor: DeepSpeed 0.19.8 adds the attention's output once more to the
    residual, which its own kernel has already changed."""
    one = Layer(random, shape, suffix)
    weight = one.gated if number > 2 else one.w
    total = exact(one.x) + exact(one.residual)
    norm = rms_norm(rounded(total, one.x), one.gamma)
    wanted = rounded(activated(one, number, norm, bias=False), one.x) @ exact(one.w2)
    before = one.residual.clone()
    for turned in (False, True):
        weights = [w.t().contiguous() if turned else w for w in (weight, one.w2)]
        rest = (one.gamma, EPS, NONE, NONE, False, number, turned)
        found = call("rms_mlp_gemm", suffix, one.x, one.residual, *weights, *rest)
        assert_product_close(found[0], wanted, suffix, 6)
        assert_close(found[1], total, suffix)
    assert torch.equal(one.residual, before)


def test_an_activation_without_a_number_is_refused(random):
    one = Layer(random, (1, 2, 8, 8), "fp32")
    rest = (one.bias, one.gamma, one.beta, EPS, True, True, NONE, NONE, False, 0)
    with pytest.raises(opdock.InvalidArgumentError, match="'activation_type': found 0, wanted 1"):
        inference.mlp_gemm_fp32(one.x, one.residual, one.input_bias, one.w, one.w2, *rest)


@each_dtype
@each_shape
def test_fused_gemm_gelu(shape, suffix, random):
    one = Layer(random, shape, suffix)
    inner = gelu(exact(one.x) @ exact(one.w) + exact(one.bias))
    wanted = rounded(inner, one.x) @ exact(one.w2)
    old = (one.w, NONE, one.bias, one.w2, NONE, EPS, True, False, False)
    new = (one.w.t().contiguous(), NONE, one.bias, one.w2.t().contiguous(), NONE, False, True)
    moe = (one.w, one.bias, one.w2, EPS, True, False)
    for arguments in (old, new, moe):
        assert_product_close(call("fused_gemm_gelu", suffix, one.x, *arguments), wanted, suffix, 4)


@each_dtype
@pytest.mark.parametrize("shape", [(5, 3, 7, 32), (64, 2, 16, 48), (1, 1, 1, 1)], ids=str)
def test_einsum_sec_sm_ecm(shape, suffix, random):
    s, e, c, m = shape
    q, w = random((s, e, c), suffix), random((s, m), suffix, s**-0.5)
    wanted = torch.einsum("sec,sm->ecm", exact(q), exact(w))
    assert_product_close(call("einsum_sec_sm_ecm", suffix, q, w), wanted, suffix)


def test_results_stay(random):
    """DeepSpeed's results are views of its workspace, which the next call overwrites."""
    one = Layer(random, (2, 5, 96, 64), "fp32")
    first = inference.vector_matmul_fp32(one.x, one.w, False, NONE, False)
    before = first.clone()
    inference.vector_matmul_fp32(one.residual, one.w, False, NONE, False)
    inference.qkv_gemm_fp32(
        *(one.x, one.w, NONE, one.bias, one.gamma, one.beta, EPS, True, False, False)
    )
    inference.release_workspace()
    assert torch.equal(first, before)


def test_forms_that_there_are_not(random):
    one = Layer(random, (1, 2, 8, 8), "fp32")
    x, w, b = one.x, one.w, one.bias
    for call_it, wanted in (
        (lambda: inference.vector_matmul_fp32(x, w, False, NONE), "4 arguments, wanted 5"),
        (lambda: inference.qkv_gemm_fp32(x, w, NONE, b, b, b, EPS, True, False), "wanted 13"),
        (lambda: inference.linear_layer_fp32(x, w, b, True, False, 1, True), "wanted 6"),
        (lambda: inference.fused_gemm_gelu_fp32(x, w, NONE, b), "wanted 10"),
    ):
        with pytest.raises(opdock.ArgumentError, match=wanted):
            call_it()
    with pytest.raises(opdock.InvalidArgumentError, match="'weight': found torch.float16"):
        inference.vector_matmul_fp32(x, w.half(), False, NONE, False)
    with pytest.raises(opdock.InvalidArgumentError, match="weight"):
        inference.vector_matmul_fp32(x, random((9, 8)), False, NONE, False)
