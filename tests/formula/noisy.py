# SPDX-License-Identifier: Apache-2.0
"""The mathematics of random formulas in torch, in float64, with noise as large as rounding.

Each value has a first dimension: the one at 0 is computed without noise, and in the others every
rounded intermediate is moved by a few units in the last place of the type in which a formula
computes it. Integers and bools keep their own torch dtypes, so that they wrap as torch's do. The
functions take the name of the type in which the formula computes."""

import math

import numpy
import torch

MOST = {"float32": float(torch.finfo(torch.float32).max), "float64": math.inf}
EPS = {"float32": 2.0**-24, "float64": 2.0**-53}
LEAST = {"float32": 2.0**-149, "float64": 5e-324}  # the smallest subnormal number


def is_rounded(dtype):
    """Returns whether numbers of the type are rounded when they are computed."""
    return dtype.startswith(("float", "bfloat"))


def width(dtype):
    """Returns in which type numbers of a float type are computed."""
    return "float64" if dtype == "float64" else "float32"


class _Use(torch.autograd.Function):
    """A use of a value, whose gradient is rounded: the sum of all uses may cancel."""

    @staticmethod
    def forward(ctx, x, u):
        ctx.save_for_backward(u)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad + grad * ctx.saved_tensors[0], None


class _Saturating(torch.autograd.Function):
    """tanh or sigmoid, whose gradient is computed from the rounded result: 1 - y * y and 1 - y lose
    digits where y is near 1."""

    @staticmethod
    def forward(ctx, x, u, name):
        y = getattr(torch, name)(x)
        ctx.save_for_backward(y, u)
        ctx.name = name
        return y

    @staticmethod
    def backward(ctx, grad):
        y, u = ctx.saved_tensors
        slope = 1 - y * y + u if ctx.name == "tanh" else y * (1 - y + u)
        return grad * slope, None, None


