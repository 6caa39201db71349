# SPDX-License-Identifier: Apache-2.0
"""Lists the ops of Opdock's plugins that serve DeepSpeed's ops."""

_ADAM = ("adam_", "adamw_")
_AIO = ("aio_open", "aio_submit_read", "aio_submit_write", "aio_wait_all", "aio_zeros_like")
_EVOFORMER = ("attention_forward", "attention_backward", "attention_added_backward")
_FP = ("fp_dequantize", "fp_quantize", "fp_selective_dequantize")
_LTD = ("token_gather", "token_scatter_", "token_sort")
_INFERENCE = (
    "activation/bias_add",
    "activation/bias_gelu",
    "activation/bias_relu",
    "activation/geglu",
    "activation/swiglu",
    "attention/append_kv",
    "attention/attention",
    "dequantize/dequantize",
    "linear/einsum_sec_sm_ecm",
    "linear/linear",
    "linear/mlp",
    "linear/norm_linear",
    "linear/norm_mlp",
    "norm/add_layer_norm",
    "norm/add_rms_norm",
    "norm/bias_add_layer_norm",
    "norm/layer_norm",
    "norm/rms_norm",
    "pad_rows/pad_rows",
    "residual/moe_res_matmul",
    "residual/residual_add",
    "residual/vector_add",
    "rope/rope",
    "softmax/softmax",
)
_TRANSFORMER = (
    "activation/bias_gelu",
    "activation/bias_gelu_backward",
    "attention/attention",
    "attention/attention_backward",
    "attention/attention_forward",
    "dropout/dropout",
    "dropout/dropout_add",
    "dropout/dropout_backward",
    "linear/linear",
    "norm/layer_norm",
    "norm/layer_norm_backward",
    "pad_rows/pad_rows",
    "softmax/softmax",
    "softmax/softmax_backward",
)

_QUANTIZER = ("quantize_groups", "dequantize_groups", "sum_quantized", "dequantize_unsigned")
_QUANTIZER += ("fake_quantize_",)

_CORE = (
    "linear/linear",
    "norm/add_layer_norm",
    "norm/add_rms_norm",
    "norm/bias_add_layer_norm",
    "norm/layer_norm",
    "norm/rms_norm",
    "ragged/bias_activation",
    "ragged/interleaved_gate",
)
_RAGGED = (
    "ragged/append_blocks",
    "ragged/attention_by_atoms",
    "ragged/build_atoms",
    "ragged/gather_last_tokens",
    "ragged/moe_gather",
    "ragged/moe_scatter",
    "ragged/ragged_embed",
    "ragged/top_k_gating",
)

#: DeepSpeed's name of an op -> the module here with its functions, and the ops that they call
SERVED = {
    "async_io": ("async_io", _AIO),
    "cpu_adagrad": ("cpu_adagrad", ("adagrad_",)),
    "cpu_adam": ("cpu_adam", _ADAM),
    "cpu_lion": ("cpu_lion", ("lion_",)),
    "evoformer_attn": ("evoformer_attn", _EVOFORMER),
    "fp_quantizer": ("fp_quantizer", _FP),
    "fused_adam": ("fused_adam", _ADAM),
    "fused_lamb": ("fused_lamb", ("lamb_",)),
    "fused_lion": ("fused_lion", ("lion_",)),
    "pin_memory": ("pin_memory", ()),
    "sparse_attn": ("sparse_attn", ()),
    "spatial_inference": ("spatial_inference", ("activation/bias_add", "residual/residual_add")),
    "stochastic_transformer": ("transformer", _TRANSFORMER),
    "transformer": ("transformer", _TRANSFORMER),
    "quantizer": ("quantizer", _QUANTIZER),
    "inference_core_ops": ("inference_core_ops", _CORE),
    "ragged_device_ops": ("ragged_device_ops", _RAGGED),
    "ragged_ops": ("ragged_ops", ()),
    "random_ltd": ("random_ltd", _LTD),
    "transformer_inference": ("inference", _INFERENCE),
    "utils": ("utils", ()),
}

#: the ops of DeepSpeed 0.7.7; 0.19.8 has all ops but sparse_attn
OLD = frozenset(
    (
        "async_io",
        "cpu_adagrad",
        "cpu_adam",
        "fused_adam",
        "fused_lamb",
        "quantizer",
        "sparse_attn",
        "spatial_inference",
        "stochastic_transformer",
        "transformer",
        "transformer_inference",
        "utils",
    )
)
GONE = frozenset(("sparse_attn",))

#: a served op that calls no plugin -> what it calls, if that is not PyTorch
WITHOUT_PLUGIN = {"pin_memory": "the C library's mlock"}

#: DeepSpeed's name of an op -> why it stays DeepSpeed's own
LEFT = {
    "cutlass_ops": (
        "its kernels are CUTLASS's, in a library of the package deepspeed-kernels, and only "
        "moe_gemm of its three functions can be called from DeepSpeed's Python"
    ),
    "dc": (
        "DeepCompile is host code around NCCL, without kernels, and changes with every release of "
        "DeepSpeed"
    ),
    "deepspeed_ccl_comm": "collectives on CPUs are the library oneCCL's",
    "deepspeed_shm_comm": (
        "collectives of the processes of one CPU host are host code on shared memory, no kernels"
    ),
    "gds": "it reads files into GPU memory by NVIDIA's library cuFile, and has no kernels",
}


def versions(name):
    """Returns which of DeepSpeed's versions 0.7.7 and 0.19.8 have the op."""
    has = {"0.7.7": name in OLD, "0.19.8": name not in GONE}
    return [version for version, is_there in has.items() if is_there]
