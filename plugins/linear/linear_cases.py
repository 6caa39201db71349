# SPDX-License-Identifier: Apache-2.0
"""Shared by this plugin's tests: the definitions of the ops in float64, and the bounds of their
errors. Tensors are on the CPU."""

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
SLOPE = 1.13  # upper bound of an activation's slope


def activate(name, x):
    """Computes the activation's definition."""
    if name == "relu":
        return x.clamp(min=0)
    if name == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    if name == "gelu_tanh":
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x / (1 + torch.exp(-x)) if name == "silu" else x


def weight(outputs, inputs, dtype, transposed=True, seed=1):
    """Returns a weight whose numbers keep the sums near 1."""
    shape = (outputs, inputs) if transposed else (inputs, outputs)
    return random(shape, dtype, seed, 1 / math.sqrt(max(1, inputs)))


def matrix(w, transposed):
    """Returns the matrix that multiplies x, in float64."""
    return w.double().t() if transposed else w.double()


class Sum:
    """A result in float64 with its allowed error. It is computed in float32 from terms of that
    size, and may be rounded to a dtype several times before the last time."""

    def __init__(self, value, error):
        self.value, self.error = value, error

    @classmethod
    def of(cls, x, w, bias=None, rounded_to=None, c=None):
        """Returns x w + bias for float64 matrices, added up in float32. rounded_to: the dtype to
        which x w, or x w + c, is rounded before the bias is added, which may cancel most of it."""
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
        """Applies the activation, and allows for the error of computing it in float32."""
        value = activate(name, self.value)
        own = 0.0 if name in ("none", "relu") else 4e-6 * self.value.abs()
        return Sum(value, SLOPE * self.error + own)

    def plus(self, other):
        value = self.value + other.double()
        return Sum(value, self.error + 2.0**-23 * (self.value.abs() + other.double().abs()))

    def check(self, found, dtype):
        """Asserts that the result, which is rounded once more, is within the error."""
        wanted = self.rounded(dtype)
        assert (found.shape, found.dtype) == (self.value.shape, dtype)
        worst = ((found.double() - wanted.value).abs() / wanted.error).max() if found.numel() else 0
        assert worst <= 1.001, f"{worst} times the bound"


def more_roundings(device):
    """Returns how often sums are rounded to the dtype before the last time: a library's results on
    a GPU are, because a second kernel may read them (docs/concepts/gemm.md)."""
    return 0 if device == "cpu" else 1


def early_dtype(device, dtype):
    """Returns the dtype to which a library on a GPU may round a product before it adds the bias: if
    none of its kernels for the shape adds a bias, a second kernel does so
    (docs/concepts/gemm.md)."""
    return None if device == "cpu" else dtype


def most_ratio(count):
    """Returns the largest ratio of two errors that chance allows, where the errors are roots of the
    mean squares of `count` results and both are computed in float32. Each root has a standard
    deviation of 1 / sqrt(2 count); the ratio is four of both together, at least 5%. For the host's
    own loop, which adds a row's terms one after the other, it is 4."""
    return 4 if "OPDOCK_GEMM" in os.environ else max(1.05, 1 + 4 / math.sqrt(count))


def product_wanted(device, x, w, bias=None, residual=None, activation="none"):
    """Returns the expected result of a library; w: the matrix in float64."""
    # Without an activation the library also adds the residual, before the bias.
    c = residual if activation == "none" else None
    total = Sum.of(x.double(), w, bias, early_dtype(device, x.dtype), c)
    total = total.rounded(x.dtype, more_roundings(device)).activated(activation)
    return total if residual is None else total.plus(residual)
