# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module transformer_inference, on Opdock's plugins.

    module = InferenceBuilder().load()
    module.allocate_workspace_fp16(768, 12, 128, 1, 12)
    out, keys, values = module.softmax_context_fp16(qkv, mask, ...)

It has all functions of DeepSpeed 0.7.7 and 0.19.8; the end of a name says the dtype (fp32, fp16,
bf16). Where the two versions pass different arguments, their number, or the rule in the function's
docstring, tells which version calls. All tensors of a call are on one device and have the dtype
that the name says. The work runs on the current stream, or on the CPU. Any thread may call the
functions. docs/reference/deepspeed.md lists the differences from DeepSpeed. Errors are
opdock.InvalidArgumentError and opdock.ArgumentError.
"""

import torch

from opdock.compat.deepspeed.inference import (
    attention,
    elementwise,
    gemms,
    int8,
    mlps,
    norms,
    padding,
    rotary,
    softmax,
    workspace,
)
from opdock.compat.deepspeed.inference._arguments import named
from opdock.compat.deepspeed.inference._checks import DTYPES, Caller

#: functions with one variant for each dtype: softmax_fp32, softmax_fp16, softmax_bf16, …
_FOR_EACH_DTYPE = {
    "add_padding": padding.add_padding,
    "allocate_workspace": workspace.allocate_workspace,
    "bias_add": elementwise.bias_add,
    "bias_gelu": elementwise.bias_gelu,
    "bias_relu": elementwise.bias_relu,
    "bias_residual": elementwise.bias_residual,
    "dequantize": int8.dequantize,
    "einsum_sec_sm_ecm": gemms.einsum_sec_sm_ecm,
    "fused_gemm_gelu": mlps.fused_gemm_gelu,
    "layer_norm": norms.layer_norm,
    "linear_layer": gemms.linear_layer,
    "mlp_gemm": mlps.mlp_gemm,
    "pad_transform": padding.pad_transform,
    "qkv_gemm": gemms.qkv_gemm,
    "repeat_kv_cache": workspace.repeat_kv_cache,
    "residual_add_bias": elementwise.residual_add_bias,
    "rms_mlp_gemm": mlps.rms_mlp_gemm,
    "rms_qkv_gemm": gemms.rms_qkv_gemm,
    "softmax": softmax.softmax,
    "softmax_context": attention.softmax_context,
    "vector_matmul": gemms.vector_matmul,
}
#: functions that take the dtype of their first tensor
_FOR_ANY_DTYPE = {
    "_layer_norm_residual": norms.layer_norm_residual,
    "_vector_add": elementwise.vector_add,
    "apply_rotary_pos_emb": rotary.apply_rotary_pos_emb,
    "bias_geglu": elementwise.bias_geglu,
    "gated_activation": elementwise.gated_activation,
    "layer_norm": norms.layer_norm,
    "layer_norm_residual_store": norms.layer_norm_residual_store,
    "layer_norm_residual_store_pre_ln_res": norms.layer_norm_residual_store,
    "moe_res_matmul": elementwise.moe_res_matmul,
    "pre_rms_norm": norms.pre_rms_norm,
    "rms_norm": norms.rms_norm,
}
#: functions with int8 weights and float16 tensors
_FOR_INT8 = {
    "fused_gemm_gelu": int8.fused_gemm_gelu_int8,
    "linear_layer": int8.linear_layer_int8,
    "mlp_gemm": int8.mlp_gemm_int8,
    "qkv_gemm": int8.qkv_gemm_int8,
    "softmax_context": attention.softmax_context_int8,
    "vector_matmul": int8.vector_matmul_int8,
}


def _all_functions():
    made = {
        "reset_cache": workspace.reset_cache,
        "release_workspace": workspace.release_workspace,
        "retake_workspace": workspace.retake_workspace,
    }
    for stem, function in _FOR_EACH_DTYPE.items():
        for suffix, dtype in DTYPES.items():
            made[f"{stem}_{suffix}"] = named(function, Caller(f"{stem}_{suffix}", dtype))
    for name, function in _FOR_ANY_DTYPE.items():
        made[name] = named(function, Caller(name, None))
    for stem, function in _FOR_INT8.items():
        made[f"{stem}_int8"] = named(function, Caller(f"{stem}_int8", torch.float16))
    return made


_functions = _all_functions()
globals().update(_functions)
__all__ = sorted(_functions)
