# SPDX-License-Identifier: Apache-2.0
"""The attention of a training layer: by the op attention, or with dropout by its parts.

The op keeps one number for each row of the scores. Its parts keep the probabilities, from which
dropout takes some, as DeepSpeed's kernels do.
"""

from typing import NamedTuple

import torch

from opdock.compat.deepspeed.inference._checks import refuse
from opdock.compat.deepspeed.transformer import _fused, _ops, layers

_MOST_COLUMNS = 256  # of a head, in the op attention


class Attended(NamedTuple):
    """What the attention of a forward pass gives.

    qkv: queries, keys and values, in the order of memory that the backward pass reads.
    soft: the probabilities [batch, heads, sequence, sequence], or of the op attention the
    logarithms of its sums. dropped: the probabilities after dropout; None if they are computed
    again. keep: dropout's mask, or None. context: [batch, sequence, hidden].
    """

    qkv: torch.Tensor
    soft: torch.Tensor
    dropped: torch.Tensor | None
    keep: torch.Tensor | None
    context: torch.Tensor


def mask_over_scores(at, mask, input, heads):
    """Returns a mask that is added to the scores in the form of the ops, of the input's dtype.

    mask: None, or of a shape that is broadcast to [batch, heads, sequence, sequence], or any other
    one with batch times sequence elements, a number for each key.
    """
    if mask is None:
        return None
    if not isinstance(mask, torch.Tensor):
        refuse(at, "input_mask", f"a {type(mask).__name__}", "a torch.Tensor or None", "pass one")
    if mask.get_device() != input.get_device():
        remedy = f"move it by .to({str(input.device)!r})"
        refuse(at, "input_mask", f"a tensor on {mask.device}", f"one on {input.device}", remedy)
    if mask.dtype is not input.dtype:
        if not mask.dtype.is_floating_point:
            remedy = "it is added to the scores: pass 0 for keys that count and -10000 for others"
            refuse(at, "input_mask", mask.dtype, input.dtype, remedy)
        mask = mask.to(input.dtype)
    batch, length = input.shape[:2]
    scores = batch, heads, length, length
    if mask.dim() == 4 and all(
        size in (1, whole) for size, whole in zip(mask.shape, scores, strict=True)
    ):
        return mask
    if mask.numel() != batch * length:
        wanted = f"[{batch}, 1, 1, {length}]"
        remedy = "pass a number for each key of each row"
        refuse(at, "input_mask", f"shape {tuple(mask.shape)}", wanted, remedy)
    return mask.reshape(batch, 1, 1, length)


def by_op(layer, columns):
    """Returns whether the op attention serves a training layer whose heads have so many columns."""
    return layer.attn_dropout == 0 and columns <= _MOST_COLUMNS


def evaluate(layer, qkv, mask):
    """Returns the context [batch, sequence, hidden] without dropout, and keeps nothing."""
    query, key, value = _by_head(layer, qkv)
    batch, length, heads, columns = query.shape
    if columns > _MOST_COLUMNS:
        return forward(layer._replace(attn_dropout=0.0), qkv, mask, True).context
    context = _ops.attention(query, key, value, mask=mask)
    return context.view(batch, length, heads * columns)


def forward(layer, qkv, mask, checkpoint):
    """Returns the Attended of a training layer. qkv: [batch, sequence, 3 * hidden]. checkpoint: the
    probabilities after dropout are computed again in the backward pass."""
    query, key, value = _by_head(layer, qkv)
    batch, length, heads, columns = query.shape
    if by_op(layer, columns):
        context, sums = _ops.attention_forward(query, key, value, mask=mask)
        return Attended(qkv, sums, None, None, context.view(batch, length, heads * columns))
    # The batches of a product have one stride, so the heads of all rows are put one after another.
    moved = qkv.view(batch, length, 3, heads, columns).permute(2, 0, 3, 1, 4)
    moved = _ops.pad_rows(moved, length, columns)
    query, key, value = moved.view(3, batch * heads, length, columns).unbind(0)
    scores = torch.baddbmm(
        qkv.new_empty(()), query, key.transpose(1, 2), beta=0, alpha=columns**-0.5
    ).view(batch, heads, length, length)
    soft = _ops.softmax(scores, mask=mask, out=scores)
    dropped, keep = soft, None
    if layer.attn_dropout:
        dropped, keep = _ops.dropout(
            soft, layer.attn_dropout, generator=layers.generator(layer, qkv.device)
        )
    context = _joined(dropped, value)
    return Attended(moved, soft, None if checkpoint else dropped, keep, context)


def context_again(step, qkv, soft, dropped, keep, mask):
    """Returns the context of forward() once more, from what it has kept."""
    if not step.has_probabilities:
        return evaluate(step.layer, qkv, mask)
    return _joined(_after_dropout(step, soft, dropped, keep), qkv[2].flatten(0, 1))


def backward(step, grad, qkv, soft, dropped, keep, context, mask):
    """Returns the gradient of forward()'s qkv, of the shape [batch * sequence, 3 * hidden].

    grad: that of the context, [batch, sequence, hidden], contiguous; the others: as forward() kept
    them.
    """
    layer = step.layer
    batch, length, hidden = grad.shape
    heads, columns = layer.heads, hidden // layer.heads
    by_head = batch, length, heads, columns
    if not step.has_probabilities:
        query, key, value = _by_head(layer, qkv)
        out = torch.empty_like(qkv)
        _ops.attention_backward(
            grad.view(by_head),
            query,
            key,
            value,
            context.view(by_head),
            soft,
            mask=mask,
            out=_by_head(layer, out),
        )
        return out.view(batch * length, 3 * hidden)
    query, key, value = qkv.flatten(1, 2).unbind(0)
    grad = _ops.pad_rows(grad.view(by_head).transpose(1, 2), length, columns).flatten(0, 1)
    moved = torch.empty_like(qkv)
    grad_query, grad_key, grad_value = moved.flatten(1, 2).unbind(0)
    dropped = _after_dropout(step, soft, dropped, keep).flatten(0, 1)
    torch.bmm(dropped.transpose(1, 2), grad, out=grad_value)
    scores = torch.bmm(grad, value.transpose(1, 2)).view(batch, heads, length, length)
    scores = _fused.softmax_backward(scores, soft, keep, layer.attn_dropout, columns**-0.5)
    scores = scores.flatten(0, 1)
    torch.bmm(scores, key, out=grad_query)
    torch.bmm(scores.transpose(1, 2), query, out=grad_key)
    moved = _ops.pad_rows(moved.permute(1, 3, 0, 2, 4), heads, columns)
    return moved.view(batch * length, 3 * hidden)


def _by_head(layer, qkv):
    """Returns queries, keys and values, [batch, sequence, heads, columns], as views."""
    batch, length, width = qkv.shape
    columns = width // (3 * layer.heads)
    return qkv.view(batch, length, 3, layer.heads, columns).unbind(2)


def _joined(dropped, value):
    """Returns the probabilities times the values, with the heads of a token side by side."""
    batch, heads, length, _ = dropped.shape
    columns = value.shape[2]
    context = torch.bmm(dropped.flatten(0, 1), value).view(batch, heads, length, columns)
    context = _ops.pad_rows(context.transpose(1, 2), heads, columns)
    return context.view(batch, length, heads * columns)


def _after_dropout(step, soft, dropped, keep):
    """Returns the probabilities after dropout, computed again if they were not kept."""
    if dropped is not None:
        return dropped
    return soft if keep is None else _ops.dropout_backward(soft, keep, step.layer.attn_dropout)
