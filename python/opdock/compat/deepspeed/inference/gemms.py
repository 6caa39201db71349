# SPDX-License-Identifier: Apache-2.0
"""Matrix products with weights: plain, after a norm, for attention, and for experts.

Results are new tensors. weight: [in, out]; with transposed_mode, or if it is int8, [out, in]. int8
weights come with q_scale, a float32 tensor whose first q_scale.size(0) numbers are the scales of as
many groups of equally many elements, in row-major order.
"""

import torch

from opdock.compat.deepspeed.inference import _ops
from opdock.compat.deepspeed.inference._checks import (
    check,
    check_dims,
    given,
    refuse,
    refuse_count,
    rows,
    without_gradients,
)
from opdock.compat.deepspeed.inference.padding import check_heads, padded_size

_BOTH = "DeepSpeed 0.7.7", "0.19.8"


def weight_scale(at, argument, weight, q_scale, q_int8, like):
    """Returns the scales of an int8 weight as the ops accept them; None for a weight of like's
    dtype."""
    if not q_int8:
        check(at, input=like, **{argument: weight})
        return None
    if not isinstance(weight, torch.Tensor) or weight.dtype != torch.int8:
        found = getattr(weight, "dtype", type(weight).__name__)
        refuse(at, argument, found, "torch.int8", "pass q_int8=False for a weight that is not")
    if not isinstance(q_scale, torch.Tensor) or q_scale.dtype != torch.float32 or not q_scale.dim():
        found = getattr(q_scale, "dtype", type(q_scale).__name__)
        wanted = "a float32 tensor whose first dimension is the number of groups"
        refuse(at, "q_scale", found, wanted, "quantize the weight with its scales")
    groups = q_scale.shape[0]
    if groups == 0 or weight.numel() % groups:
        found = f"{groups} groups for a weight of shape {tuple(weight.shape)}"
        refuse(at, "q_scale", found, "a number that divides its elements", "check q_scale.size(0)")
    # After these, DeepSpeed's tensor has the scales of the weight's halves.
    return q_scale.reshape(-1)[:groups].contiguous()


def _linear(at, input, weight, q_scale, q_int8, transposed, bias=None):
    check(at, input=input, bias=bias)
    scale = weight_scale(at, "weight", weight, q_scale, q_int8, input)
    return _ops.linear(
        rows(input),
        rows(weight),
        bias,
        transposed=bool(transposed or q_int8),
        **given(weight_scale=scale),
    )


@without_gradients
def vector_matmul(
    at, input: torch.Tensor, weight: torch.Tensor, async_op: bool = False, *arguments
):
    """Returns input times weight.

    The further positional arguments are q_scale, q_int8 (0.7.7), and transposed_mode (0.19.8).
    async_op has no effect: the product runs on the current stream.
    """
    forms = {5: _BOTH[0], 6: _BOTH[1], 3: "its MoE layer"}
    q_scale, q_int8, transposed = None, False, False
    if len(arguments) == 3:
        q_scale, q_int8, transposed = arguments
    elif len(arguments) == 2:
        q_scale, q_int8 = arguments
    elif arguments:
        refuse_count(at, len(arguments) + 3, forms)
    return _linear(at, input, weight, q_scale, q_int8, transposed)


vector_matmul.more = {
    2: {"q_scale": torch.Tensor | None, "q_int8": bool},
    3: {"q_scale": torch.Tensor | None, "q_int8": bool, "transposed_mode": bool},
}


@without_gradients
def linear_layer(
    at,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    add_bias: bool,
    do_flash_attn: bool,
    num_heads: int,
    *arguments,
):
    """Returns input times weight, plus bias if add_bias.

    0.19.8 passes two more positional arguments, transposed_mode and rope_theta. do_flash_attn: the
    result, which is queries, keys and values side by side, is returned as [3, batch, heads,
    sequence, size]; a size that is no multiple of 64 is padded with zeros to 32, 64 or 128.
    rope_theta has no effect: nothing is rotated.
    """
    if len(arguments) not in (0, 2):
        refuse_count(at, len(arguments) + 6, dict(zip((6, 8), _BOTH, strict=True)))
    transposed = bool(arguments and arguments[0])
    out = _linear(at, input, weight, None, False, transposed, bias if add_bias else None)
    if not do_flash_attn:
        return out
    check_dims(at, "input", input, 3)
    check_heads(at, "weight", out, 3 * num_heads)
    size = out.shape[-1] // (3 * num_heads)
    columns = size if size % 64 == 0 else padded_size(at, "weight", size)
    by_head = out.unflatten(-1, (3, num_heads, size)).permute(2, 0, 3, 1, 4)
    return _ops.pad_rows(by_head, out.shape[1], columns)


linear_layer.more = {2: {"transposed_mode": bool, "rope_theta": float}}


def _normed(at, input, weight, scale, bias, gamma, beta, epsilon, transposed, norm):
    return list(
        _ops.norm_linear(
            rows(input),
            rows(weight),
            bias,
            norm=norm,
            eps=float(epsilon),
            transposed=transposed,
            **given(gamma=gamma, beta=beta, weight_scale=scale),
        )
    )


@without_gradients
def qkv_gemm(
    at,
    input: torch.Tensor,
    weight: torch.Tensor,
    q_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
    add_bias: bool,
    *arguments,
):
    """Returns [n times weight, plus bias if add_bias; n], where n is the layer norm of input.

    The further positional arguments are q_int8, transposed_mode (0.19.8), or num_layers,
    external_cache, mp_size, rank, q_int8 (0.7.7), of which only q_int8 has an effect.
    """
    if len(arguments) == 2:
        q_int8, transposed = arguments
    elif len(arguments) == 5:
        q_int8, transposed = arguments[4], False
    else:
        refuse_count(at, len(arguments) + 8, dict(zip((13, 10), _BOTH, strict=True)))
    bias = bias if add_bias else None
    check(at, input=input, bias=bias, gamma=gamma, beta=beta)
    scale = weight_scale(at, "weight", weight, q_scale, q_int8, input)
    transposed = bool(transposed or q_int8)
    return _normed(at, input, weight, scale, bias, gamma, beta, epsilon, transposed, "layer")


qkv_gemm.more = {
    2: {"q_int8": bool, "transposed_mode": bool},
    5: {
        "num_layers": int,
        "external_cache": bool,
        "mp_size": int,
        "rank": int,
        "q_int8": bool,
    },
}


@without_gradients
def rms_qkv_gemm(
    at,
    input: torch.Tensor,
    weight: torch.Tensor,
    q_scale: torch.Tensor | None,
    gamma: torch.Tensor | None,
    epsilon: float,
    q_int8: bool,
    transposed_mode: bool,
):
    """Returns [n times weight, n], where n is the RMS norm of input."""
    check(at, input=input, gamma=gamma)
    scale = weight_scale(at, "weight", weight, q_scale, q_int8, input)
    transposed = bool(transposed_mode or q_int8)
    return _normed(at, input, weight, scale, None, gamma, None, epsilon, transposed, "rms")


@without_gradients
def einsum_sec_sm_ecm(at, Q: torch.Tensor, W: torch.Tensor):
    """Returns [e, c, m]: the sum over s of Q [s, e, c] times W [s, m]."""
    check(at, Q=Q, W=W)
    check_dims(at, "Q", Q, 3)
    check_dims(at, "W", W, 2)
    return _ops.einsum_sec_sm_ecm(rows(Q), rows(W))
