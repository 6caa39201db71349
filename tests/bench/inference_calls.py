# SPDX-License-Identifier: Apache-2.0
"""Calls of DeepSpeed's inference functions for inference.py: arguments, and float64 results.

A function of CALLS makes a Call for a Shape, or returns None where there is nothing to call. The
arguments are those of DeepSpeed 0.19.8, in its order, so that both modules get the same. Products
and attention are in inference_products.py."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from inference_bounds import close, norm_of_sum

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
NONE = torch.empty(1)  # how DeepSpeed passes "no mask", "no alibi", "no scale"
EPS = 1e-5
CACHED = 1024  # tokens in the cache before a step's token


class Shape(NamedTuple):
    """Shape of a layer's call. With tokens = 1 it is a step after CACHED tokens, otherwise a
    prompt."""

    batch: int
    tokens: int
    hidden: int
    heads: int

    def __str__(self):
        after = f"{CACHED}+" if self.tokens == 1 else ""
        return f"{self.batch}x{after}{self.tokens}x{self.hidden}"

    @property
    def size(self):
        """Number of elements of a head."""
        return self.hidden // self.heads

    @property
    def keys(self):
        """Number of tokens that the last one sees in attention without a cache of its own."""
        return CACHED if self.tokens == 1 else self.tokens

    @property
    def rows(self):
        return self.batch, self.tokens, self.hidden


class Call(NamedTuple):
    """One call. wanted: computes the results in float64; bounds: from inference_bounds.py, one for
    each result. changed: indices of the arguments that are written. once, before: called with the
    module, once before all calls and before each call; not timed."""

    function: str
    arguments: tuple
    wanted: Callable
    bounds: tuple = (close(),)
    changed: tuple = ()
    once: Callable | None = None
    before: Callable | None = None

    def fresh(self):
        """Returns the arguments, with copies of those that are written."""
        return tuple(a.clone() if i in self.changed else a for i, a in enumerate(self.arguments))


class Numbers:
    """numbers(*shape, scale) returns normally distributed numbers of the dtype on the device, the
    same ones in each run."""

    def __init__(self, suffix, device):
        self.suffix, self.dtype, self.device = suffix, DTYPES[suffix], device
        self.generator = torch.Generator(device).manual_seed(20)

    def __call__(self, *shape, scale=1.0):
        drawn = torch.randn(shape, generator=self.generator, device=self.device)
        return (drawn * scale).to(self.dtype)

    def named(self, stem):
        return f"{stem}_{self.suffix}"

    def rounded(self, x):
        """Rounds float64 values as they are rounded between two kernels."""
        return x.to(self.dtype).double()


def gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def layer_norm(x, gamma, beta):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma.double(), beta.double(), EPS)


def rms_norm(x, gamma):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * gamma.double()


def bias_add(numbers, shape):
    x, bias = numbers(*shape.rows[:2], 4 * shape.hidden), numbers(4 * shape.hidden)
    return Call(
        numbers.named("bias_add"), (x, bias), lambda: [x.double() + bias.double()], changed=(0,)
    )


def bias_gelu(numbers, shape):
    call = bias_add(numbers, shape)
    return call._replace(
        function=numbers.named("bias_gelu"),
        wanted=lambda: [gelu(call.wanted()[0])],
        bounds=(close(activated=lambda: call.wanted()[0]),),
    )


def bias_relu(numbers, shape):
    call = bias_add(numbers, shape)
    return call._replace(
        function=numbers.named("bias_relu"), wanted=lambda: [call.wanted()[0].clamp(min=0)]
    )


def _gated(number, activation, numbers, shape):
    x, bias = numbers(*shape.rows[:2], 8 * shape.hidden), numbers(8 * shape.hidden)

    def halves():
        return (x.double() + bias.double()).chunk(2, -1)

    def wanted():
        hidden, gate = halves()
        return [hidden * activation(gate)]

    bounds = (close(activated=lambda: halves()[0] * halves()[1]),)
    return Call("gated_activation", (x, bias, number), wanted, bounds)


def gated_gelu(numbers, shape):
    return _gated(3, torch.nn.functional.gelu, numbers, shape)


def gated_silu(numbers, shape):
    return _gated(4, torch.nn.functional.silu, numbers, shape)


def bias_residual(numbers, shape):
    x, residual, bias = numbers(*shape.rows), numbers(*shape.rows), numbers(shape.hidden)
    return Call(
        numbers.named("bias_residual"),
        (x, residual, bias),
        lambda: [x.double() + residual.double() + bias.double()],
        changed=(0,),
    )


def residual_add_bias(numbers, shape):
    hidden, residual, attention = (numbers(*shape.rows) for _ in range(3))
    bias, final = numbers(shape.hidden), numbers(shape.hidden)
    added = (hidden, residual, attention, bias, final)
    return Call(
        numbers.named("residual_add_bias"),
        (*added, 1, True, True, True),
        lambda: [sum(t.double() for t in added)],
        bounds=(close(2),),
        changed=(1,),
    )


def vector_add(numbers, shape):
    a, b = numbers(*shape.rows), numbers(*shape.rows)
    return Call("_vector_add", (a, b, 0.5), lambda: [0.5 * a.double() + b.double()], changed=(0,))


def moe_res_matmul(numbers, shape):
    residual, coef, out = numbers(*shape.rows), numbers(2 * shape.hidden), numbers(*shape.rows)

    def wanted():
        first, second = coef.double().chunk(2)
        return [residual.double() * first + out.double() * second]

    return Call("moe_res_matmul", (residual, coef, out), wanted, changed=(2,))


def layer_norm_call(numbers, shape):
    x, gamma, beta = numbers(*shape.rows), numbers(shape.hidden), numbers(shape.hidden)
    arguments = (x, gamma, beta, EPS)
    return Call("layer_norm", arguments, lambda: [layer_norm(x.double(), gamma, beta)], (close(2),))


def _residual_norm(function, both, numbers, shape):
    x, residual = numbers(*shape.rows), numbers(*shape.rows)
    bias, gamma, beta = (numbers(shape.hidden) for _ in range(3))

    def total():
        return x.double() + residual.double() + bias.double()

    def wanted():
        return [layer_norm(total(), gamma, beta), *([total()] if both else [])]

    def share():
        variance = total().var(-1, unbiased=False, keepdim=True)
        return (total() * gamma.double()).abs() * torch.rsqrt(variance + EPS)

    bounds = (norm_of_sum(share), close(2))
    return Call(function, (x, bias, residual, gamma, beta, EPS), wanted, bounds)


def layer_norm_residual(numbers, shape):
    return _residual_norm("_layer_norm_residual", False, numbers, shape)


def layer_norm_residual_store(numbers, shape):
    return _residual_norm("layer_norm_residual_store_pre_ln_res", True, numbers, shape)


def rms_norm_call(numbers, shape):
    x, gamma = numbers(*shape.rows), numbers(shape.hidden)
    return Call("rms_norm", (x, gamma, EPS), lambda: [rms_norm(x.double(), gamma)], (close(2),))


def pre_rms_norm(numbers, shape):
    x, residual, gamma = numbers(*shape.rows), numbers(*shape.rows), numbers(shape.hidden)

    def wanted():
        total = x.double() + residual.double()
        return [rms_norm(total, gamma), total]

    bounds = (norm_of_sum(lambda: wanted()[0].abs()), close())
    return Call("pre_rms_norm", (x, residual, gamma, EPS), wanted, bounds)


def softmax(numbers, shape):
    """Computes softmax of scores over as many keys as there are tokens, or over CACHED in a step;
    with a decoder's mask."""
    x = numbers(shape.batch, shape.heads, shape.tokens, shape.keys)
    mask = numbers(shape.batch, 1, 1, shape.keys)
    causal = shape.tokens > 1

    def wanted():
        scores = x.double() * 0.125 + mask.double()
        if causal:
            later = torch.ones(x.shape[2:], dtype=torch.bool, device=x.device).triu(1)
            scores.masked_fill_(later, -torch.inf)
        return [torch.softmax(scores, -1)]

    options = (NONE, causal, True, False, 1, False, 0.125, 0, 1)
    arguments = (x, mask, *options)
    return Call(numbers.named("softmax"), arguments, wanted, (close(2),), changed=(0,))


