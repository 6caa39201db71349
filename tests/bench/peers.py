# SPDX-License-Identifier: Apache-2.0
"""Other packages' functions for the ops that gpu_ops.py times.

A package is a function that imports it and returns {op: make}. make(x) prepares arguments like x
and returns the function to time, with the bytes that Opdock's op of that name moves. Signatures are
those of liger_kernel 0.8.5, quack-kernels 0.6.5, flashinfer-python 0.7.2 and DeepSpeed's sources.
"""

import os

import torch


def beside(x, count=1, dtype=None):
    """Returns weights for a row of x."""
    make = {"device": x.device, "dtype": dtype or x.dtype}
    weights = [torch.randn(x.shape[-1:], **make) for _ in range(count)]
    return weights[0] if count == 1 else weights


def rotary(x):
    """Returns (q, k, angles) for rope, with tokens as rows: heads of 128 elements, every fifth one
    a key."""
    heads = x.unflatten(-1, (-1, 128))
    keys = max(1, heads.shape[1] // 5)
    inverse = 10000.0 ** (-torch.arange(0, 128, 2, device=x.device) / 128)
    angles = torch.arange(len(x), device=x.device)[:, None] * inverse
    return heads[:, :-keys].contiguous(), heads[:, -keys:].contiguous(), angles


def liger():
    """Liger's gelu is the tanh form, which takes less arithmetic than Opdock's gelu_mul by erf; its
    gradient of the mean cross entropy overwrites the logits."""
    from liger_kernel.transformers import functional as liger

    def gated(function, x):
        up = torch.randn_like(x)
        return lambda: function(x, up)

    def layer_norm(x):
        weight, bias = beside(x, 2)
        return lambda: liger.liger_layer_norm(x, weight, bias, 1e-5)

    def rms_norm(x):
        weight = beside(x)
        return lambda: liger.liger_rms_norm(x, weight, 1e-5)

    def add_rms_norm(x):
        residual, weight = torch.randn_like(x), beside(x)
        return lambda: liger.liger_fused_add_rms_norm(x, residual, weight, 1e-5)

    def cross_entropy(x, gradient):
        logits = x.clone().requires_grad_(gradient)
        target = torch.randint(0, x.shape[-1], x.shape[:1], device=x.device)
        return lambda: liger.liger_cross_entropy(logits, target)

    def rope(x):
        """Works in place. Without positions the table has a row for each token."""
        q, k, angles = rotary(x)
        q, k = (heads[None].transpose(1, 2) for heads in (q, k))
        cos, sin = (torch.cat([t, t], -1)[None].to(x.dtype) for t in (angles.cos(), angles.sin()))
        return lambda: liger.liger_rope(q, k, cos, sin)

    return {
        "rope": rope,
        "rope in_place": rope,
        "softmax": lambda x: lambda: liger.liger_softmax(x),
        "cross_entropy": lambda x: cross_entropy(x, False),
        "cross_entropy_with_gradient": lambda x: cross_entropy(x, True),
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "add_rms_norm": add_rms_norm,
        "silu_mul": lambda x: gated(liger.liger_swiglu, x),
        "gelu_mul": lambda x: gated(liger.liger_geglu, x),
    }


def quack():
    """Takes two-dimensional tensors; layer_norm's weights are float32."""
    from quack.rmsnorm import layernorm_fwd, rmsnorm
    from quack.softmax import softmax

    def of_rows(x):
        rows = x.view(-1, x.shape[-1])
        return lambda: softmax(rows)

    def layer_norm(x):
        weight, bias = beside(x, 2, torch.float32)
        return lambda: layernorm_fwd(x, weight, bias, 1e-5)

    def rms_norm(x):
        weight = beside(x)
        return lambda: rmsnorm(x, weight, eps=1e-5)

    def add_rms_norm(x):
        residual, weight = torch.randn_like(x), beside(x)
        return lambda: rmsnorm(x, weight, residual=residual, eps=1e-5, prenorm=True)

    return {
        "softmax": of_rows,
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "add_rms_norm": add_rms_norm,
    }


def flashinfer():
    """layer_norm supports only bfloat16; add_rms_norm overwrites both of its arguments."""
    import flashinfer

    def layer_norm(x):
        if x.dtype != torch.bfloat16:
            raise TypeError(f"found {x.dtype}, wanted torch.bfloat16")
        weight, bias = beside(x, 2, torch.float32)
        return lambda: flashinfer.layernorm(x, weight, bias, 1e-5)

    def rms_norm(x):
        weight = beside(x)
        return lambda: flashinfer.rmsnorm(x, weight, 1e-5)

    def add_rms_norm(x):
        own, residual, weight = x.clone(), torch.randn_like(x), beside(x)
        return lambda: flashinfer.fused_add_rmsnorm(own, residual, weight, 1e-5)

    def gated(function, x):
        both = torch.cat([x, x], -1)
        return lambda: function(both)

    def rope(function, neox, x):
        q, k, angles = rotary(x)
        positions, cache = torch.arange(len(x), device=x.device), [angles.cos(), angles.sin()]
        args = (positions, q.flatten(1), k.flatten(1), 128, torch.cat(cache, -1), neox)
        return lambda: function(*args)

    apart = flashinfer.apply_rope_with_cos_sin_cache
    in_place = flashinfer.apply_rope_with_cos_sin_cache_inplace
    return {
        "rope": lambda x: rope(apart, True, x),
        "rope_interleaved": lambda x: rope(apart, False, x),
        "rope in_place": lambda x: rope(in_place, True, x),
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "add_rms_norm": add_rms_norm,
        "silu_mul": lambda x: gated(flashinfer.silu_and_mul, x),
        "gelu_mul": lambda x: gated(flashinfer.gelu_and_mul, x),
    }


def deepspeed():
    """Built on first use, with nvcc. Rows are multiples of 16 bytes."""
    from deepspeed.inference.v2.kernels import core_ops
    from deepspeed.ops.adam import FusedAdam

    def norm(name, weights, results, x):
        kernel = getattr(core_ops, name)(x.shape[-1], x.dtype)
        inputs = [torch.randn_like(x) for _ in range(results)]
        outputs = [torch.empty_like(x) for _ in range(results)]
        sides = [beside(x) for _ in range(weights)]
        return lambda: kernel(*outputs, *inputs, *sides)

    def adamw(x):
        tensors = x if isinstance(x, list) else [x]
        params = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
        for param in params:
            param.grad = torch.randn_like(param)
        return FusedAdam(params, adam_w_mode=True, weight_decay=0.01).step

    def causal(x):
        """Works in place on [batch, heads, queries, keys]; the added mask is all zeros."""
        ends = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
        softmax = getattr(deepspeed_inference(), f"softmax_{ends[x.dtype]}")
        scores, mask = x.clone(), torch.zeros_like(x[:, :1, :1])
        no_alibi = torch.empty(1, device=x.device)
        options = (no_alibi, True, False, False, 1, False, 0.125, 0, 1)
        return lambda: softmax(scores, mask, *options)

    return {
        "softmax causal": causal,
        "layer_norm": lambda x: norm("CUDAFPLN", 2, 1, x),
        "add_layer_norm": lambda x: norm("CUDAFPPreLN", 2, 2, x),
        "rms_norm": lambda x: norm("CUDARMSNorm", 1, 1, x),
        "add_rms_norm": lambda x: norm("CUDARMSPreNorm", 1, 2, x),
        "adamw": adamw,
        "adamw lists": adamw,
    }


def deepspeed_inference():
    """Returns DeepSpeed's own module transformer_inference, and compiles it for this GPU if
    necessary."""
    from deepspeed.ops.op_builder import InferenceBuilder

    os.environ.setdefault("MAX_JOBS", str(os.cpu_count()))
    # Without this variable, code would be compiled for all of DeepSpeed's default architectures.
    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    return InferenceBuilder().load()


PACKAGES = {"Liger": liger, "quack": quack, "FlashInfer": flashinfer, "DeepSpeed": deepspeed}
# Functions that torch.compile would not change (kernels of PyTorch's own, and backward passes by
# themselves), and functions that a bench compiles itself.
NOT_COMPILED = (
    *("adamw", "adamw lists", "adamw masters"),
    *("bias_gelu_nvcc", "dropout", "cross_entropy_with_gradient"),
)


def available():
    """Returns {package: {op: make}} of those that can be imported; prints one line for each other
    one."""
    found = {}
    for name, package in PACKAGES.items():
        try:
            found[name] = package()
        except Exception as error:  # a dependency may also fail, in any way
            print(f"  skipped: {name}: {first_line(error)}")
    return found


def first_line(error):
    """Returns an exception as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


#: torch.compile's modes by their names in the records
MODES = {"torch.compile": None, "torch.compile max": "max-autotune-no-cudagraphs"}


def compiled(op, function, compilers=tuple(MODES)):
    """Returns {name in MODES: PyTorch's function for this op, compiled in that mode}, or {}."""
    if op in NOT_COMPILED or op.endswith("_backward"):
        return {}
    return {name: torch.compile(function, dynamic=False, mode=MODES[name]) for name in compilers}


def makers(packages, op, x):
    """Returns {package: function without arguments that makes the function to time} for an op of
    x."""
    return {name: lambda make=makes[op]: make(x) for name, makes in packages.items() if op in makes}
