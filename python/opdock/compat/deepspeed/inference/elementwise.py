# SPDX-License-Identifier: Apache-2.0
"""Biases, activations, and the sums at the end of a layer.

Where DeepSpeed writes into an argument, these functions do too: a contiguous tensor is changed and
returned; for any other a changed copy is returned. All run on the current stream.
"""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    refuse,
    rows,
    without_gradients,
)

GELU, RELU, GATED_GELU, GATED_SILU = 1, 2, 3, 4


def _with_bias(op, at, input, bias):
    check(at, input=input, bias=bias)
    out = input.contiguous()
    return op(out, bias, out=out)


@without_gradients
def bias_add(at, input: torch.Tensor, bias: torch.Tensor):
    """Computes input + bias, in place; returns it. input: [..., C]; bias: [C]."""
    return _with_bias(_ops.bias_add, at, input, bias)


@without_gradients
def bias_relu(at, input: torch.Tensor, bias: torch.Tensor):
    """Computes max(input + bias, 0), in place; returns it. input: [..., C]; bias: [C]."""
    return _with_bias(_ops.bias_relu, at, input, bias)


@without_gradients
def bias_gelu(at, input: torch.Tensor, bias: torch.Tensor):
    """Computes gelu(input + bias) by the tanh formula, in place; returns it. input: [..., C]; bias:
    [C]."""
    return _with_bias(_ops.bias_gelu, at, input, bias)


@without_gradients
def bias_geglu(at, activation: torch.Tensor, bias: torch.Tensor | None):
    """Returns (a + bias[:C]) * gelu(g + bias[C:]), with GELU by erf, as a new tensor [..., C].

    activation: [..., 2 C], a and g side by side. bias: [2 C], or None.
    """
    check(at, activation=activation, bias=bias)
    return _ops.geglu(rows(activation), _flat(bias))


@without_gradients
def gated_activation(at, activation: torch.Tensor, bias: torch.Tensor | None, actFun: int):
    """Returns bias_geglu(), or the same with SiLU, as a new tensor. actFun: 3 is GELU, 4 is
    SiLU."""
    check(at, activation=activation, bias=bias)
    if actFun not in (GATED_GELU, GATED_SILU):
        wanted = "3 (GATED_GELU) or 4 (GATED_SILU)"
        refuse(at, "actFun", repr(actFun), wanted, "for others call bias_gelu or bias_relu")
    op = _ops.geglu if actFun == GATED_GELU else _ops.swiglu
    return op(rows(activation), _flat(bias))


def _flat(bias):
    return None if bias is None else bias.reshape(-1)


@without_gradients
def bias_residual(at, input: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor | None):
    """Computes input + residual + bias, in place of input; returns it.

    input, residual: [..., C]. bias: [C]; None, or a tensor of one element, means no bias.
    """
    check(at, input=input, residual=residual)
    if bias is not None and bias.numel() <= 1:
        bias = None
    check(at, input=input, bias=bias)
    out = input.contiguous()
    return _ops.residual_add(out, rows(residual), bias=bias, form="post_norm", out=out)


@without_gradients
def residual_add_bias(
    at,
    hidden_state: torch.Tensor,
    residual: torch.Tensor,
    attention_output: torch.Tensor,
    attention_bias: torch.Tensor | None,
    final_bias: torch.Tensor | None,
    mp_size: float,
    mlp_after_attn: bool,
    add_bias: bool,
    preln: bool,
):
    """Adds up the branches of a layer, in place of residual, which is returned.

    If mlp_after_attn and preln: (residual + attention_output + final_bias + attention_bias) /
    mp_size + hidden_state. If only mlp_after_attn: residual + hidden_state + final_bias. Without
    mlp_after_attn: hidden_state + attention_output + (residual + final_bias + attention_bias) /
    mp_size, with attention_bias only if add_bias. Tensors: [..., H]; residual must be contiguous.
    Biases: [H], or None. mp_size: above 0.
    """
    check(at, residual=residual, hidden_state=hidden_state, final_bias=final_bias)
    if mlp_after_attn and not preln:
        added = {"form": "post_norm"}
    else:
        if not mlp_after_attn and not add_bias:
            attention_bias = None
        check(
            at, residual=residual, attention_output=attention_output, attention_bias=attention_bias
        )
        added = {
            "attention": rows(attention_output),
            "attention_bias": attention_bias,
            "form": "pre_norm" if mlp_after_attn else "parallel",
            "divisor": float(mp_size),
        }
    if not residual.is_contiguous():
        remedy = "pass .contiguous(): the sum is written into it"
        refuse(at, "residual", f"strides {residual.stride()}", "a tensor without gaps", remedy)
    return _ops.residual_add(rows(hidden_state), residual, bias=final_bias, out=residual, **added)


@without_gradients
def vector_add(at, a: torch.Tensor, b: torch.Tensor, gamma: float):
    """Computes gamma * a + b, in place of a, which is returned. a, b: of one shape; a
    contiguous."""
    check(at, a=a, b=b)
    if not a.is_contiguous():
        remedy = "pass .contiguous(): the sum is written into it"
        refuse(at, "a", f"strides {a.stride()}", "a tensor without gaps", remedy)
    return _ops.vector_add(rows(b), a, gamma=float(gamma), out=a)


@without_gradients
def moe_res_matmul(at, moe_res: torch.Tensor, coef: torch.Tensor, output: torch.Tensor):
    """Computes output * coef[H:] + moe_res * coef[:H], in place of output, which is returned.

    moe_res, output: [..., H]; output must be contiguous. coef: 2 H numbers, one for each column of
    each tensor.
    """
    check(at, moe_res=moe_res, coef=coef, output=output)
    width = moe_res.shape[-1] if moe_res.dim() else 1
    if coef.numel() != 2 * width:
        remedy = "each column has coefficients of its own; for one a token multiply yourself"
        refuse(at, "coef", f"shape {tuple(coef.shape)}", f"{2 * width} numbers", remedy)
    if not output.is_contiguous():
        remedy = "pass .contiguous(): the sum is written into it"
        refuse(at, "output", f"strides {output.stride()}", "a tensor without gaps", remedy)
    return _ops.moe_res_matmul(rows(moe_res), coef.reshape(-1), output, out=output)
