# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's modules transformer and stochastic_transformer, on Opdock's ops and
torch's products of matrices.

    module = TransformerBuilder().load()
    module.create_transformer_layer_fp16(0, 8, 1024, 16, 4096, 0.1, 0.1, 1e-12, 42, True, ...)
    output, *kept = module.forward_fp16(0, x, mask, *weights, True, True, False, False, False)

DeepSpeedTransformerLayer calls them, on the CPU and on GPUs. All tensors of a call are on one
device and have the dtype that the name says, or bfloat16. The work runs on the current stream. Any
thread may call the functions. docs/reference/deepspeed.md lists the differences from DeepSpeed.
Errors are opdock.InvalidArgumentError and opdock.ArgumentError.
"""

from opdock.compat.deepspeed.inference._arguments import named
from opdock.compat.deepspeed.inference._checks import DTYPES, Caller
from opdock.compat.deepspeed.transformer.backward import backward
from opdock.compat.deepspeed.transformer.forward import forward
from opdock.compat.deepspeed.transformer.layers import create_transformer_layer

_STEMS = {
    "create_transformer_layer": create_transformer_layer,
    "forward": forward,
    "backward": backward,
}


def _all_functions():
    return {
        f"{stem}_{suffix}": named(function, Caller(f"{stem}_{suffix}", DTYPES[suffix]))
        for stem, function in _STEMS.items()
        for suffix in ("fp32", "fp16")
    }


_functions = _all_functions()
globals().update(_functions)
__all__ = sorted(_functions)
