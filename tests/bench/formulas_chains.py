# SPDX-License-Identifier: Apache-2.0
"""The chains of operations that formulas.py times: each as one formula, as plain torch code, and
for the peers that take neither.

A chain's functions take the same arguments in the same order, whatever the arrays are. In float64
the torch code is the expected result."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

EPS = 1e-6
LR, BETA1, BETA2, ADAM_EPS = 1e-3, 0.9, 0.999, 1e-8
BIAS1, BIAS2 = 1 - BETA1**10, 1 - BETA2**10  # Adam's corrections in the tenth step
COEFFICIENTS = [1 / math.factorial(k) for k in range(10, -1, -1)]  # the highest power's first


class Chain(NamedTuple):
    """One chain.

    inputs(make, rows, columns) returns its tensors; make(*shape) returns a tensor of random normal
    numbers, of the dtype and on the device that are timed. arrays(xp, *tensors) is the chain for
    modules like NumPy: xp has exp, sqrt, rint, maximum, minimum, erf, amax(x), sum(x), columns,
    and number(n), which makes constants; amax and sum go along the rows, and keep the dimension.
    numexpr: its expressions in NumExpr's language, or why it cannot have them. in_place: how many
    of the first tensors are overwritten, with the results."""

    name: str
    text: str
    schema: str | None
    inputs: Callable
    torch: Callable
    arrays: Callable
    numexpr: tuple | str
    in_place: int = 0

    def fresh(self, tensors):
        """Returns the tensors, with those copied that a call overwrites."""
        own = [x.clone() for x in tensors[: self.in_place]]
        return (*own, *tensors[self.in_place :])

    def moved(self, tensors, results):
        """Returns how many bytes a call must move: each input read once, each result written
        once."""
        return sum(x.numel() * x.element_size() for x in (*tensors, *results))


def like(count):
    """Returns inputs() of `count` tensors of the whole shape."""
    return lambda make, rows, columns: tuple(make(rows, columns) for _ in range(count))


def halves(make, rows, columns):
    """The halves of each row of one tensor, as in models that compute both by one product."""
    return make(rows, 2 * columns).chunk(2, -1)


def with_rows(count):
    """Returns inputs() of one tensor and of `count` that have the shape of a row."""

    def inputs(make, rows, columns):
        return make(rows, columns), *(make(columns) for _ in range(count))

    return inputs


def heads(make, rows, columns):
    """The halves of heads with 128 elements, and a row of cosines and sines for each token."""
    x = make(rows, columns).unflatten(-1, (-1, 128))
    angles = make(rows, 1, 64)
    return x[..., :64], x[..., 64:], angles.cos(), angles.sin()


def within_two(make, rows, columns):
    """Numbers between -2 and 2, where the polynomial needs no more digits than a float has."""
    return (make(rows, columns).clamp_(-2, 2),)


def moments(make, rows, columns):
    """Parameters, their moments, and gradients. No second moment is near 0."""
    return *(make(rows, columns) for _ in range(2)), *second(make, rows, columns)


def second(make, rows, columns):
    return make(rows, columns).square_().clamp_(0.1, 4), make(rows, columns)


def quantized(make, rows, columns):
    """int8, a float32 scale for each row, and a tensor of the dtype that is timed."""
    x = make(rows, columns)
    q = (make(rows, columns) * 32).clamp_(-127, 127).to(torch.int8)
    return q, make(rows, 1).float(), x


def transposed(make, rows, columns):
    return make(columns, rows).t(), make(rows, columns)


# ---- torch code of more than one line


def torch_polynomial(x):
    y = COEFFICIENTS[0] * x
    for c in COEFFICIENTS[1:-1]:
        y = (y + c) * x
    return y + COEFFICIENTS[-1]


def torch_adam(p, m, v, g):
    m.lerp_(g, 1 - BETA1)
    v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
    p.addcdiv_(m, (v / BIAS2).sqrt_().add_(ADAM_EPS), value=-LR / BIAS1)
    return p, m, v


# ---- the same for modules like NumPy


def silu(xp, x):
    return x / (xp.number(1) + xp.exp(-x))


def array_gelu(xp, x, bias):
    s = x + bias
    return xp.number(0.5) * s * (xp.number(1) + xp.erf(s * xp.number(math.sqrt(0.5))))


def array_clip(xp, x):
    clipped = xp.minimum(xp.maximum(x * xp.number(16), xp.number(-127)), xp.number(127))
    return xp.rint(clipped) * xp.number(1 / 16)


def array_polynomial(xp, x):
    y = xp.number(COEFFICIENTS[0]) * x
    for c in COEFFICIENTS[1:-1]:
        y = (y + xp.number(c)) * x
    return y + xp.number(COEFFICIENTS[-1])


def array_adam(xp, p, m, v, g):
    n = xp.number
    m = n(BETA1) * m + n(1 - BETA1) * g
    v = n(BETA2) * v + n(1 - BETA2) * g * g
    return p - n(LR / BIAS1) * m / (xp.sqrt(v * n(1 / BIAS2)) + n(ADAM_EPS)), m, v


def array_softmax(xp, x):
    e = xp.exp(x - xp.amax(x))
    return e / xp.sum(e)


def array_rms_norm(xp, x, weight):
    mean = xp.sum(x * x) * xp.number(1 / xp.columns)
    return x / xp.sqrt(mean + xp.number(EPS)) * weight


def horner(coefficients):
    """Returns the polynomial of x as an expression of one multiplication and one addition for each
    power."""
    text = f"{coefficients[0]} * x"
    for c in coefficients[1:-1]:
        text = f"({text} + {c}) * x"
    return f"{text} + {coefficients[-1]}"


ADAM = """
first = beta1 * m + (1 - beta1) * g
second = beta2 * v + (1 - beta2) * g * g
return p - lr * (first / bias1) / (sqrt(second / bias2) + eps), first, second
"""
ADAM_SCHEMA = (
    "adam(Tensor(a!) p, Tensor(b!) m, Tensor(c!) v, Tensor g, *, "
    f"float lr={LR}, float beta1={BETA1}, float beta2={BETA2}, float eps={ADAM_EPS}, "
    f"float bias1={BIAS1!r}, float bias2={BIAS2!r}) -> (Tensor(a!), Tensor(b!), Tensor(c!))"
)
NO_ERF = "has no erf"
NO_ROWS = "has no reductions within an expression"

# NumExpr's constants are names, c0, c1, …: a number in the text is a double, and makes the whole
# expression one.
CHAINS = [
    Chain(
        "bias_gelu", "gelu(x + bias)", None, with_rows(1), lambda x, bias: F.gelu(x + bias),
        array_gelu, NO_ERF,
    ),
    Chain(
        "swiglu", "silu(gate) * up", None, halves, lambda gate, up: F.silu(gate) * up,
        lambda xp, gate, up: silu(xp, gate) * up, ("a0 / (c0 + exp(-a0)) * a1", [1]),
    ),
    Chain(
        "silu_mul_residual", "silu(gate) * up + residual", None, like(3),
        lambda gate, up, residual: F.silu(gate) * up + residual,
        lambda xp, gate, up, residual: silu(xp, gate) * up + residual,
        ("a0 / (c0 + exp(-a0)) * a1 + a2", [1]),
    ),
    Chain(
        "rotary", "return a * cosine - b * sine, b * cosine + a * sine",
        "rotary(Tensor a, Tensor b, Tensor cosine, Tensor sine) -> (Tensor, Tensor)", heads,
        lambda a, b, cosine, sine: (a * cosine - b * sine, b * cosine + a * sine),
        lambda xp, a, b, cosine, sine: (a * cosine - b * sine, b * cosine + a * sine),
        ("a0 * a2 - a1 * a3; a1 * a2 + a0 * a3", []),
    ),
    Chain(
        "clip_round", "round(clamp(x * 16, min=-127, max=127)) * 0.0625", None, like(1),
        lambda x: torch.round(torch.clamp(x * 16, -127, 127)) * 0.0625, array_clip,
        ("round(minimum(maximum(a0 * c0, c1), c2)) * c3", [16, -127, 127, 0.0625]),
    ),
    Chain(
        "polynomial", horner(COEFFICIENTS), None, within_two, torch_polynomial, array_polynomial,
        (horner([f"c{i}" for i in range(11)]).replace("x", "a0"), COEFFICIENTS),
    ),
    Chain(
        "adam", ADAM, ADAM_SCHEMA, moments, torch_adam, array_adam,
        (
            "a1 = c0 * a1 + c1 * a3; a2 = c2 * a2 + c3 * a3 * a3; "
            "a0 = a0 - c4 * a1 / (sqrt(a2 * c5) + c6)",
            [BETA1, 1 - BETA1, BETA2, 1 - BETA2, LR / BIAS1, 1 / BIAS2, ADAM_EPS],
        ),
        in_place=3,
    ),
    Chain(
        "mixed_dtypes", "(q * scale + x).to(x.dtype)", None, quantized,
        lambda q, scale, x: (q * scale + x).to(x.dtype),
        lambda xp, q, scale, x: q * scale + x, ("a0 * a1 + a2", []),
    ),
    Chain(
        "broadcast_row", "x * weight + bias", None, with_rows(2),
        lambda x, weight, bias: x * weight + bias,
        lambda xp, x, weight, bias: x * weight + bias, ("a0 * a1 + a2", []),
    ),
    Chain(
        "transpose", "relu(x + y)", None, transposed, lambda x, y: torch.relu(x + y),
        lambda xp, x, y: xp.maximum(x + y, xp.number(0)), ("maximum(a0 + a1, c0)", [0]),
    ),
    Chain(
        "softmax", "softmax(x)", None, like(1), lambda x: torch.softmax(x, -1), array_softmax,
        NO_ROWS,
    ),
    Chain(
        "rms_norm", "x * rsqrt(mean(x * x) + eps) * weight",
        f"rms_norm(Tensor x, Tensor weight, *, float eps={EPS}) -> Tensor", with_rows(1),
        lambda x, weight: F.rms_norm(x, weight.shape, weight, EPS), array_rms_norm, NO_ROWS,
    ),
]  # fmt: skip
BY_NAME = {chain.name: chain for chain in CHAINS}


def tensors_of(chain, shape, dtype, device):
    """Returns a chain's tensors for a shape (rows, columns), the same in each call."""
    generator = torch.Generator(device).manual_seed(1)

    def make(*size):
        x = torch.randn(size, generator=generator, device=device, dtype=torch.float32)
        return x.to(dtype)

    return tuple(chain.inputs(make, *shape))


