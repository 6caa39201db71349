# SPDX-License-Identifier: Apache-2.0
"""Makes an operator's kernel for torch.autocast: the casts that torch makes for the same op.

torch keeps its lists by device: products get the lower precision everywhere; normalisations,
softmax and losses get float32 on GPUs only. On the CPU torch's norms take a weight of another dtype
and return the input's, and so does torch's rms_norm on GPUs, which is in no list (torch 2.11). Ops
in no list run in the dtypes that they are given. Where torch's own expression would promote
operands of different dtypes, so does the kernel.
"""

import re

import torch

_PRODUCTS = {
    "attention", "attention_dropout", "attention_forward", "attention_varlen", "einsum_sec_sm_ecm",
    "gated_linear", "linear", "mlp", "norm_linear", "norm_mlp",
}  # fmt: skip
#: Arguments that the ops want in float32, whatever dtype the others get: attention's slopes, and
#: the scales of quantised weights, keys and values.
_KEPT = re.compile("slopes|.*_scale")
_FLOAT32 = {
    "add_layer_norm", "add_rms_norm", "bias_add_layer_norm", "cross_entropy",
    "cross_entropy_with_gradient", "layer_norm", "log_softmax", "rms_norm", "softmax",
}  # fmt: skip
_IN_NO_LIST = {"add_rms_norm", "rms_norm"}
_LIKE_INPUT = _FLOAT32 - {"cross_entropy", "cross_entropy_with_gradient"}
_PROMOTED = {
    "bias_add", "bias_gelu", "bias_relu", "geglu", "gelu_mul", "moe_res_matmul", "residual_add",
    "silu_mul", "swiglu", "vector_add",
}  # fmt: skip


def _is_cast(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64


def _target(op, device, values):
    """Returns the dtype that floating arguments are cast to, or None."""
    if op.name in _PRODUCTS:
        return torch.get_autocast_dtype(device)
    if op.name in _FLOAT32 - _IN_NO_LIST and device == "cuda":
        return torch.float32
    if op.name in _PROMOTED or op.name in _LIKE_INPUT:
        dtypes = {x.dtype for x in values if _is_cast(x)}
        return torch.float32 if len(dtypes) > 1 else None
    return None


def kernel_of(op, device):
    """Returns the Autocast kernel for a device type, or None for an op that autocast does not
    change."""
    if op.name not in _PRODUCTS | _FLOAT32 | _PROMOTED or op.formula is not None:
        return None
    key = torch._C.DispatchKey.AutocastCPU if device == "cpu" else torch._C.DispatchKey.AutocastCUDA
    keys = torch._C.DispatchKeySet(key)

    def kernel(*args, **keywords):
        values = op.bind(args, keywords)
        target = _target(op, device, values)
        keeps = op.name in _LIKE_INPUT and (device == "cpu" or op.name in _IN_NO_LIST)
        result = values[0].dtype if keeps else None
        if target is not None:
            for place, (name, x) in enumerate(zip(op.names, values, strict=True)):
                if _is_cast(x) and not _KEPT.fullmatch(name):
                    values[place] = x.to(target)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            found = op.overload(*values)
        return found if target is None or result is None else _converted(found, result)

    return kernel


def _converted(found, dtype):
    if isinstance(found, tuple):
        return tuple(_converted(x, dtype) for x in found)
    return found if found is None else found.to(dtype)
