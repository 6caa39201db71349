# SPDX-License-Identifier: Apache-2.0
"""The demo's chapter on DeepSpeed: a transformer layer on the functions that its builder loads.

DeepSpeed itself is not needed: the builder and its functions are Opdock's, with DeepSpeed's names
and arguments (docs/reference/deepspeed.md). The layer has the size of one of GPT-2 small,
random weights and a cache of keys and values.
"""

import subprocess
import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, HEADS, EPS = 768, 12, 1e-5
PROMPT, TOKENS, RUNS = 128, 16, 6
# The largest allowed error, relative to the largest element. In float16 it is four units in the
# last place, for the rounding between the functions.
BARS = {"fp32": 1e-5, "fp16": 4 * 2.0**-10}

LOAD = """\
import time
import torch
start = time.perf_counter()
from opdock.compat.deepspeed import InferenceBuilder
ops = InferenceBuilder().load()
taken = 1e3 * (time.perf_counter() - start)
print(f"InferenceBuilder().load() from opdock.compat.deepspeed: {taken:.0f} ms in a new process")
"""


def random_weights(device, dtype):
    """Returns {name: tensor}; matrices are [out, in], as for torch.nn.Linear and
    transposed_mode."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape, spread):
        return (spread * torch.randn(shape, generator=generator)).to(device, dtype)

    h, weights = HIDDEN, {}
    for name, shape in (
        ("qkv", (3 * h, h)),
        ("out", (h, h)),
        ("inter", (4 * h, h)),
        ("mlp", (h, 4 * h)),
    ):
        weights[name] = random(*shape, spread=shape[1] ** -0.5)
        weights[name + "_b"] = random(shape[0], spread=0.1)
    for name in ("gamma", "gamma2"):
        weights[name] = 1 + random(h, spread=0.1)
    for name in ("beta", "beta2"):
        weights[name] = random(h, spread=0.1)
    return weights


class DeepSpeedLayer:
    """The layer with the calls of DeepSpeed 0.19.8's. Takes x [1, tokens, HIDDEN], which it
    overwrites, and returns the layer's output. Several tokens are a prompt, which starts a new
    sequence; a single token is appended."""

    def __init__(self, weights, ops, suffix):
        def function(name):
            return getattr(ops, f"{name}_{suffix}")

        self.weights = weights
        self.none = torch.empty(1, device=weights["qkv"].device)  # DeepSpeed's stand-in for None
        names = ("qkv_gemm", "softmax_context", "vector_matmul", "mlp_gemm", "residual_add_bias")
        self.qkv_gemm, self.softmax_context, self.vector_matmul, self.mlp_gemm, self.add = map(
            function, names
        )
        # The workspace is for one row, one layer and one device.
        allocate = function("allocate_workspace")
        allocate(HIDDEN, HEADS, PROMPT, 1, 1, 1, False, 0, PROMPT + TOKENS)

    def __call__(self, x):
        w, none = self.weights, self.none
        qkv, _ = self.qkv_gemm(
            *(x, w["qkv"], none, w["qkv_b"], w["gamma"], w["beta"], EPS, True, False, True)
        )
        scale = (HIDDEN // HEADS) ** -0.25  # applied to queries and to keys
        mixed, _, _ = self.softmax_context(
            *(qkv, none, -1, False, False, HEADS, -1, scale, True, False, 256, True, 0, 1, none),
            *(10000.0, x.shape[1] > 1, None, None),
        )
        attention = self.vector_matmul(mixed, w["out"], False, none, False, True)
        mlp, _ = self.mlp_gemm(
            *(attention, x, w["out_b"], w["inter"], w["mlp"], w["inter_b"], w["gamma2"]),
            *(w["beta2"], EPS, True, True, none, none, False, 1, True),
        )
        return self.add(mlp, x, attention, w["out_b"], w["mlp_b"], 1, True, True, True)


class TorchLayer:
    """The same layer in PyTorch; does not change x."""

    def __init__(self, weights):
        self.weights = weights
        shape = (2, 1, HEADS, PROMPT + TOKENS, HIDDEN // HEADS)
        self.cache, self.tokens = weights["qkv"].new_zeros(shape), 0

    def __call__(self, x):
        w, count = self.weights, x.shape[1]
        begin = 0 if count > 1 else self.tokens
        self.tokens = begin + count
        h = F.layer_norm(x, (HIDDEN,), w["gamma"], w["beta"], EPS)
        qkv = F.linear(h, w["qkv"], w["qkv_b"]).view(1, count, 3, HEADS, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        self.cache[0, :, :, begin : self.tokens] = k
        self.cache[1, :, :, begin : self.tokens] = v
        keys, values = self.cache[:, :, :, : self.tokens]
        mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=count > 1)
        x = x + F.linear(mixed.transpose(1, 2).reshape(x.shape), w["out"], w["out_b"])
        h = F.layer_norm(x, (HIDDEN,), w["gamma2"], w["beta2"], EPS)
        inner = F.gelu(F.linear(h, w["inter"], w["inter_b"]), approximate="tanh")
        return x + F.linear(inner, w["mlp"], w["mlp_b"])


def generate(layer, inputs):
    """Runs a prompt and then single tokens; returns (all outputs, concatenated; each call's
    milliseconds)."""
    outputs, times = [], []
    for x in inputs:
        x = x.clone()
        if x.is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        outputs.append(layer(x))
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return torch.cat(outputs, 1), times


def error_of(layer, exact, inputs):
    """Returns the largest error of the layer's outputs, relative to the largest exact output."""
    found = generate(layer, inputs)[0].to(exact)
    return ((found - exact).abs().max() / exact.abs().max()).item()