def many(results):
    """Returns a function's results as a tuple."""
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def expected(chain, tensors):
    """Returns the results in float64, by the torch code."""
    own = [x.double() if x.is_floating_point() else x for x in chain.fresh(tensors)]
    return many(chain.torch(*own))


def problem(results, wanted, dtype, exact):
    """Returns what is wrong with results, or None. exact: they are rounded once, at the end;
    otherwise each operation may round to the dtype, as torch does."""
    if len(results) != len(wanted):
        return f"found {len(results)} results, wanted {len(wanted)}"
    eps = torch.finfo(dtype).eps
    # 2e-5: what sums of a row and a chain's operations lose in float32.
    relative, absolute = (max(eps, 2e-5), 2e-5) if exact else (32 * eps, 32 * eps)
    for number, (found, right) in enumerate(zip(results, wanted, strict=True)):
        if found.shape != right.shape:
            return f"result {number} has the shape {[*found.shape]}, wanted {[*right.shape]}"
        if exact and found.dtype != dtype:
            return f"result {number} has {found.dtype}, wanted {dtype}"
        off = (found.to(right.device).double() - right).abs_()
        bad = ~(off <= relative * right.abs() + absolute)  # a NaN is bad too
        if bad.any():
            worst = off[bad].max().item()
            return f"result {number}: {int(bad.sum())} elements are wrong, by up to {worst:.3g}"
    return None
