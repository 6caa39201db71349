# SPDX-License-Identifier: Apache-2.0
"""A builder class for each op of DeepSpeed 0.7.7 and 0.19.8, with DeepSpeed's names."""

from opdock._errors import IncompatibleError, InvalidArgumentError
from opdock.compat.deepspeed._builder import OpBuilder
from opdock.compat.deepspeed._cuda import CUDAOpBuilder, TorchCPUOpBuilder
from opdock.compat.deepspeed._environment import wants_build_ahead
from opdock.compat.deepspeed._served import ServedOp

# Each row: class name, op name, its variable without "DS_BUILD_" (None: the op name in capitals),
# its module without "deepspeed.", base class.
_OPS = (
    ("AsyncIOBuilder", "async_io", "AIO", "ops.aio.async_io_op", CUDAOpBuilder),
    (
        "CCLCommBuilder",
        "deepspeed_ccl_comm",
        "CCL_COMM",
        "ops.comm.deepspeed_ccl_comm_op",
        OpBuilder,
    ),
    ("CPUAdagradBuilder", "cpu_adagrad", None, "ops.adagrad.cpu_adagrad_op", TorchCPUOpBuilder),
    ("CPUAdamBuilder", "cpu_adam", None, "ops.adam.cpu_adam_op", TorchCPUOpBuilder),
    ("CPULionBuilder", "cpu_lion", None, "ops.lion.cpu_lion_op", TorchCPUOpBuilder),
    ("DeepCompileBuilder", "dc", "DEEP_COMPILE", "ops.dc_op", CUDAOpBuilder),
    ("EvoformerAttnBuilder", "evoformer_attn", None, "ops.evoformer_attn_op", CUDAOpBuilder),
    ("FPQuantizerBuilder", "fp_quantizer", None, "ops.fp_quantizer.fp_quantizer_op", CUDAOpBuilder),
    ("FusedAdamBuilder", "fused_adam", None, "ops.adam.fused_adam_op", CUDAOpBuilder),
    ("FusedLambBuilder", "fused_lamb", None, "ops.lamb.fused_lamb_op", CUDAOpBuilder),
    ("FusedLionBuilder", "fused_lion", None, "ops.lion.fused_lion_op", CUDAOpBuilder),
    ("GDSBuilder", "gds", None, "ops.gds.gds_op", CUDAOpBuilder),
    (
        "InferenceBuilder",
        "transformer_inference",
        None,
        "ops.transformer.inference.transformer_inference_op",
        CUDAOpBuilder,
    ),
    (
        "InferenceCoreBuilder",
        "inference_core_ops",
        None,
        "inference.v2.kernelsinference_core_ops",  # DeepSpeed's spelling, without a dot
        CUDAOpBuilder,
    ),
    (
        "InferenceCutlassBuilder",
        "cutlass_ops",
        None,
        "inference.v2.kernels.cutlass_ops.cutlass_ops",
        CUDAOpBuilder,
    ),
    ("PinMemoryBuilder", "pin_memory", None, "ops.pin_memory.pin_memory_op", OpBuilder),
    ("QuantizerBuilder", "quantizer", None, "ops.quantizer.quantizer_op", CUDAOpBuilder),
    (
        "RaggedOpsBuilder",
        "ragged_device_ops",
        None,
        "inference.v2.kernels.ragged_ops.ragged_device_ops",
        CUDAOpBuilder,
    ),
    ("RaggedUtilsBuilder", "ragged_ops", None, "inference.v2.ragged_ops", CUDAOpBuilder),
    ("RandomLTDBuilder", "random_ltd", None, "ops.random_ltd_op", CUDAOpBuilder),
    ("SparseAttnBuilder", "sparse_attn", None, "ops.sparse_attention.sparse_attn_op", OpBuilder),
    (
        "ShareMemCommBuilder",
        "deepspeed_shm_comm",
        "SHM_COMM",
        "ops.comm.deepspeed_shm_comm_op",
        OpBuilder,
    ),
    (
        "SpatialInferenceBuilder",
        "spatial_inference",
        None,
        "ops.spatial.spatial_inference_op",
        CUDAOpBuilder,
    ),
    (
        "StochasticTransformerBuilder",
        "stochastic_transformer",
        None,
        "ops.transformer.stochastic_transformer_op",
        CUDAOpBuilder,
    ),
    ("TransformerBuilder", "transformer", None, "ops.transformer.transformer_op", CUDAOpBuilder),
    ("UtilsBuilder", "utils", None, "ops.utils_op", OpBuilder),
)


def _get_default_quant_dtype():
    """Returns the dtype of codes and scales."""
    import torch  # which this package does not need otherwise

    return torch.uint8


def _get_quant_range(q_bits=None):
    """Returns the largest number of DeepSpeed's codes with so many bits."""
    ranges = {8: 480.0, 6: 28.0, 12: 510.0, 4: 6.0}
    if q_bits not in ranges:
        raise InvalidArgumentError(
            f"get_quant_range(): argument 'q_bits': found {q_bits!r}, wanted 4, 6, 8 or 12"
        )
    return ranges[q_bits]


# Static methods that DeepSpeed's builders have besides the methods of all: op -> {name: method}.
_STATIC = {
    "fp_quantizer": {
        "get_default_quant_dtype": staticmethod(_get_default_quant_dtype),
        "get_quant_range": staticmethod(_get_quant_range),
    }
}


def _make(class_name, name, variable, module, base):
    members = {
        "__doc__": f"DeepSpeed's op {name}.",
        "__module__": "opdock.compat.deepspeed",
        "NAME": name,
        "BUILD_VAR": f"DS_BUILD_{variable or name.upper()}",
        "MODULE": f"deepspeed.{module}",
        **_STATIC.get(name, {}),
    }
    return type(class_name, (ServedOp, base), members)


#: class name -> class
BUILDERS = {row[0]: _make(*row) for row in _OPS}

#: op name -> a builder instance, as in DeepSpeed's ALL_OPS
ALL_OPS = {builder.name: builder for builder in (kind() for kind in BUILDERS.values())}


def wanted_extensions(builders=None):
    """Returns the Extensions of the builders that DS_BUILD_X, or without it DS_BUILD_OPS, asks for.

    builders: default is those of ALL_OPS. Raises IncompatibleError for a requested builder that is
    not compatible, so that an installation cannot succeed without it; DS_BUILD_X=0 leaves it out.
    """
    wanted = []
    for builder in ALL_OPS.values() if builders is None else builders:
        if not wants_build_ahead(builder.BUILD_VAR):
            continue
        if not builder.is_compatible(verbose=True):
            raise IncompatibleError(
                f"Unable to pre-compile {builder.name}: {builder.error_log}; {builder.BUILD_VAR}=0 "
                "leaves it out"
            )
        wanted.append(builder.builder())
    return wanted
