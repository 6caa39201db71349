# SPDX-License-Identifier: Apache-2.0
"""What this plugin's tests share: the definitions of the ops in float64, and how close results must
be. Tensors are on the CPU."""

import math
import os

import torch
from row_cases import random

# Half a unit in the last place of 1, and the smallest normal number.
HALF_ULP = {
    torch.float32: (2.0**-24, 2.0**-126),
    torch.float16: (2.0**-11, 2.0**-14),
    torch.bfloat16: (2.0**-8, 2.0**-126),
}
DTYPES = [*HALF_ULP]
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
SLOPE = 1.13  # of an activation, at most


def activate(name, x):
    """The activation's definition."""
    if name == "relu":
        return x.clamp(min=0)
    if name == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    if name == "gelu_tanh":
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x / (1 + torch.exp(-x)) if name == "silu" else x


def weight(outputs, inputs, dtype, transposed=True, seed=1):
    """Of numbers that keep the sums near 1."""
    shape = (outputs, inputs) if transposed else (inputs, outputs)
    return random(shape, dtype, seed, 1 / math.sqrt(max(1, inputs)))


def matrix(w, transposed):
    """What multiplies x, in float64."""
    return w.double().t() if transposed else w.double()


class Sum:
    """A result in float64 with what it may be wrong by: computed in float32 from terms of that size
    and rounded that often to a dtype before the last time."""

    def __init__(self, value, error):
        self.value, self.error = value, error

    @classmethod
    def of(cls, x, w, bias=None, rounded_to=None, c=None):
        """x w + bias, of float64 matrices, added up in float32. rounded_to: the dtype that x w, or
        x w + c, is rounded to before the bias is added, which may cancel most of it."""
        value, size = x @ w, x.abs() @ w.abs()
        early = 0.0
        if bias is not None:
            if rounded_to is not None:
                before = value.abs() if c is None else value.abs() + c.double().abs()
                early = HALF_ULP[rounded_to][0] * before
            value, size = value + bias.double(), size + bias.double().abs()
        return cls(value, (x.shape[-1] + 16) * 2.0**-24 * size + early)

    def rounded(self, dtype, times=1):
        ulp, least = HALF_ULP[dtype]
        return Sum(self.value, self.error + times * ulp * self.value.abs().clamp(min=least))

    def activated(self, name):
        """With what the activation's own computation may be wrong by, in float32."""
        value = activate(name, self.value)
        own = 0.0 if name in ("none", "relu") else 4e-6 * self.value.abs()
        return Sum(value, SLOPE * self.error + own)

    def plus(self, other):
        value = self.value + other.double()
        return Sum(value, self.error + 2.0**-23 * (self.value.abs() + other.double().abs()))

    def check(self, found, dtype):
        """The result itself is rounded once more."""
        wanted = self.rounded(dtype)
        assert (found.shape, found.dtype) == (self.value.shape, dtype)
        worst = ((found.double() - wanted.value).abs() / wanted.error).max() if found.numel() else 0
        assert worst <= 1.001, f"{worst} times the bound"


def more_roundings(device):
    """How often sums are rounded to the dtype before the last time: a library's results on a GPU,
    which a second kernel may read (docs/gemm.md)."""
    return 0 if device == "cpu" else 1


def early_dtype(device, dtype):
    """What a library on a GPU may round a product to before it adds the bias: where none of its
    kernels for the shape adds one itself, it runs a second one (docs/gemm.md)."""
    return None if device == "cpu" else dtype


def most_ratio(count):
    """How many times another one's error, as roots of the mean squares of `count` results each, may
    be by chance where both are computed in float32: each root has a standard deviation of
    1 / sqrt(2 count), and this is four of both together, at least 5%. The host's own loop, which
    adds a row's terms one after the other, has 4."""
    return 4 if "OPDOCK_GEMM" in os.environ else max(1.05, 1 + 4 / math.sqrt(count))


def product_wanted(device, x, w, bias=None, residual=None, activation="none"):
    """What a library gives; w: the matrix in float64."""
    # Without an activation the library adds the residual too, and before the bias.
    c = residual if activation == "none" else None
    total = Sum.of(x.double(), w, bias, early_dtype(device, x.dtype), c)
    total = total.rounded(x.dtype, more_roundings(device)).activated(activation)
    return total if residual is None else total.plus(residual)
