# SPDX-License-Identifier: Apache-2.0
"""Steps of the backward pass that are one kernel each on a GPU: formulas, compiled when first used.

On the CPU several ops compute them, as an op's own code is faster there than a formula's, which is
interpreted until a compiler has had its time.
"""

import functools

import opdock
from opdock.compat.deepspeed.transformer import _ops


@functools.cache
def _softmax_gradient():
    return opdock.formula(
        """
        slope = where(keep, grad * factor, 0)
        return scale * result * (slope - sum(slope * result))
        """,
        "dropped_softmax_gradient(Tensor grad, Tensor result, Tensor keep, float factor, "
        "float scale) -> Tensor",
    )


@functools.cache
def _bias_gradient():
    dropped = opdock.formula(
        "where(keep, (x + bias) * factor, 0)",
        "dropped_sum(Tensor x, Tensor bias, Tensor keep, float factor) -> Tensor",
    )
    return dropped.gradient(["x", "bias"])


def on_gpu(tensor):
    """Returns whether the formulas are used for this tensor."""
    return tensor.is_cuda


def _factor(ratio):
    return 1 / (1 - ratio) if ratio < 1 else 0.0


def softmax_backward(grad, result, keep, ratio, scale):
    """Returns the gradient of softmax's x, which was multiplied by `scale`. grad: that of what
    dropout made of the result; it may be overwritten. keep: dropout's mask; None: no dropout."""
    if keep is None:
        return _ops.softmax_backward(grad, result, scale=scale, out=grad)
    if on_gpu(grad):
        return _softmax_gradient()(grad, result, keep, _factor(ratio), scale)
    grad = _ops.dropout_backward(grad, keep, ratio)
    return _ops.softmax_backward(grad, result, scale=scale, out=grad)


def bias_backward(grad, keep, ratio, bias):
    """Returns the gradients of x and of bias, where dropout was given x + bias. grad: that of
    dropout's result, [rows, columns]."""
    if not ratio:
        return grad, grad.sum(0)
    keep = keep.view(grad.shape)
    if on_gpu(grad):
        # Only the shape of x counts.
        return _bias_gradient()(grad, grad, bias, keep, _factor(ratio))
    grad = _ops.dropout_backward(grad, keep, ratio)
    return grad, grad.sum(0)
