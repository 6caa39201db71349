# SPDX-License-Identifier: Apache-2.0
"""Tests layers of a GPT, computed call by call as in DeepSpeed 0.7.7 and 0.19.8, against
float64."""

import math

import pytest
import torch
from inference_cases import (
    DTYPES,
    NONE,
    each_dtype,
    exact,
    gelu,
    layer_norm,
    more_roundings,
    random,
)

from opdock.compat.deepspeed import inference

__all__ = ["random"]
HIDDEN, HEADS, LAYERS, EPS = 64, 4, 3, 1e-5


class Weights:
    """Weights of a layer, [in, out] as 0.7.7 has them."""

    def __init__(self, random, suffix):
        h = HIDDEN

        def matrix(rows, columns):
            return random((rows, columns), suffix, rows**-0.5)

        self.qkv, self.out = matrix(h, 3 * h), matrix(h, h)
        self.inter, self.mlp = matrix(h, 4 * h), matrix(4 * h, h)
        self.qkv_b, self.inter_b = random((3 * h,), suffix), random((4 * h,), suffix)
        self.out_b, self.mlp_b, self.beta, self.beta2 = (random((h,), suffix) for _ in range(4))
        self.gamma, self.gamma2 = (1 + random((h,), suffix, 0.1) for _ in range(2))


def layer_of_0_7_7(w, i, x, function):
    """Computes the layer without transposed_mode. qkv_gemm's arguments include external_cache,
    mp_size and rank."""
    qkv, _ = function("qkv_gemm")(
        *(x, w.qkv, NONE, w.qkv_b, w.gamma, w.beta, EPS, True, LAYERS, False, 1, 0, False)
    )
    scale = (HIDDEN // HEADS) ** -0.25
    out, _, _ = function("softmax_context")(
        *(qkv, NONE, -1, False, False, HEADS, scale, True, False, 256, True, i, LAYERS, NONE)
    )
    attention = function("vector_matmul")(out, w.out, False, NONE, False)
    mlp, _ = function("mlp_gemm")(
        *(attention, x, w.out_b, w.inter, w.mlp, w.inter_b, w.gamma2, w.beta2, EPS, True, True),
        *(NONE, NONE, False, 1),
    )
    arguments = (mlp, x, attention, w.out_b, w.mlp_b, 1, True, True, True)
    return function("residual_add_bias")(*arguments)


def layer_of_0_19_8(w, i, x, function):
    """Computes the layer with transposed_mode: weights are [out, in]."""
    turned = {name: getattr(w, name).t().contiguous() for name in ("qkv", "out", "inter", "mlp")}
    qkv, _ = function("qkv_gemm")(
        *(x, turned["qkv"], NONE, w.qkv_b, w.gamma, w.beta, EPS, True, False, True)
    )
    scale = (HIDDEN // HEADS) ** -0.25
    out, _, _ = function("softmax_context")(
        *(qkv, NONE, -1, False, False, HEADS, -1, scale, True, False, 256, True, i, LAYERS, NONE),
        *(10000.0, x.shape[1] > 1, None, None),
    )
    attention = function("vector_matmul")(out, turned["out"], False, NONE, False, True)
    mlp, _ = function("mlp_gemm")(
        *(attention, x, w.out_b, turned["inter"], turned["mlp"], w.inter_b, w.gamma2, w.beta2),
        *(EPS, True, True, NONE, NONE, False, 1, True),
    )
    arguments = (mlp, x, attention, w.out_b, w.mlp_b, 1, True, True, True)
    return function("residual_add_bias")(*arguments)


def oracle(w, x):
    """Computes the layer over a whole sequence, in float64."""
    w = {name: exact(value) for name, value in vars(w).items()}
    batch, length, _ = x.shape
    qkv = layer_norm(x, w["gamma"], w["beta"]) @ w["qkv"] + w["qkv_b"]
    q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
    scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
    scores = scores.masked_fill(~torch.ones(length, length).tril().bool(), -math.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    context = (e / e.sum(-1, keepdim=True) @ v).transpose(1, 2).reshape(batch, length, HIDDEN)
    x = x + context @ w["out"] + w["out_b"]
    inner = gelu(layer_norm(x, w["gamma2"], w["beta2"]) @ w["inter"] + w["inter_b"])
    return x + inner @ w["mlp"] + w["mlp_b"]


@each_dtype
@pytest.mark.parametrize("layer", [layer_of_0_7_7, layer_of_0_19_8])
def test_a_prompt_and_tokens_after_it(layer, suffix, random):
    """The error of the last layer, relative to the largest element, is a few roundings per
    layer."""
    weights = [Weights(random, suffix) for _ in range(LAYERS)]
    sequence = random((2, 12, HIDDEN), suffix)
    wanted = exact(sequence)
    for w in weights:
        wanted = oracle(w, wanted)

    def function(stem):
        return getattr(inference, f"{stem}_{suffix}")

    found, begin = [], 0
    for step in (7, 1, 1, 1, 1, 1):
        function("allocate_workspace")(HIDDEN, HEADS, step, 2, LAYERS, 1, False, 0, 32)
        x = sequence[:, begin : begin + step].clone()
        for i, w in enumerate(weights):
            assert layer(w, i, x, function) is x
        found.append(x)
        begin += step
    # A layer has nine roundings here. A GPU adds three: two products before their biases, and the
    # attention weights.
    more = 12 / 9 if more_roundings(x) else 1
    error = (exact(torch.cat(found, 1)) - wanted).abs().max() / wanted.abs().max()
    assert error <= 4 * more * torch.finfo(DTYPES[suffix]).eps
    inference.release_workspace()