def rotary(x, first=0, theta=10000.0):
    """Rotates x, float64 [batch, heads, tokens, size], by halves; the first token is at position
    `first`."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = first + torch.arange(x.shape[2], device=x.device).double()[:, None]
    angle = angle * frequency
    a, b = x.split(half, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def apply_rotary_pos_emb(numbers, shape):
    query, key = numbers(*shape.rows), numbers(*shape.rows)
    first = CACHED if shape.tokens == 1 else 0

    def turned(x):
        by_head = x.double().unflatten(-1, (shape.heads, shape.size)).transpose(1, 2)
        return rotary(by_head, first).transpose(1, 2).flatten(2)

    arguments = (query, key, shape.size, first, shape.heads, True, 10000.0)
    return Call(
        "apply_rotary_pos_emb",
        arguments,
        lambda: [turned(query), turned(key)],
        (close(2),) * 2,
        changed=(0, 1),
    )


# Stable Diffusion attends over a text with heads of 40 elements and 77 keys.
_HEADS, _SIZE, _PADDED, _KEYS = 8, 40, 64, 77


def _padding(numbers, shape, function, by_head, *more):
    counts = (shape.tokens, _KEYS, _KEYS)
    tensors = [numbers(shape.batch, _HEADS, n, _SIZE) for n in counts]

    def wanted():
        lengths = (shape.tokens, 128, 128)
        return [
            torch.nn.functional.pad(t.double(), (0, _PADDED - _SIZE, 0, n - t.shape[2]))
            for t, n in zip(tensors, lengths, strict=True)
        ]

    given = tensors if by_head else [t.transpose(1, 2).flatten(2).contiguous() for t in tensors]
    return Call(numbers.named(function), (*given, *more), wanted, (close(),) * 3)


def add_padding(numbers, shape):
    return _padding(numbers, shape, "add_padding", True)


def pad_transform(numbers, shape):
    return _padding(numbers, shape, "pad_transform", False, _HEADS, True)


CALLS = {
    "bias_add": bias_add,
    "bias_gelu": bias_gelu,
    "bias_relu": bias_relu,
    "gated_activation GELU": gated_gelu,
    "gated_activation SiLU": gated_silu,
    "bias_residual": bias_residual,
    "residual_add_bias": residual_add_bias,
    "_vector_add": vector_add,
    "moe_res_matmul": moe_res_matmul,
    "layer_norm": layer_norm_call,
    "_layer_norm_residual": layer_norm_residual,
    "layer_norm_residual_store_pre_ln_res": layer_norm_residual_store,
    "rms_norm": rms_norm_call,
    "pre_rms_norm": pre_rms_norm,
    "softmax": softmax,
}
#: by their source, these kernels read or write memory that is not theirs, so they are called last
RISKY = {
    "add_padding": add_padding,
    "pad_transform": pad_transform,
    "apply_rotary_pos_emb": apply_rotary_pos_emb,
}
