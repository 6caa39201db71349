# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module spatial_inference: biases added to images, by the ops
bias_add and residual_add.

Images are [batch, channels, height, width], tokens [batch, tokens, channels]; float32, float16 or
bfloat16, any number of channels. A sum is rounded once; DeepSpeed's, of float16 only, after each
addition. Results are new tensors whose channels are adjacent. The work runs on the current stream.
"""

import torch

from opdock import ops
from opdock._errors import InvalidArgumentError


def _refuse(function, argument, found, wanted):
    raise InvalidArgumentError(
        f"{function}(): argument {argument!r}: found {found}, wanted {wanted}"
    )


def _rows(function, name, x):
    """Returns a view of the tensor whose last dimension has the channels; a copy if they are not
    adjacent."""
    if x.dim() not in (3, 4):
        found = f"{x.dim()} dimensions"
        _refuse(function, name, found, "3, of tokens, or 4, of images")
    rows = x.permute(0, 2, 3, 1) if x.dim() == 4 else x
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _check(function, activation, others, biases):
    """Refuses tensors of another shape, dtype or device than the activation's."""
    channels = activation.shape[1 if activation.dim() == 4 else -1]
    shapes = {name: (x, activation.shape) for name, x in others.items()}
    shapes |= {name: (x, (channels,)) for name, x in biases.items()}
    for name, (x, wanted) in shapes.items():
        if x.shape != wanted:
            _refuse(function, name, f"shape {tuple(x.shape)}", f"{tuple(wanted)}")
        if (x.dtype, x.device) != (activation.dtype, activation.device):
            found, like = (f"{y.dtype} on {y.device}" for y in (x, activation))
            _refuse(function, name, found, f"the activation's {like}")


def _back(rows, activation):
    """Returns the result's rows with the activation's dimensions."""
    return rows.permute(0, 3, 1, 2) if activation.dim() == 4 else rows


@torch.no_grad()
def nhwc_bias_add(activation, bias):
    """Returns activation + bias. bias: [channels]."""
    rows = _rows("nhwc_bias_add", "activation", activation)
    _check("nhwc_bias_add", activation, {}, {"bias": bias})
    return _back(ops.bias_add(rows, bias), activation)


@torch.no_grad()
def nhwc_bias_add_add(activation, bias, other):
    """Returns activation + bias + other. other: activation's shape."""
    rows = _rows("nhwc_bias_add_add", "activation", activation)
    _check("nhwc_bias_add_add", activation, {"other": other}, {"bias": bias})
    other = _rows("nhwc_bias_add_add", "other", other)
    return _back(ops.residual_add(rows, other, None, bias, form="post_norm"), activation)


@torch.no_grad()
def nhwc_bias_add_bias_add(activation, bias, other, other_bias):
    """Returns (activation + bias) + (other + other_bias). other_bias: [channels]."""
    rows = _rows("nhwc_bias_add_bias_add", "activation", activation)
    biases = {"bias": bias, "other_bias": other_bias}
    _check("nhwc_bias_add_bias_add", activation, {"other": other}, biases)
    other = _rows("nhwc_bias_add_bias_add", "other", other)
    # hidden + attention + (residual + bias), where one bias is the residual of every row
    made = ops.residual_add(rows, other_bias.expand_as(rows), other, bias, form="parallel")
    return _back(made, activation)
