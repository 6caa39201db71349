# SPDX-License-Identifier: Apache-2.0
"""The two matrix products of an MLP and the norm before them. Results are new tensors; gemms.py
describes the weights."""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    given,
    refuse,
    refuse_count,
    rows,
    without_gradients,
)
from opdock.compat.deepspeed.inference.elementwise import GATED_GELU, GATED_SILU, GELU, RELU
from opdock.compat.deepspeed.inference.gemms import weight_scale

# DeepSpeed's activation number -> (the op's name for it, whether it is gated).
_ACTIVATIONS = {
    GELU: ("gelu_tanh", False),
    RELU: ("relu", False),
    GATED_GELU: ("gelu", True),
    GATED_SILU: ("silu", True),
}


def _activation(at, number):
    try:
        name, gated = _ACTIVATIONS[int(number)]
    except KeyError:
        wanted = "1 (GELU), 2 (ReLU), 3 (GATED_GELU) or 4 (GATED_SILU)"
        remedy = "DeepSpeed's UNKNOWN leaves out the bias and the activation"
        refuse(at, "activation_type", repr(number), wanted, remedy)
    return {"activation": name, "gated": gated}


def _weights(at, input, weight, weight_out, q_scale, q_scale1, q_int8):
    return given(
        weight1_scale=weight_scale(at, "weight_interm", weight, q_scale, q_int8, input),
        weight2_scale=weight_scale(at, "weight_out", weight_out, q_scale1, q_int8, input),
    )


@without_gradients
def mlp_gemm(
    at,
    input: torch.Tensor | None,
    residual: torch.Tensor,
    input_bias: torch.Tensor | None,
    weight_interm: torch.Tensor,
    weight_out: torch.Tensor,
    bias: torch.Tensor | None,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
    preLayerNorm: bool,
    mlp_after_attn: bool,
    q_scale: torch.Tensor | None,
    q_scale1: torch.Tensor | None,
    q_int8: bool,
    activation_type: int,
    *arguments,
):
    """Returns [act(n times weight_interm + bias) times weight_out, n].

    n is the layer norm of input + residual + input_bias if mlp_after_attn, else of residual.
    activation_type: 1 is GELU by tanh, 2 is ReLU; 3 (erf-GELU) and 4 (SiLU) are gated: the first
    half of weight_interm's product is multiplied by the activation of the second half. preLayerNorm
    has no effect. 0.19.8 passes one more positional argument, transposed_mode.
    """
    if len(arguments) > 1:
        refuse_count(at, len(arguments) + 15, {15: "DeepSpeed 0.7.7", 16: "0.19.8"})
    transposed = bool(arguments and arguments[0]) or bool(q_int8)
    check(at, residual=residual, bias=bias, gamma=gamma, beta=beta)
    before = {}
    if mlp_after_attn:
        check(at, residual=residual, input=input, input_bias=input_bias)
        before = given(residual=rows(residual), input_bias=input_bias)
    scales = _weights(at, residual, weight_interm, weight_out, q_scale, q_scale1, q_int8)
    out, normed, _ = _ops.norm_mlp(
        rows(input if mlp_after_attn else residual),
        rows(weight_interm),
        rows(weight_out),
        bias,
        gamma=gamma,
        beta=beta,
        norm="layer",
        eps=float(epsilon),
        transposed=transposed,
        **before,
        **scales,
        **_activation(at, activation_type),
    )
    return [out, normed]


mlp_gemm.more = {1: {"transposed_mode": bool}}


@without_gradients
def rms_mlp_gemm(
    at,
    input: torch.Tensor,
    residual: torch.Tensor,
    weight_interm: torch.Tensor,
    weight_out: torch.Tensor,
    gamma: torch.Tensor | None,
    epsilon: float,
    q_scale: torch.Tensor | None,
    q_scale1: torch.Tensor | None,
    q_int8: bool,
    activation_type: int,
    transposed_mode: bool,
):
    """Returns [act(n times weight_interm) times weight_out, s].

    s is input + residual, and n its RMS norm. activation_type: as for mlp_gemm(). residual is not
    changed.
    """
    check(at, input=input, residual=residual, gamma=gamma)
    scales = _weights(at, input, weight_interm, weight_out, q_scale, q_scale1, q_int8)
    out, _, total = _ops.norm_mlp(
        rows(input),
        rows(weight_interm),
        rows(weight_out),
        residual=rows(residual),
        gamma=gamma,
        norm="rms",
        eps=float(epsilon),
        transposed=bool(transposed_mode or q_int8),
        **scales,
        **_activation(at, activation_type),
    )
    return [out, total]


_GELU_FORMS = {10: "DeepSpeed 0.7.7", 8: "0.19.8", 7: "their MoE layer"}


@without_gradients
def fused_gemm_gelu(at, input: torch.Tensor, weight: torch.Tensor, *arguments):
    """Returns gelu(input times weight + bias) times weight_out, with GELU by tanh.

    The further positional arguments are weight_scale, bias, weight_out, weight_out_scale, and then
    q_int8, transposed_mode (0.19.8) or epsilon, preLayerNorm, q_int8, async_op (0.7.7). DeepSpeed's
    MoE layer passes bias, weight_out and three numbers that have no effect.
    """
    scale = scale_out = None
    q_int8 = transposed = False
    if len(arguments) == 6:
        scale, bias, weight_out, scale_out, q_int8, transposed = arguments
    elif len(arguments) == 8:
        scale, bias, weight_out, scale_out, _, _, q_int8, _ = arguments
    elif len(arguments) == 5:
        bias, weight_out = arguments[:2]
    else:
        refuse_count(at, len(arguments) + 2, _GELU_FORMS)
    check(at, input=input, bias=bias)
    return _ops.mlp(
        rows(input),
        rows(weight),
        rows(weight_out),
        bias,
        activation="gelu_tanh",
        transposed=bool(transposed or q_int8),
        **_weights(at, input, weight, weight_out, scale, scale_out, q_int8),
    )


_WEIGHTS = {
    "weight_scale": torch.Tensor | None,
    "bias": torch.Tensor | None,
    "weight_out": torch.Tensor,
    "weight_out_scale": torch.Tensor | None,
}
fused_gemm_gelu.more = {
    5: {"bias": torch.Tensor | None, "weight_out": torch.Tensor},
    6: {**_WEIGHTS, "q_int8": bool, "transposed_mode": bool},
    8: {**_WEIGHTS, "epsilon": float, "preLayerNorm": bool, "q_int8": bool, "async_op": bool},
}
