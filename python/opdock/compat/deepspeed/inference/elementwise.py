# SPDX-License-Identifier: Apache-2.0
"""Biases, activations and the sums at the end of a layer.

Where DeepSpeed writes into an argument, so do these: a tensor without gaps is changed and
returned; of another one a changed copy is returned. All run on the current stream.
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
    """input + bias, in place. input: [..., C]; bias: [C]."""
    return _with_bias(_ops.bias_add, at, input, bias)


@without_gradients
def bias_relu(at, input: torch.Tensor, bias: torch.Tensor):
    """max(input + bias, 0), in place. input: [..., C]; bias: [C]."""
    return _with_bias(_ops.bias_relu, at, input, bias)


@without_gradients
def bias_gelu(at, input: torch.Tensor, bias: torch.Tensor):
    """GELU, by its formula with tanh, of input + bias, in place. input: [..., C]; bias: [C]."""
    return _with_bias(_ops.bias_gelu, at, input, bias)


@without_gradients
def bias_geglu(at, activation: torch.Tensor, bias: torch.Tensor | None):
    """(a + bias[:C]) * gelu(g + bias[C:]), by erf. activation: [..., 2 C], a and g; a new tensor.

    bias: [2 C], or None.
    """
    check(at, activation=activation, bias=bias)
    return _ops.geglu(rows(activation), _flat(bias))


@without_gradients
def gated_activation(at, activation: torch.Tensor, bias: torch.Tensor | None, actFun: int):
    """bias_geglu(), or the same with SiLU. actFun: 3 is GELU, 4 is SiLU. A new tensor."""
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
    """input + residual + bias, in place of input. bias: [C]; one element or None: no bias."""
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
    """Adds up the branches of a layer, in place of residual, which is returned. All [..., H].

    mlp_after_attn and preln: (residual + attention_output + final_bias + attention_bias) / mp_size
    + hidden_state. mlp_after_attn alone: residual + hidden_state + final_bias. Without it:
    hidden_state + attention_output + (residual + final_bias + attention_bias) / mp_size, with
    attention_bias only if add_bias. Biases: [H], or None. mp_size: above 0.
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
    """gamma * a + b, in place of a, which is returned. Of any shape, without gaps."""
    check(at, a=a, b=b)
    if not a.is_contiguous():
        remedy = "pass .contiguous(): the sum is written into it"
        refuse(at, "a", f"strides {a.stride()}", "a tensor without gaps", remedy)
    return _ops.vector_add(rows(b), a, gamma=float(gamma), out=a)


@without_gradients
def moe_res_matmul(at, moe_res: torch.Tensor, coef: torch.Tensor, output: torch.Tensor):
    """output * coef[H:] + moe_res * coef[:H], in place of output, which is returned.

    moe_res, output: [..., H]; coef: 2 H numbers, one for each column and tensor.
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
