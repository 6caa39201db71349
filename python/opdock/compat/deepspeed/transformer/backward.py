# SPDX-License-Identifier: Apache-2.0
"""The backward pass of a training layer."""

import torch

from opdock.compat.deepspeed.inference._checks import refuse
from opdock.compat.deepspeed.transformer import _fused, _ops, attention
from opdock.compat.deepspeed.transformer._calls import plain


@plain
def backward(
    at,
    layer_id: int,
    grad_output: torch.Tensor,
    output: torch.Tensor,
    inp_norm: torch.Tensor,
    qkv_tf: torch.Tensor,
    soft_out: torch.Tensor,
    ctx_bufB: torch.Tensor,
    attn_o_inp: torch.Tensor,
    add_res: torch.Tensor,
    ff1_inp: torch.Tensor,
    gelu_inp: torch.Tensor,
    ff2_inp: torch.Tensor,
    attn_prob_dropout_mask: torch.Tensor,
    attn_output_dropout_mask: torch.Tensor,
    layer_output_dropout_mask: torch.Tensor,
    attn_layer_norm_var: torch.Tensor,
    attn_layer_norm_mean: torch.Tensor,
    layer_norm_var: torch.Tensor,
    layer_norm_mean: torch.Tensor,
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
):
    """Returns the gradients of input and of the 12 weights, in forward's order.

    grad_output: [batch, sequence, hidden], of the output's dtype. The tensors behind it: as forward
    got or returned them, in DeepSpeed's order, where DeepSpeed's Python passes one tensor for two
    if an option drops the other. layer_id, output and the last three of the means and variances
    have no effect.
    """
    step = _step(at, attn_layer_norm_var)
    grad = _grad(at, grad_output, input)
    input = input.contiguous()
    pre, invertible, eps = step.pre_layer_norm, step.normalize_invertible, step.layer.eps
    ratio = step.layer.hidden_dropout
    mask = attention.mask_over_scores(at, input_mask, grad, step.layer.heads)
    dropped = None if ctx_bufB is soft_out else ctx_bufB
    keep = attn_prob_dropout_mask if step.layer.attn_dropout else None
    soft = qkv_tf, soft_out, dropped, keep

    # The results of norms and GELU are computed again where they were not kept.
    total, ff1, context = add_res, ff1_inp, attn_o_inp
    if invertible:
        total = ff1_inp
        ff1 = _ops.layer_norm(total, attn_nw, attn_nb, eps=eps)
        if pre:
            _check_version(at, step, inp_norm)
            input, inp_norm = inp_norm, _ops.layer_norm(inp_norm, norm_w, norm_b, eps=eps)
        else:
            inp_norm, context = attn_o_inp, attention.context_again(step, *soft, mask)
    if ff2_inp is gelu_inp:
        ff2_inp = _ops.bias_gelu(gelu_inp, inter_b)

    # The MLP, and behind it the norm of a post-norm layer.
    grad_norm_w = grad_norm_b = None
    if not pre:
        grad, grad_norm_w, grad_norm_b = _ops.layer_norm_backward(
            grad, inp_norm, norm_w, norm_b, eps=eps
        )
    residual = grad
    inner, grad_output_b = _fused.bias_backward(
        _rows(grad), layer_output_dropout_mask, ratio, output_b
    )
    grad_output_w = torch.mm(inner.t(), _rows(ff2_inp))
    inner = torch.mm(inner, output_w)
    inner, grad_inter_b = _ops.bias_gelu_backward(inner, _rows(gelu_inp), inter_b)
    grad_inter_w = torch.mm(inner.t(), _rows(ff1))
    if pre:
        inner, grad_sum = torch.mm(inner, inter_w), residual
    else:
        inner, grad_sum = torch.addmm(_rows(residual), inner, inter_w), None
    grad, grad_attn_nw, grad_attn_nb = _ops.layer_norm_backward(
        inner.view_as(total), total, attn_nw, attn_nb, grad_sum, eps=eps
    )

    # The attention, and before it the norm of a pre-norm layer.
    inner, grad_attn_ob = _fused.bias_backward(
        _rows(grad), attn_output_dropout_mask, ratio, attn_ob
    )
    grad_attn_ow = torch.mm(inner.t(), _rows(context))
    inner = torch.mm(inner, attn_ow).view_as(total)
    inner = attention.backward(step, inner, *soft, context, mask)
    grad_attn_qkvb = inner.sum(0)
    grad_attn_qkvw = torch.mm(inner.t(), _rows(inp_norm if pre else input))
    if pre:
        inner = torch.mm(inner, attn_qkvw).view_as(input)
        grad, grad_norm_w, grad_norm_b = _ops.layer_norm_backward(
            inner, input, norm_w, norm_b, grad, eps=eps
        )
    else:
        grad = torch.addmm(_rows(grad), inner, attn_qkvw).view_as(input)
    return [
        grad,
        grad_attn_qkvw,
        grad_attn_qkvb,
        grad_attn_ow,
        grad_attn_ob,
        grad_attn_nw,
        grad_attn_nb,
        grad_inter_w,
        grad_inter_b,
        grad_output_w,
        grad_output_b,
        grad_norm_w,
        grad_norm_b,
    ]


def _rows(tensor):
    """Returns the tensor with all dimensions but the last as one."""
    return tensor if tensor.dim() == 2 else tensor.flatten(0, -2)


def _step(at, kept):
    """Returns the Step that forward() left with its tensors."""
    step = getattr(kept, "opdock_step", None)
    if step is None:
        wanted = "the tensor itself that forward returned in this place in training mode"
        remedy = "pass what the forward pass of the same module has returned, not a copy"
        found = f"a {type(kept).__name__} without it"
        refuse(at, "attn_layer_norm_var", found, wanted, remedy)
    return step


def _grad(at, grad, input):
    """Returns grad_output, checked and contiguous."""
    if grad.dtype is not input.dtype:
        remedy = f"convert it by .to({input.dtype})"
        refuse(at, "grad_output", grad.dtype, input.dtype, remedy)
    if grad.shape != input.shape:
        found, wanted = f"shape {tuple(grad.shape)}", f"shape {tuple(input.shape)}"
        refuse(at, "grad_output", found, wanted, "pass the gradient of forward's output")
    return grad.contiguous()


def _check_version(at, step, input):
    """Checks that the kept input is as it was."""
    if input._version != step.version:
        found = f"the layer's input changed in place (version {input._version})"
        wanted = f"it as forward got it (version {step.version}), from which its norm is computed"
        refuse(at, "inp_norm", found, wanted, "change a copy, or leave out normalize_invertible")
