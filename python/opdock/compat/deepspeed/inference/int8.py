# SPDX-License-Identifier: Apache-2.0
"""Functions for int8 weights: dequantize, and those whose names end in _int8.

DeepSpeed 0.7.7's functions take a weight [in, out] that was quantised as [out, in], in groups of
consecutive elements of that layout; q_scale has one number for each group. The other tensors are
float16.
"""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    check_dims,
    refuse,
    refuse_count,
    rows,
    without_gradients,
)
from opdock.compat.deepspeed.inference.gemms import vector_matmul
from opdock.compat.deepspeed.inference.mlps import fused_gemm_gelu
from opdock.compat.deepspeed.inference.norms import norm_of_sum


@without_gradients
def dequantize(at, weight: torch.Tensor, qscale: torch.Tensor, groups: int):
    """Returns weight, int8 [rows, columns], times its groups' scales, as a new tensor of the
    function's dtype.

    qscale: float32, of which the first `groups` numbers are used. A group is rows / groups rows.
    """
    _check_quantized(at, weight, qscale, groups)
    scale = qscale.reshape(-1)[:groups].contiguous()
    return _ops.dequantize(weight.contiguous(), scale, dtype=at.dtype)


def _check_quantized(at, weight, q_scale, groups, scales=None):
    for argument, tensor, dtype in (
        ("weight", weight, torch.int8),
        ("q_scale", q_scale, torch.float32),
    ):
        found = getattr(tensor, "dtype", type(tensor).__name__)
        if found != dtype:
            refuse(at, argument, found, f"a tensor of {dtype}", "quantize the weight")
    check_dims(at, "weight", weight, 2)
    scales = groups if scales is None else scales
    if groups < 1 or weight.numel() % scales or q_scale.numel() < scales:
        found = f"{groups} for shape {tuple(weight.shape)} and {q_scale.numel()} scales"
        wanted = "a number that divides the elements, and a scale for each group"
        refuse(at, "groups", found, wanted, "pass the number that the weight was quantised in")


def _transposed(at, weight, q_scale, groups, merge_count=0):
    """Returns [(weights [out, part of in], their scales)] for the 2 ** merge_count parts of
    `in`."""
    parts = 1 << merge_count
    _check_quantized(at, weight, q_scale, groups, groups * parts)
    if weight.shape[0] % parts:
        found = f"{merge_count} for shape {tuple(weight.shape)}"
        refuse(at, "merge_count", found, "2 ** merge_count that divides the rows", "check it")
    scales = q_scale.reshape(-1)[: groups * parts].unflatten(0, (groups, parts))
    return [
        (part.t().contiguous(), scales[:, i].contiguous())
        for i, part in enumerate(weight.chunk(parts))
    ]


def _product(at, input, weight, q_scale, groups, bias=None, activation="none", merge_count=0):
    check(at, input=input, bias=bias)
    parts = _transposed(at, weight, q_scale, groups, merge_count)
    inputs = rows(input).chunk(len(parts), -1)
    out = None
    for i, (part, (one, scale)) in enumerate(zip(inputs, parts, strict=True)):
        last = i == len(parts) - 1
        out = _ops.linear(
            part,
            one,
            bias if last else None,
            out,
            weight_scale=scale,
            activation=activation if last else "none",
        )
    return out


@without_gradients
def linear_layer_int8(
    at,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    q_scale: torch.Tensor,
    groups: int,
):
    """Returns input times weight + bias."""
    return _product(at, input, weight, q_scale, groups, bias)


@without_gradients
def qkv_gemm_int8(
    at,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
    q_scale: torch.Tensor,
    groups: int,
    add_bias: bool,
):
    """Returns the layer norm of input times weight, plus bias if add_bias."""
    check(at, input=input, gamma=gamma, beta=beta)
    normed = _ops.layer_norm(rows(input), gamma, beta, eps=float(epsilon))
    return _product(at, normed, weight, q_scale, groups, bias if add_bias else None)


@without_gradients
def mlp_gemm_int8(
    at,
    input: torch.Tensor,
    residual: torch.Tensor,
    input_bias: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
    q_scale: torch.Tensor,
    groups: int,
    preLayerNorm: bool,
):
    """Returns [gelu(n times weight + bias), s if preLayerNorm, else n].

    s is input + residual + input_bias, and n its layer norm. GELU is the tanh formula.
    """
    check(at, input=input, residual=residual, input_bias=input_bias, gamma=gamma, beta=beta)
    normed, total = norm_of_sum(input, input_bias, residual, gamma, beta, epsilon)
    out = _product(at, normed, weight, q_scale, groups, bias, "gelu_tanh")
    return [out, total if preLayerNorm else normed]


@without_gradients
def vector_matmul_int8(at, input: torch.Tensor, weight: torch.Tensor, *arguments):
    """Returns input times weight.

    The further positional arguments are q_scale, groups, merge_count (0.7.7), or, as for
    vector_matmul(), async_op, q_scale, q_int8, transposed_mode (0.19.8).

    merge_count: weight's rows are those of 2 ** merge_count models, one after the other, each
    quantised in `groups` groups; group g of model i has the scale with the index g * 2 **
    merge_count + i.
    """
    if len(arguments) == 3:
        q_scale, groups, merge_count = arguments
        return _product(at, input, weight, q_scale, groups, merge_count=merge_count)
    if len(arguments) == 4:
        return vector_matmul(at, input, weight, *arguments)
    refuse_count(at, len(arguments) + 2, {5: "DeepSpeed 0.7.7", 6: "0.19.8"})


vector_matmul_int8.more = {
    3: {"q_scale": torch.Tensor, "groups": int, "merge_count": int},
    4: {"async_op": bool, **vector_matmul.more[3]},
}


@without_gradients
def fused_gemm_gelu_int8(at, input: torch.Tensor, weight: torch.Tensor, *arguments):
    """Returns gelu(input times weight + bias), with GELU by tanh.

    The further positional arguments are bias, epsilon, q_scale, groups, preLayerNorm (0.7.7), or,
    as for fused_gemm_gelu(), weight_scale, bias, weight_out, weight_out_scale, q_int8,
    transposed_mode (0.19.8). epsilon and preLayerNorm have no effect.
    """
    if len(arguments) == 5:
        bias, _, q_scale, groups, _ = arguments
        return _product(at, input, weight, q_scale, groups, bias, "gelu_tanh")
    if len(arguments) == 6:
        return fused_gemm_gelu(at, input, weight, *arguments)
    refuse_count(at, len(arguments) + 2, {7: "DeepSpeed 0.7.7", 8: "0.19.8"})


fused_gemm_gelu_int8.more = {
    5: {
        "bias": torch.Tensor | None,
        "epsilon": float,
        "q_scale": torch.Tensor,
        "groups": int,
        "preLayerNorm": bool,
    },
    6: fused_gemm_gelu.more[6],
}
