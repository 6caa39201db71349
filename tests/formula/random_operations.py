# SPDX-License-Identifier: Apache-2.0
"""The operations of random formulas, and the values that these have."""

import dataclasses

import torch

FLOATS = ("float16", "bfloat16", "float32", "float64")
ATOM, POWER, UNARY = 9, 8, 7


def is_float(dtype):
    return dtype in FLOATS


@dataclasses.dataclass
class Value:
    """A tensor, a number, or the result of a statement."""

    name: str
    text: str
    dtype: str
    level: int  # 0: a number, 1: a tensor without dimensions, 2: another one
    code: str = ""  # empty for what is not computed
    args: tuple = ()
    binds: int = ATOM  # how the text binds, if it stands in the place of its name
    per_column: bool = False  # may differ along the row
    whole: bool = False  # has a number for each column, so that it can be reduced
    reduces: bool = False
    literal: bool = False  # a number of the text, or a scalar

    def sample(self):
        if self.level == 0:
            return {"int64": 1, "float64": 0.5, "bool": True}[self.dtype]
        return torch.empty((1,) * (self.level - 1), dtype=getattr(torch, self.dtype))


def promoted(values):
    """Returns the type that torch gives values, from the left."""
    dtype, level = values[0].dtype, values[0].level
    for value in values[1:]:
        left = Value("", "", dtype, level)
        dtype = str(torch.result_type(left.sample(), value.sample())).removeprefix("torch.")
        level = max(level, value.level)
        if level == 0:  # of two numbers
            dtype = values[0].dtype if values[0].dtype == value.dtype else "float64"
    return dtype


# Operations as (name, expression over torch, kind). In the expression a, b and c are the converted
# operands. The kinds: r rounds, c rounds and may cancel, s does not, z does not but leaves the sign
# of zero open; the second letter is f for floats only, n for numbers. What stands behind | is whose
# rounding moves the result as well. DTYPE is the type in which the operation is computed.
_ROUNDED = """
sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh
tanh asinh acosh atanh erf erfc sigmoid
"""
_MODULES = {"tanh": "N", "sigmoid": "N"}  # others are torch's
UNARY_OPS = [(x, f"{_MODULES.get(x, 'torch')}.{x}(a)", "rf") for x in _ROUNDED.split()]
UNARY_OPS += [
    ("silu", "N.subnormal(torch.nn.functional.silu(a), a, DTYPE)", "rf"),
    ("softplus", "N.softplus(a)", "rf"),
    ("gelu", "torch.nn.functional.gelu(a)|a", "cf"),
    ("gelu_tanh", "torch.nn.functional.gelu(a, approximate='tanh')|a", "cf"),
    ("square", "a * a", "rn"),
    ("-", "-a", "sn"),
    ("neg", "-a", "sn"),
    ("abs", "a.abs()", "sn"),
    ("sign", "a.sign()", "zn"),
    ("relu", "a.relu()", "zn"),
    ("floor", "a.floor()", "zn"),
    ("ceil", "a.ceil()", "zn"),
    ("trunc", "a.trunc()", "zn"),
    ("round", "a.round()", "zn"),
]
BINARY_OPS = [
    ("+", "a + b", "rn"),
    ("-", "a - b", "rn"),
    ("*", "a * b", "rn"),
    ("add", "a + b", "rn"),
    ("+", "a + b", "rn"),
    ("-", "a - b", "rn"),
    ("*", "a * b", "rn"),
    ("/", "a / b", "rf"),
    ("%", "N.remainder(a, b, DTYPE)", "zn"),
    ("//", "N.floor_divide(a, b)", "zn"),
    ("fmod", "N.fmod(a, b)", "zn"),
    ("**", "N.pow(a, b)", "rn"),
    ("atan2", "torch.atan2(a, b)", "rf"),
    ("hypot", "torch.hypot(a, b)", "rf"),
    ("maximum", "torch.maximum(a, b)", "zn"),
    ("min", "torch.minimum(a, b)", "zn"),
    ("clamp_min", "torch.maximum(a, b)", "zn"),
    ("clamp_max", "torch.minimum(a, b)", "zn"),
    ("copysign", "torch.copysign(a, b)", "sf"),
    ("logaddexp", "torch.logaddexp(a, b)|torch.maximum(a.abs(), b.abs())", "rf"),
]
COMPARE_OPS = [("==", "eq"), ("!=", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")]
INFIX = {
    "|": 1,
    "^": 2,
    "&": 3,
    "<<": 4,
    ">>": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "//": 6,
    "%": 6,
    "**": POWER,
}
_SMOOTH = """
exp sin cos atan tanh asinh erf erfc sigmoid silu softplus gelu gelu_tanh square - neg + * / add
atan2 hypot maximum min clamp_min clamp_max logaddexp expm1 abs relu
"""
#: The operations whose gradients are compared.
SMOOTH = set(_SMOOTH.split())
#: The reductions, of which the first nine have gradients.
_REDUCE = "sum mean prod amax amin logsumexp softmax log_softmax var argmax argmin any all"
REDUCE = _REDUCE.split()
