# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a training layer, and what it keeps for the backward pass."""

import functools
from typing import NamedTuple

import torch

from opdock.compat.deepspeed.inference._checks import check, refuse
from opdock.compat.deepspeed.transformer import _ops, attention, layers
from opdock.compat.deepspeed.transformer._calls import plain


class Weights(NamedTuple):
    """The weights of a layer, in DeepSpeed's order: matrices [out, in], and vectors."""

    attn_qkvw: torch.Tensor
    attn_qkvb: torch.Tensor
    attn_ow: torch.Tensor
    attn_ob: torch.Tensor
    attn_nw: torch.Tensor
    attn_nb: torch.Tensor
    inter_w: torch.Tensor
    inter_b: torch.Tensor
    output_w: torch.Tensor
    output_b: torch.Tensor
    norm_w: torch.Tensor
    norm_b: torch.Tensor


@plain
def forward(
    at,
    layer_id: int,
    input: torch.Tensor,
    input_mask: torch.Tensor | None,
    attn_qkvw: torch.Tensor,
    attn_qkvb: torch.Tensor,
    attn_ow: torch.Tensor,
    attn_ob: torch.Tensor,
    attn_nw: torch.Tensor,
    attn_nb: torch.Tensor,
    inter_w: torch.Tensor,
    inter_b: torch.Tensor,
    output_w: torch.Tensor,
    output_b: torch.Tensor,
    norm_w: torch.Tensor,
    norm_b: torch.Tensor,
    training_mode: bool,
    prelayernorm: bool,
    attn_dropout_checkpoint: bool,
    normalize_invertible: bool,
    gelu_checkpoint: bool,
):
    """Returns the layer's output [batch, sequence, hidden], and 16 tensors for backward.

    input: [batch, sequence, hidden], float32 or float16 as the name says, or bfloat16; the weights
    have its dtype. input_mask: added to the scores; a number for each key, or of any shape that is
    broadcast to [batch, heads, sequence, sequence]; None means none. training_mode False: no
    dropout, and nothing is kept. prelayernorm: norms stand before the attention and before the
    MLP, else behind each. attn_dropout_checkpoint, gelu_checkpoint: what dropout of probabilities
    and GELU give is computed again in the backward pass. normalize_invertible: so is what norms
    give. The last tensors carry what backward must know of this pass.
    """
    layer = layers.find(at, layer_id)
    _check_dtype(at, input)
    weights = Weights(
        attn_qkvw,
        attn_qkvb,
        attn_ow,
        attn_ob,
        attn_nw,
        attn_nb,
        inter_w,
        inter_b,
        output_w,
        output_b,
        norm_w,
        norm_b,
    )
    try:
        mask = attention.mask_over_scores(at, input_mask, input, layer.heads)
        if not training_mode:
            none = input.new_empty(0)
            return [_evaluate(layer, input.contiguous(), mask, weights, prelayernorm)] + [none] * 16
        options = (
            bool(prelayernorm),
            bool(attn_dropout_checkpoint),
            bool(normalize_invertible),
            bool(gelu_checkpoint),
        )
        return _train(layer, input.contiguous(), mask, weights, *options)
    except Exception:
        # The ops check all that they are given; here an error gets DeepSpeed's name of an argument.
        _check(at, layer, input, weights)
        raise


