# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module inference_core_ops: what its inference v2 does besides the
batch: activations, norms and products.

All write into tensors that the caller gives, and return None. They run on the current stream, on
GPUs and on the CPU. An output may be the input that DeepSpeed's classes allow. Arguments are passed
by position, as DeepSpeed does. docs/reference/deepspeed.md lists the differences from DeepSpeed.
"""

import torch

from opdock import ops
from opdock._errors import InvalidArgumentError, UnsupportedError
from opdock.compat.deepspeed._gradients import without_gradients

# DeepSpeed's numbers of activations -> the names that the ops have for them.
_ACTIVATIONS = {0: "gelu_tanh", 1: "relu", 2: "silu", 6: "none"}
_GATES = {3: "gelu_tanh", 4: "relu", 5: "silu"}


def _activation(function, number, names):
    """Returns the name of DeepSpeed's activation; raises InvalidArgumentError if it has none."""
    name = names.get(int(number))
    if name is None:
        known = ", ".join(f"{key} ({value})" for key, value in names.items())
        raise InvalidArgumentError(
            f"{function}(): argument 'activation': found {int(number)}, wanted {known}; pass one "
            "of these"
        )
    return name


def _rows(tensor):
    """Returns the tensor, or a copy without gaps if its last dimension has some."""
    return tensor if tensor.dim() == 0 or tensor.stride(-1) == 1 else tensor.contiguous()


def _flat(bias):
    return None if bias is None else bias.reshape(-1)


@without_gradients
def bias_activation(activation, bias, act_type):
    """Applies an activation to activation + bias, in place. bias: [C], or None. act_type: 0 (GELU
    by tanh), 1 (RELU), 2 (SILU) or 6 (IDENTITY)."""
    name = _activation("bias_activation", act_type, _ACTIVATIONS)
    if name != "none" or bias is not None:
        ops.bias_activation(activation, _flat(bias), activation=name, out=activation)


@without_gradients
def gated_activation(output, input, bias, act_type):
    """Writes act(gate) * value to output, [..., C]. input: [..., 2 C], gates in the even columns
    and values in the odd ones. bias: [2 C], or None. act_type: 3 (GEGLU by tanh), 4 (ReGLU) or 5
    (SiGLU)."""
    name = _activation("gated_activation", act_type, _GATES)
    ops.interleaved_gate(_rows(input), _flat(bias), activation=name, out=output)


@without_gradients
def layer_norm(output, input, gamma, beta, epsilon):
    """Writes the layer norm of input to output, which may be input."""
    ops.layer_norm(_rows(input), gamma, beta, eps=float(epsilon), out=output)


@without_gradients
def pre_layer_norm(res_output, norm_output, input, residual, gamma, beta, epsilon):
    """Writes input + residual to res_output, and its layer norm to norm_output. Each output may be
    one of the two inputs."""
    ops.add_layer_norm(
        _rows(input),
        _rows(residual),
        gamma,
        beta,
        eps=float(epsilon),
        out=(norm_output, res_output),
    )


@without_gradients
def post_layer_norm(output, input, residual, gamma, beta, epsilon):
    """Writes the layer norm of input + residual to output, which may be one of them. The sum goes
    to memory that is freed afterwards."""
    out = (output, torch.empty_like(output))
    ops.add_layer_norm(_rows(input), _rows(residual), gamma, beta, eps=float(epsilon), out=out)


@without_gradients
def rms_norm(output, input, gamma, epsilon):
    """Writes the RMS norm of input to output, which may be input."""
    ops.rms_norm(_rows(input), gamma, eps=float(epsilon), out=output)


@without_gradients
def rms_pre_norm(norm_output, res_output, input, residual, gamma, epsilon):
    """Writes input + residual to res_output, and its RMS norm to norm_output. Each output may be
    one of the two inputs."""
    ops.add_rms_norm(
        _rows(input), _rows(residual), gamma, eps=float(epsilon), out=(norm_output, res_output)
    )


@without_gradients
def blas_linear(output, input, weights):
    """Writes input times the transpose of weights to output. input: [..., in]; weights: [out, in],
    by rows or by columns; output: [..., out]."""
    if weights.stride(-1) == 1 or weights.shape[-1] == 1:
        ops.linear(_rows(input), weights, out=output)
    else:
        ops.linear(_rows(input), _rows(weights.t()), transposed=False, out=output)


@without_gradients
def blas_4d_matmul(C, B, A):
    """Writes the product of the matrices A and B to C."""
    torch.matmul(A, B, out=C)


def create_handle():
    """Does nothing: the products need no handle of their own."""


def _no_fp6(name):
    def refuse(*arguments):
        raise UnsupportedError(
            f"{name}(): found a call, but Opdock has no kernel for FP6 weights (quantization mode "
            "wf6af16); load the model without that mode, or leave inference_core_ops to DeepSpeed "
            "with OPDOCK_DEEPSPEED_EXCLUDE=inference_core_ops"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises UnsupportedError: there is no kernel for FP6 weights."
    return refuse


preprocess_weight = _no_fp6("preprocess_weight")
cuda_wf6af16_linear = _no_fp6("cuda_wf6af16_linear")
