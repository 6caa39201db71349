# SPDX-License-Identifier: Apache-2.0
"""Functions with the arguments of torch.nn.functional's, computed by Opdock's ops.

Each function f has takes_f, which has the same arguments and returns whether the ops can compute
that call: nn.py and patch() leave other calls to torch. The predicates read no data, so that
torch.compile evaluates them while it makes a graph.
"""

import torch

_OPS = torch.ops.opdock
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def takes_rows(x):
    """Returns whether the ops over rows take this dtype on this device."""
    if x.dim() == 0:
        return False
    if x.is_cuda:
        return x.dtype in _DTYPES
    return x.is_cpu and (x.dtype in _DTYPES or x.dtype == torch.float64)


def are_alike(x, *others):
    """Returns whether the other tensors have x's dtype; autocast makes it so by itself."""
    for other in others:
        if other is not None and other.dtype != x.dtype:
            return torch.is_autocast_enabled(x.device.type)
    return True


def with_rows(x):
    """Returns x if its last dimension has stride 1, as the ops want it, or a contiguous copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _flat_rows(x, dims):
    """Returns x with its last `dims` dimensions as one."""
    return with_rows(x if dims == 1 else x.flatten(-dims))


def _is_last(dim, x):
    return dim is not None and dim in (-1, x.dim() - 1)


def takes_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """As layer_norm."""
    return (
        takes_rows(input)
        and input.shape[-len(normalized_shape) :] == tuple(normalized_shape)
        and are_alike(input, weight, bias)
        and (weight is not None or bias is None)  # torch's own error or result for a lone bias
        and eps >= 0
    )


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Computes torch.nn.functional.layer_norm."""
    dims = len(normalized_shape)
    if dims != 1:
        weight, bias = (None if w is None else w.flatten() for w in (weight, bias))
    found = _OPS.layer_norm(_flat_rows(input, dims), weight, bias, eps)
    return found if dims == 1 else found.view(input.shape)


def takes_rms_norm(input, normalized_shape, weight=None, eps=None):
    """As rms_norm."""
    return takes_layer_norm(input, normalized_shape, weight, None, 0 if eps is None else eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Computes torch.nn.functional.rms_norm."""
    dims = len(normalized_shape)
    if eps is None:
        eps = default_eps(input.dtype)
    if dims != 1:
        weight = None if weight is None else weight.flatten()
    found = _OPS.rms_norm(_flat_rows(input, dims), weight, eps)
    return found if dims == 1 else found.view(input.shape)


def default_eps(dtype):
    """Returns what torch's rms_norm adds if it is not told: the epsilon of the dtype in which it
    computes."""
    return torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps


def takes_add_norm(a, b, weight, bias):
    """Returns whether the sum of a and b can be normalised by one op."""
    return (
        takes_rows(a)
        and a.shape == b.shape
        and a.dtype == b.dtype
        and (weight is None or weight.dim() == 1)
        and are_alike(a, weight, bias)
    )


def add_layer_norm(a, b, weight, bias, eps):
    """Returns (layer_norm(a + b), a + b)."""
    return _OPS.add_layer_norm(with_rows(a), with_rows(b), weight, bias, eps)


def add_rms_norm(a, b, weight, eps):
    """Returns (rms_norm(a + b), a + b)."""
    return _OPS.add_rms_norm(with_rows(a), with_rows(b), weight, eps)


def takes_silu(input, inplace=False):
    """As silu."""
    return takes_rows(input) and not inplace


def silu(input, inplace=False):
    """Computes torch.nn.functional.silu."""
    return _OPS.silu(with_rows(input))


def takes_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """As softmax."""
    return takes_rows(input) and _is_last(dim, input) and dtype in (None, input.dtype)


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """Computes torch.nn.functional.softmax."""
    return _OPS.softmax(with_rows(input))


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """Computes torch.nn.functional.log_softmax."""
    return _OPS.log_softmax(with_rows(input))


takes_log_softmax = takes_softmax


def takes_gated(gate, up):
    """Returns whether an activation of `gate`, times `up`, can be computed by one op."""
    return takes_rows(gate) and gate.shape == up.shape and are_alike(gate, up)


def silu_mul(gate, up):
    """Returns silu(gate) * up."""
    return _OPS.silu_mul(with_rows(gate), with_rows(up))


def gelu_mul(gate, up, approximate="none"):
    """Returns gelu(gate) * up."""
    return _OPS.gelu_mul(with_rows(gate), with_rows(up), approximate)


def bias_gelu(x, bias, approximate="none"):
    """Returns gelu(x + bias)."""
    return _OPS.bias_gelu(with_rows(x), bias, approximate)


def takes_cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """As cross_entropy. Left to torch: weights of classes, targets that are probabilities, and
    classes in another dimension than the last, which would have to be copied."""
    return (
        takes_rows(input)
        and weight is None
        and size_average is None
        and reduce is None
        and reduction in ("none", "mean", "sum")
        and input.dim() <= 2
        and target.dtype == torch.int64
        and target.shape == input.shape[:-1]
        and 0 <= label_smoothing <= 1
    )


def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """Computes torch.nn.functional.cross_entropy."""
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    losses = _OPS.cross_entropy(with_rows(input), target, ignore_index, label_smoothing, dtype)
    if reduction == "mean":
        losses = losses.sum() / (target != ignore_index).sum()
    elif reduction == "sum":
        losses = losses.sum()
    if torch.is_autocast_enabled(input.device.type):
        return losses  # float32, as torch's loss under autocast
    return losses.to(input.dtype)