@torch.inference_mode()
def show(compare):
    """Prints the chapter; returns (the largest error, its bar). compare: makes a text of two lists
    of milliseconds, PyTorch's and Opdock's."""
    if subprocess.run([sys.executable, "-c", LOAD], check=False).returncode:
        sys.exit("the demo's process failed: InferenceBuilder().load()")
    from opdock.compat.deepspeed import InferenceBuilder

    ops = InferenceBuilder().load()
    device, suffix, dtype = "cpu", "fp32", torch.float32
    if torch.cuda.is_available():
        device, suffix, dtype = "cuda", "fp16", torch.float16
    weights = random_weights(device, dtype)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, PROMPT + TOKENS, HIDDEN, generator=generator).to(device, dtype)
    inputs = [x[:, :PROMPT], *x[:, PROMPT:].split(1, 1)]
    in_torch, in_deepspeed = TorchLayer(weights), DeepSpeedLayer(weights, ops, suffix)
    doubles = TorchLayer({name: weight.double() for name, weight in weights.items()})
    exact = doubles(x.double())
    errors = [error_of(layer, exact, inputs) for layer in (in_torch, in_deepspeed)]
    print(
        "A layer by allocate_workspace, qkv_gemm, softmax_context, vector_matmul, mlp_gemm and "
        f"residual_add_bias:\na prompt of {PROMPT} tokens and {TOKENS} after it, {HIDDEN} wide, "
        f"{HEADS} heads, {suffix} on {device}\n\n"
        f"Largest error beside float64, of the largest element: {errors[1]:.1e} "
        f"(PyTorch {errors[0]:.1e}, bar {BARS[suffix]:.0e})\n"
        "Time, medians of runs in turns:"
    )
    prompts, tokens = ([], []), ([], [])
    layers = in_torch, in_deepspeed
    for run in range(1 + RUNS):  # the first run warms up
        for who in (0, 1) if run % 2 else (1, 0):
            first, *others = generate(layers[who], inputs)[1]
            if run > 0:
                prompts[who].append(first)
                tokens[who].extend(others)
    for what, times in ((f"prompt of {PROMPT} tokens", prompts), ("one token", tokens)):
        print(f"  {what}: {compare(*times)}", flush=True)
    ops.release_workspace()
    return errors[1], BARS[suffix]