class Noisy:
    """Computes with `runs` perturbed values; only_noise leaves out the one without noise.
    gradients: under torch's autograd, of float64 and ordinary numbers."""

    def __init__(self, seed, runs, only_noise=False, gradients=False):
        self.generator = torch.Generator().manual_seed(seed)
        self.runs, self.only_noise, self.gradients = runs, only_noise, gradients

    def _random(self, x):
        shape = (self.runs + 1, *x.shape[1:])
        u = torch.rand(shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        # In half of the runs all elements have the same noise: equal numbers round equally.
        u[1::2] = u[(slice(1, None, 2), *[slice(1)] * (u.ndim - 1))]
        if not self.only_noise:
            u[0] = 0
        return u

    def _coin(self, x):
        return self._random(x) > 0.5

    def round(self, x, dtype, ulps=4.0, also=None):
        """Returns x as an operation that rounds gives it. also: numbers whose rounding moves x as
        well, such as the parts of a sum."""
        kind = width(dtype)
        u = self._random(x)
        finite = x.isfinite()
        moved = x + x * u * (EPS[kind] * ulps)
        if also is not None:
            also = also.abs() * (EPS[kind] * ulps)
            moved = moved + self._random(x) * torch.where(also.isfinite(), also, 0)
        if self.gradients:
            return torch.where(finite, moved, x)
        tiny = x.abs() < LEAST[kind] * 2.0**30
        moved = torch.where(tiny & (x != 0), moved + self._random(x) * (LEAST[kind] * 2), moved)
        if kind == "float32":
            # With noise, numbers are those of float32, so that they can be equal, 0 and infinite.
            # In a quarter of the runs the number is rounded and not moved, so that it may be exact.
            is_still = self._random(x).abs() < 0.25
            narrow = torch.where(is_still, x.float().double(), moved.float().double())
            # Where the number without noise is below the smallest of float32, it may become 0.
            gone = (x[:1].abs() < LEAST[kind]) & self._coin(narrow)
            narrow = torch.where(gone, narrow * 0, narrow)
            moved = torch.cat([torch.where(narrow[:1].isinf(), narrow[:1], moved[:1]), narrow[1:]])
        return self.same(torch.where(finite, moved, x))

    def same(self, x):
        """Returns x as an operation gives it that does not round: the sign of NaN is open."""
        if self.gradients or not x.is_floating_point():
            return x
        return torch.where(x.isnan() & self._coin(x), -x, x)

    def zero(self, x):
        """The same, where the sign of zero is open too."""
        if self.gradients or not x.is_floating_point():
            return x
        return self.same(torch.where((x == 0) & self._coin(x), -x, x))

    def open(self, x, where):
        """Returns x where nothing is known about the elements of `where`."""
        if self.gradients:
            return x
        u = self._random(x)
        return torch.where(
            where & (u > 0.3), math.nan, torch.where(where & (u < -0.3), -math.inf, x)
        )

    def use(self, x):
        """Returns x as an operand; the gradients of its uses are rounded one by one."""
        if not (self.only_noise and x.requires_grad):
            return x
        u = self._random(x) * (EPS["float64"] * 2)
        return _Use.apply(x.expand(u.shape) if x.shape[1:] == u.shape[1:] else x, u)

    def convert(self, x, dtype, source):
        """Converts x, of the type `source` (None: a number of the text), as promotion does."""
        x = self.use(x)
        if dtype == "bool":
            return x != 0
        if not dtype.startswith(("float", "bfloat")):
            return x.to(getattr(torch, dtype))
        if source is None:
            return x.to(getattr(torch, width(dtype))).double()
        if source.startswith(("float", "bfloat")):
            narrows = source == "float64" and dtype != "float64"
        else:
            narrows = source in ("int32", "int64")
        return self.round(x.double(), dtype, 2) if narrows else x.double()

    def cast(self, x, dtype, source):
        """Converts x as x.to(dtype) does, which rounds."""
        if dtype in ("float16", "bfloat16"):
            x = self.convert(x, "float32", source)
            return self.same(x.float().to(getattr(torch, dtype)).double())
        return self.convert(x, dtype, source)

    # The reductions of rows, whose result is as long as one column.

    def sum(self, x, dtype, mean=False):
        if not x.is_floating_point():
            return x.sum(-1, keepdim=True)
        size = x.abs().sum(-1, keepdim=True)
        n = x.shape[-1] if mean else 1
        found = self.round(x.sum(-1, keepdim=True) / n, dtype, 8, size / n)
        # Whether a part of the sum is infinite depends on the order.
        order = (size > MOST[width(dtype)] * 0.999) & x.isfinite().all(-1, keepdim=True)
        return self.zero(
            self.open(found, order | (size.isinf() & ~x.isinf().any(-1, keepdim=True)))
        )

    def prod(self, x, dtype):
        if not x.is_floating_point():
            return x.prod(-1, keepdim=True)
        found = self.round(x.prod(-1, keepdim=True), dtype, 4.0 + x.shape[-1])
        large = x.abs().clamp(min=1).log2().sum(-1, keepdim=True)
        small = torch.where(x == 0, 0, x.abs().clamp(max=1).log2()).sum(-1, keepdim=True)
        far = 120 if width(dtype) == "float32" else 1000
        return self.open(found, (large > far) | (small < -far))

    def logsumexp(self, x, dtype):
        top = x.amax(-1, keepdim=True)
        return self.round(
            torch.logsumexp(x, -1, keepdim=True), dtype, 8, torch.where(top.isfinite(), top, 0)
        )

    def softmax(self, x, dtype):
        y = self.round(self.use(x) - x.detach().amax(-1, keepdim=True), dtype)
        e = self.round(torch.exp(self.use(y)), dtype)
        return self.round(e / self.sum(e, dtype), dtype)

    def log_softmax(self, x, dtype):
        y = self.round(self.use(x) - x.detach().amax(-1, keepdim=True), dtype)
        total = self.sum(self.round(torch.exp(self.use(y)), dtype), dtype)
        return self.round(self.use(y) - self.round(torch.log(total), dtype), dtype)

    def var(self, x, dtype):
        away = self.round(self.use(x) - self.sum(self.use(x), dtype, mean=True), dtype)
        return self.sum(self.round(self.use(away) * self.use(away), dtype), dtype, mean=True)

    # torch's fmod of float64 is NaN or wrong for large quotients; NumPy's is exact.

    def fmod(self, a, b):
        if not a.is_floating_point():
            return torch.fmod(a, b)
        a, b = torch.broadcast_tensors(a, b)
        with numpy.errstate(all="ignore"):
            return torch.from_numpy(numpy.asarray(numpy.fmod(a.numpy(), b.numpy())))

    def remainder(self, a, b, dtype):
        rest = self.fmod(a, b)
        moved = (rest != 0) & ((b < 0) != (rest < 0))
        total = rest + b
        if is_rounded(dtype) and not self.gradients:
            # The sum is rounded as one addition, so that it may be equal to b.
            rounded = total.to(getattr(torch, width(dtype))).double()
            total = torch.cat([total[:1], rounded.expand(self.runs + 1, *total.shape[1:])[1:]])
        return torch.where(moved, total, rest)

    def pow(self, a, b):
        # torch's -inf ** 0.5 is NaN if 0.5 is a number, and inf if it is a tensor.
        found = torch.pow(a, b)
        return (
            self.open(found, (a == -math.inf) & (b == 0.5)) if found.is_floating_point() else found
        )

    def tanh(self, x):
        return self._saturating(x, "tanh")

    def sigmoid(self, x):
        return self._saturating(x, "sigmoid")

    def _saturating(self, x, name):
        if not (self.gradients and self.only_noise and x.requires_grad):
            return getattr(torch, name)(x)
        u = self._random(x) * (EPS["float64"] * 2)
        return _Saturating.apply(x.expand(u.shape), u, name)

    def floor_divide(self, a, b):
        far = ((a / b).abs() > 2.0**50) & (b != 0)
        return self.open(torch.floor_divide(a, b), far)

    def softplus(self, x):
        if self.gradients:
            return torch.nn.functional.softplus(x)
        # Above 20 it is x, as torch's; below, torch's float64 loses digits.
        return torch.where(~(x <= 20), x, torch.logaddexp(x, torch.zeros_like(x)))

    def cancelled(self, x, dtype, ulps, size):
        """Returns x as half of `size` times a rounded sum gives it: where x is below `size` by as
        much as the type has bits, the sum may be exactly 0, as in torch's own kernels for GPUs. No
        rounding moves a 0 that has cancelled, so that this comes after it."""
        rounded = self.round(x, dtype, ulps, size)
        if self.gradients:
            return rounded
        small = x.abs() < size.abs() * (EPS[width(dtype)] * 4)
        return torch.where(small & self._coin(x), x * 0, rounded)

    def subnormal(self, x, factor, dtype):
        """Returns x as a product of `factor` with a subnormal number gives it."""
        if self.gradients:
            return x
        least = LEAST[width(dtype)] * factor.abs()
        small = (x.abs() < least * 2.0**24) & (factor != 0) & factor.isfinite()
        return torch.where(small, x + self._random(x) * least, x)

    def lerp(self, a, b, w, dtype):
        # A compiler may join the product and the sum, so that the product is not rounded.
        part = w * self.round(b - a, dtype)
        rounded = self.round(part, dtype)
        if not self.gradients:
            rounded = torch.where(self._coin(part), part, rounded)
        return self.round(a + rounded, dtype)