def _train(layer, input, mask, weights, pre, attn_checkpoint, invertible, gelu_checkpoint):
    """Returns forward()'s results in training mode."""
    w, eps = weights, layer.eps
    normed = _ops.layer_norm(input, w.norm_w, w.norm_b, eps=eps) if pre else input
    qkv = _ops.linear(normed, w.attn_qkvw, w.attn_qkvb)
    attended = attention.forward(layer, qkv, mask, attn_checkpoint)
    total, attn_keep = _sum(layer, attended.context, w.attn_ow, w.attn_ob, input)
    ff1 = _ops.layer_norm(total, w.attn_nw, w.attn_nb, eps=eps)
    before_gelu = _ops.linear(ff1, w.inter_w)
    after_gelu = _ops.bias_gelu(before_gelu, w.inter_b)
    output, output_keep = _sum(layer, after_gelu, w.output_w, w.output_b, total if pre else ff1)
    version = None
    if pre:
        context, kept_input = attended.context, normed
        if invertible:
            # The norm's input is kept instead of its result: it takes as much memory, and the
            # result can be computed again from it also where a weight is 0.
            kept_input, version = input.detach(), input._version
    else:
        kept_input, output = output, _ops.layer_norm(output, w.norm_w, w.norm_b, eps=eps)
        # DeepSpeed's Python keeps neither the last norm's input nor the first one's. The former
        # takes the place of the context, which can be computed again from what stays.
        context = kept_input if invertible else attended.context
    none = input.new_empty(0)
    none.opdock_step = layers.Step(layer, pre, invertible, attended.soft.dim() == 4, version)
    batch, length, _ = input.shape
    scores = batch, layer.heads, length, length
    dropped = attended.soft if attended.dropped is None else attended.dropped
    return [
        output,
        kept_input,
        attended.qkv,
        attended.soft,
        dropped,
        context,
        total,
        total if invertible else ff1,
        before_gelu,
        before_gelu if gelu_checkpoint else after_gelu,
        _all_kept(input.device, scores) if attended.keep is None else attended.keep,
        _all_kept(input.device, input.shape) if attn_keep is None else attn_keep,
        _all_kept(input.device, input.shape) if output_keep is None else output_keep,
        none,
        none,
        none,
        none,
    ]


def _check_dtype(at, input):
    """Checks that the input has the dtype of the function's name. bfloat16 is taken too: the module
    has no name for it, and DeepSpeed's layer no flag."""
    if not isinstance(input, torch.Tensor) or input.dtype not in (at.dtype, torch.bfloat16):
        check(at, input=input)


def _check(at, layer, input, weights):
    """Checks dtypes, devices and shapes."""
    check(at._replace(dtype=input.dtype), input=input, **weights._asdict())
    if input.dim() != 3 or input.shape[2] % layer.heads:
        wanted = f"[batch, sequence, hidden] with whole columns for {layer.heads} heads"
        refuse(at, "input", f"shape {tuple(input.shape)}", wanted, "reshape it")
    hidden, inner = input.shape[2], weights.inter_b.numel()
    shapes = (
        (3 * hidden, hidden),
        (3 * hidden,),
        (hidden, hidden),
        (hidden,),
        (hidden,),
        (hidden,),
        (inner, hidden),
        (inner,),
        (hidden, inner),
        (hidden,),
        (hidden,),
        (hidden,),
    )
    for argument, weight, shape in zip(Weights._fields, weights, shapes, strict=True):
        if weight.shape != shape or not weight.is_contiguous():
            found = f"shape {tuple(weight.shape)} and strides {weight.stride()}"
            wanted = f"shape {shape} without gaps"
            refuse(at, argument, found, wanted, "weights are stored as torch.nn.Linear's")


def _evaluate(layer, input, mask, weights, pre):
    """Returns the output without dropout; keeps nothing."""
    normed, eps, w = input, layer.eps, weights
    if pre:
        normed = _ops.layer_norm(input, w.norm_w, w.norm_b, eps=eps)
    qkv = _ops.linear(normed, w.attn_qkvw, w.attn_qkvb)
    total = _ops.linear(attention.evaluate(layer, qkv, mask), w.attn_ow, w.attn_ob, input)
    normed = _ops.layer_norm(total, w.attn_nw, w.attn_nb, eps=eps)
    inner = _ops.linear(normed, w.inter_w, w.inter_b, activation="gelu_tanh")
    output = _ops.linear(inner, w.output_w, w.output_b, total if pre else normed)
    return output if pre else _ops.layer_norm(output, w.norm_w, w.norm_b, eps=eps)


def _sum(layer, x, weight, bias, residual):
    """Returns (residual + dropout(x weight + bias), dropout's mask or None)."""
    if not layer.hidden_dropout:
        return _ops.linear(x, weight, bias, residual), None
    made = _ops.linear(x, weight, bias)
    generator = layers.generator(layer, x.device)
    return _ops.dropout_add(made, residual, layer.hidden_dropout, generator=generator)


@functools.lru_cache
def _all_kept(device, shape):
    """Returns the mask of a dropout that drops nothing, which takes the memory of one element."""
    return torch.ones((), dtype=torch.bool, device=device).expand(shape)
