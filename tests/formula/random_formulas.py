# SPDX-License-Identifier: Apache-2.0
"""Makes random formulas, each with the same computation in torch, and compares the two.

    random_formulas.py [--count N] [--seed FIRST] [--device cpu|cuda] [--gradients] [--only NAME]

A formula has up to 40 operations over up to six tensors of mixed dtypes, shapes and strides, and
special values among them. The reference is computed in float64 (integers exactly) by expressions
over torch that the generator writes beside the text; noisy.py says how far rounding may lead.
Values that change by more than that when intermediates are rounded differently, because a
comparison or a rounding turned out otherwise, are not judged.

The status is 1 if a result is wrong."""

import argparse
import dataclasses
import math
import random
import sys

import torch
from noisy import Noisy
from random_values import Input, make_space

import opdock
from opdock._author.on_device import on

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
# rounding moves the result as well.
UNARY_OPS = [
    (name, f"torch.{name}(a)", "rf")
    for name in [
        "sqrt",
        "rsqrt",
        "reciprocal",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "sigmoid",
    ]
]
UNARY_OPS += [
    ("silu", "N.subnormal(torch.nn.functional.silu(a), a)", "rf"),
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
    ("%", "N.remainder(a, b)", "zn"),
    ("//", "N.floor_divide(a, b)", "zn"),
    ("fmod", "N.fmod(a, b)", "zn"),
    ("**", "torch.pow(a, b)", "rn"),
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
SMOOTH = set(
    [
        "exp",
        "sin",
        "cos",
        "atan",
        "tanh",
        "asinh",
        "erf",
        "erfc",
        "sigmoid",
        "silu",
        "softplus",
        "gelu",
        "gelu_tanh",
        "square",
        "-",
        "neg",
        "+",
        "*",
        "/",
        "add",
        "atan2",
        "hypot",
        "maximum",
        "min",
        "clamp_min",
        "clamp_max",
        "logaddexp",
        "expm1",
        "abs",
        "relu",
    ]
)
REDUCE = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "logsumexp",
    "softmax",
    "log_softmax",
    "var",
    "argmax",
    "argmin",
    "any",
    "all",
]


class Program:
    """A random formula. gradients: only of smooth operations, over float64."""

    def __init__(self, seed, gradients=False):
        self.seed, self.gradients = seed, gradients
        self.random = pick = random.Random(seed)
        self.space = make_space(pick)
        special = not gradients and pick.random() < 0.5
        self.inputs = [
            Input.make(pick, f"x{i}", seed, self.space, gradients, special)
            for i in range(pick.randint(1, 6))
        ]
        self.values, self.uses = {}, {}
        for x in self.inputs:
            rank = len(x.shape)
            columns = self.space[-1] if self.space else 1
            self._add(
                Value(
                    x.name,
                    x.name,
                    x.dtype,
                    2 if rank else 1,
                    per_column=rank > 0,
                    whole=rank > 0 and x.shape[-1] == columns,
                )
            )
        self.scalars = {}
        if pick.random() < 0.3:
            self.scalars["s"] = pick.choice([0.5, -1.25, 3.0, 0.1])
        if pick.random() < 0.2:
            self.scalars["n"] = pick.choice([1, 2, 3, 5])
        for name in self.scalars:
            dtype = "int64" if name == "n" else "float64"
            self.values[name] = Value(name, name, dtype, 0, literal=True)
        for i in range(pick.choice([pick.randint(1, 8), pick.randint(1, 40)])):
            self._statement(f"v{i}")

    def _add(self, value):
        self.values[value.name] = value
        for arg in value.args:
            self.uses[arg] = self.uses.get(arg, 0) + 1
        return value

    def _operand(self, number=False, accept=lambda x: True):
        """Returns an operand; those that nothing uses yet come first."""
        if number and self.random.random() < 0.25:
            scalars = [self.values[name] for name in self.scalars]
            if scalars and self.random.random() < 0.4:
                return self.random.choice(scalars)
            if self.random.random() < 0.5:
                text = str(self.random.choice([1, 2, 3, 7, 20]))
                return Value(text, text, "int64", 0, literal=True)
            text = str(self.random.choice([0.5, 2.0, -1.5, 0.1, 3.0, 1e-3]))
            return Value(
                text, text, "float64", 0, literal=True, binds=UNARY if text[0] == "-" else ATOM
            )
        found = [x for x in self.values.values() if x.level and accept(x)]
        fresh = [x for x in found if not self.uses.get(x.name)]
        if fresh and self.random.random() < 0.6:
            found = fresh
        return self.random.choice(found) if found else None

    def _code(self, value, dtype):
        if value.literal:
            return f"N.convert({self._number(value)}, {dtype!r}, None)"
        return f"N.convert({value.name}, {dtype!r}, {value.dtype!r})"

    def _number(self, value):
        number = self.scalars.get(value.name, value.text)
        kind = "int64" if value.dtype == "int64" else "float64"
        return f"torch.tensor({number}, dtype=torch.{kind})"

    def _apply(self, name, op, expression, kind, args):
        """Adds a statement of an operation of the tables; returns whether it may be."""
        dtype = promoted(args)
        if dtype == "bool" and kind[1] == "n":
            return False
        if not is_float(dtype) and kind[1] == "f":
            dtype = "float32"
        expression, _, also = expression.partition("|")
        if not is_float(dtype):
            # An integer cannot be divided by 0, nor the least one by -1 everywhere.
            if op in ("//", "%", "fmod"):
                return False
            if op in ("floor", "ceil", "trunc", "round"):
                expression = "a"
        names = dict(zip("abc", (self._code(x, dtype) for x in args), strict=False))
        for letter in names:  # assigned, so that noise of a conversion is the same in all places
            expression = (
                f"(lambda {letter}: {expression})({names[letter]})" if not also else expression
            )
        if also:
            setup = ", ".join(names.values())
            letters = ", ".join(names)
            method = "cancelled" if kind[0] == "c" else "round"
            code = f"(lambda {letters}: N.{method}({expression}, {dtype!r}, 8, {also}))({setup})"
        elif is_float(dtype):
            ulps = 4 if op in INFIX and op != "**" else 12
            wrap = {
                "r": f"N.round({expression}, {dtype!r}, {ulps})",
                "s": f"N.same({expression})",
                "z": f"N.zero({expression})",
            }
            code = wrap[kind[0]]
        else:
            code = expression
        self._push(name, op, code, dtype, args)
        return True

    def _push(self, name, op, code, dtype, args, text=None, binds=ATOM, **more):
        if text is None:
            text, binds = self._text(op, args)
        tensors = [x for x in args if not x.literal]
        more.setdefault("per_column", any(x.per_column for x in tensors))
        more.setdefault("whole", any(x.whole for x in tensors))
        level = more.pop("level", max(x.level for x in args) if args else 2)
        used = tuple(x.name for x in args if not x.literal or x.name in self.scalars)
        self._add(Value(name, text, dtype, level, code, used, binds, **more))

    def _text(self, op, args):
        """Returns the text {a} op {b}, in which names are filled in later, and how it binds."""
        if op in INFIX and len(args) == 2:
            return f"{{{args[0].name}:{INFIX[op]}l}} {op} {{{args[1].name}:{INFIX[op]}r}}", INFIX[
                op
            ]
        if op == "-" or op == "~":
            return f"{op}{{{args[0].name}:{UNARY}l}}", UNARY
        names = [f"{{{x.name}:0l}}" for x in args]
        if self.random.random() < 0.2 and not args[0].literal:
            return f"{{{args[0].name}:{ATOM}l}}.{op}({', '.join(names[1:])})", ATOM
        return f"{op}({', '.join(names)})", ATOM

    def _statement(self, name):
        pick = self.random
        for _ in range(50):
            if self._try(name, pick.random()):
                return

    def _try(self, name, chance):
        pick = self.random
        keep = (lambda op: op in SMOOTH) if self.gradients else (lambda op: True)
        if chance < 0.33:
            op, expression, kind = pick.choice([x for x in BINARY_OPS if keep(x[0])])
            a = self._operand(number=True)
            b = self._operand(number=not a.literal)
            return self._apply(name, op, expression, kind, [a, b])
        if chance < 0.58:
            op, expression, kind = pick.choice([x for x in UNARY_OPS if keep(x[0])])
            return self._apply(name, op, expression, kind, [self._operand()])
        if chance < 0.68:
            return self._reduce(name)
        if chance < 0.76:
            return self._three(name)
        if self.gradients:
            return False
        if chance < 0.83:
            a, b = self._operand(), self._operand(number=True)
            if b.text[:1] == "-" and not is_float(a.dtype):
                return False
            dtype = promoted([a, b])
            op, method = pick.choice(COMPARE_OPS)
            text = f"{{{a.name}:4l}} {op} {{{b.name}:4l}}"
            code = f"torch.{method}({self._code(a, dtype)}, {self._code(b, dtype)})"
            self._push(name, op, code, "bool", [a, b], text, 0)
            return True
        if chance < 0.88:
            return self._bits(name)
        if chance < 0.93:
            return self._test(name)
        return self._convert(name)

    def _reduce(self, name):
        a = self._operand(accept=lambda x: x.whole and x.per_column)
        smooth = [
            "sum",
            "mean",
            "prod",
            "amax",
            "amin",
            "logsumexp",
            "softmax",
            "log_softmax",
            "var",
        ]
        op = self.random.choice(smooth if self.gradients else REDUCE)
        if a is None:
            return False
        x, dtype = a.name, a.dtype
        per_row = {"per_column": False, "whole": False, "reduces": True, "level": 2}
        if op in ("softmax", "log_softmax"):
            per_row = {"reduces": True}
        if op in ("any", "all"):
            code, dtype = f"torch.{op}({x} != 0, -1, keepdim=True)", "bool"
        elif op in ("argmax", "argmin"):
            if dtype == "bool":
                return False
            code, dtype = f"torch.{op}({x}, -1, keepdim=True)", "int64"
        elif op in ("amax", "amin"):
            if dtype == "bool":
                return False
            code = f"N.zero(torch.{op}({x}, -1, keepdim=True))"
        elif op in ("sum", "prod"):
            dtype = dtype if is_float(dtype) else "int64"
            code = f"N.{op}(N.convert({x}, {dtype!r}, {a.dtype!r}), {dtype!r})"
        elif not is_float(dtype):
            return False
        elif op == "mean":
            code = f"N.sum({x}, {dtype!r}, mean=True)"
        else:
            code = f"N.{op}({x}, {dtype!r})"
        self._push(name, op, code, dtype, [a], **per_row)
        return True

    def _three(self, name):
        pick = self.random
        op = pick.choice(["where", "fma", "lerp"])
        if op == "where" and not self.gradients:
            c, a, b = self._operand(), self._operand(number=True), self._operand()
            dtype = promoted([a, b])
            parts = f"{self._code(a, dtype)}, {self._code(b, dtype)}"
            code = f"N.same(torch.where({c.name} != 0, {parts}))"
            self._push(name, op, code, dtype, [c, a, b])
            return True
        a, b, c = self._operand(), self._operand(), self._operand(number=True)
        dtype = promoted([a, b, c])
        if (
            op == "where"
            or not is_float(dtype)
            or (dtype == "float64" and not self.gradients and op == "fma")
        ):
            return False
        if op == "lerp":
            # Its parts have types of their own.
            if len({promoted([a, b]), dtype}) > 1:
                return False
            body = f"N.lerp(a, b, c, {dtype!r})"
        else:
            body = f"N.round(a * b + c, {dtype!r})"
        codes = ", ".join(self._code(x, dtype) for x in (a, b, c))
        self._push(name, op, f"(lambda a, b, c: {body})({codes})", dtype, [a, b, c])
        return True

    def _bits(self, name):
        pick = self.random
        a = self._operand(accept=lambda x: not is_float(x.dtype))
        if a is None:
            return False
        if pick.random() < 0.2:
            self._push(name, "~", f"~{a.name}", a.dtype, [a])
            return True
        b = self._operand(accept=lambda x: not is_float(x.dtype))
        dtype = promoted([a, b])
        op = pick.choice(["&", "|", "^", "<<", ">>", "//", "%", "fmod"])
        if op in ("&", "|", "^"):
            code = f"{self._code(a, dtype)} {op} {self._code(b, dtype)}"
            self._push(name, op, code, dtype, [a, b])
            return True
        if dtype == "bool" or b.dtype == "bool":
            return False
        x, y = self._code(a, dtype), self._code(b, dtype)
        if op in ("<<", ">>"):
            method = "left" if op == "<<" else "right"
            code = f"torch.bitwise_{method}_shift({x}, {y})"
            self._push(name, op, code, dtype, [a, b])
            return True
        # Neither 0 nor -1 may divide.
        method = {"//": "floor_divide", "%": "remainder", "fmod": "fmod"}[op]
        low = 5 if dtype == "uint8" or b.dtype == "uint8" else -3
        divisor = f"torch.where({b.name} < 9, {low}, {b.name}).to(torch.{b.dtype})"
        text = f"where({{{b.name}:4l}} < 9, {low}, {{{b.name}:0l}})"
        text = f"fmod({{{a.name}:0l}}, {text})" if op == "fmod" else f"{{{a.name}:6l}} {op} {text}"
        code = f"torch.{method}({x}, ({divisor}).to(torch.{dtype}))"
        self._push(name, op, code, dtype, [a, b, b], text, ATOM if op == "fmod" else 6)
        return True

    def _test(self, name):
        op = self.random.choice(
            [
                "isnan",
                "isinf",
                "isfinite",
                "signbit",
                "logical_not",
                "logical_and",
                "logical_or",
                "logical_xor",
                "row",
                "column",
            ]
        )
        if op in ("row", "column"):
            if not self.space:
                return False
            self._push(
                name,
                op,
                op,
                "int64",
                [],
                f"{op}()",
                ATOM,
                per_column=op == "column",
                whole=op == "column",
            )
            return True
        a = self._operand()
        args = [a, self._operand()] if op in ("logical_and", "logical_or", "logical_xor") else [a]
        self._push(name, op, f"torch.{op}({', '.join(x.name for x in args)})", "bool", args)
        return True

    def _convert(self, name):
        pick = self.random
        a = self._operand()
        dtype = pick.choice(
            ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
        )
        x, text = a.name, f"{{{a.name}:0l}}"
        if is_float(a.dtype) and not is_float(dtype) and dtype != "bool":
            low = 0 if dtype == "uint8" else -100
            x = f"torch.where({x}.isnan(), 0, {x}).clamp({low}, 100)"
            text = f"clamp(where(isnan({text}), 0, {text}), min={low}, max=100)"
        text, binds = f"to({text}, {dtype})", ATOM
        self._push(
            name,
            "to",
            f"N.cast({x}, {dtype!r}, {a.dtype!r})",
            dtype,
            [a, a] if "where" in text else [a],
            text,
            binds,
        )
        return True

    # ---- Questions about the formula.

    def cone(self, names):
        """Returns the names of all values that these need."""
        needed, stack = set(), list(names)
        while stack:
            name = stack.pop()
            if name not in needed:
                needed.add(name)
                stack += self.values[name].args
        return needed

    def leaves(self):
        """Returns the results: the statements that nothing uses."""
        found = [x.name for x in self.values.values() if x.code and not self.uses.get(x.name)]
        found = found[:32]
        return found if self.has_tensors(found) else []

    def has_tensors(self, names):
        """Returns whether these values depend on a tensor, as a formula has to."""
        needed = self.cone(names)
        return any(x.name in needed for x in self.inputs)

    def write(self, results):
        """Returns the formula that gives these values, its schema, and the names of its tensors."""
        needed = self.cone(results)
        uses = {}
        for name in needed:
            for arg in self.values[name].args:
                uses[arg] = uses.get(arg, 0) + 1
        shown, lines, pick = {}, [], random.Random(self.seed)
        for value in self.values.values():
            if value.name not in needed or not value.code:
                continue
            text = _Fill(self.values, shown).fill(value.text)
            if (
                uses.get(value.name) == 1
                and value.name not in results
                and pick.random() < 0.6
                and len(text) < 200
            ):
                shown[value.name] = text, value.binds
            else:
                lines.append(f"{value.name} = {text}")
        lines.append("return " + ", ".join(results))
        tensors = [x for x in self.inputs if x.name in needed]
        parameters = [f"Tensor {x.name}" for x in tensors]
        parameters += [f"{'int' if n == 'n' else 'float'} {n}" for n in self.scalars if n in needed]
        out = ", ".join(["Tensor"] * len(results))
        out = f"({out})" if len(results) > 1 else out
        return "\n".join(lines), f"f({', '.join(parameters)}) -> {out}", tensors

    def shapes(self, results, tensors):
        """Returns the shapes that the results should have, and the space."""
        space = torch.broadcast_shapes(*[x.shape for x in tensors])
        reduces = any(self.values[x].reduces for x in self.cone(results))
        short = [not self.values[x].per_column and reduces and len(space) > 0 for x in results]
        return [space[:-1] if s else space for s in short], space

    def reference(self, results, tensors, noise, data):
        """Computes the results by torch, with a first dimension for the noise."""
        _, space = self.shapes(results, tensors)
        space = tuple(space) or (1,)  # a number counts as a row of one
        rank, env = len(space), {"N": noise, "torch": torch}
        for x in tensors:
            value = data[x.name]
            value = value.double() if value.is_floating_point() else value
            env[x.name] = value.reshape((1,) * (1 + rank - value.ndim) + tuple(value.shape))
        env["row"] = torch.arange(math.prod(space[:-1])).reshape(1, *space[:-1], 1)
        env["column"] = torch.arange(space[-1]).reshape((1,) * rank + (-1,))
        needed = self.cone(results)
        for value in self.values.values():
            if value.name in needed and value.code:
                env[value.name] = eval(value.code, env)
        return [env[name] for name in results]


class _Fill:
    """Puts operands into a text, in parentheses where they are needed."""

    def __init__(self, values, shown):
        self.values, self.shown = values, shown

    def fill(self, text):
        out, at = [], 0
        while (begin := text.find("{", at)) >= 0:
            end = text.index("}", begin)
            name, place = text[begin + 1 : end].rsplit(":", 1)
            out += [text[at:begin], self._operand(name, int(place[:-1]), place[-1])]
            at = end + 1
        return "".join(out) + text[at:]

    def _operand(self, name, level, side):
        literal = name not in self.values
        text, binds = self.shown.get(name, (name, UNARY if name[0] == "-" else ATOM))
        if literal and level == ATOM:
            return f"({text})"
        needs = binds < level or (
            binds == level and level < ATOM and (side == "r") != (level == POWER)
        )
        if level == UNARY and binds >= UNARY:
            needs = False
        if level == POWER and side == "r" and binds >= UNARY:
            needs = False
        return f"({text})" if needs else text


def judge(found, runs, dtype, shape):
    """Returns (wrong, judged): masks over the elements of a result."""
    wanted = runs
    target = (runs.shape[0], *shape)
    if wanted.ndim == len(shape) + 2:  # the same in the whole row
        wanted = wanted[..., 0]
    wanted = wanted.expand(target)
    base = wanted[0]
    if not is_float(dtype):
        judged = (wanted == base).all(0)
        return (found != base) & judged, judged
    torch_type = getattr(torch, dtype)
    nans = wanted.isnan()
    as_is = wanted.isfinite().all(0)
    spread = torch.where(as_is, (wanted - base).abs().amax(0), 0)
    steady = as_is & (spread <= base.abs() * 0.01)
    # torch's functions lose the smallest numbers of float64: log1p(5e-324) is 0.
    least = 2e-323 if torch_type == torch.float64 else 0
    low, high = ((base + sign * (8 * spread + least)) for sign in (-1, 1))
    low, high = (_stored(x, torch_type) for x in (low, high))
    got = found.double()
    infinite = base.isinf() & (wanted == base).all(0)
    right = (
        (steady & (got >= low) & (got <= high))
        | (infinite & (got == base))
        | (nans.all(0) & got.isnan())
    )
    judged = steady | infinite | nans.all(0)
    return judged & ~right, judged


def _stored(x, dtype):
    if dtype == torch.float64:
        return x
    return x.float().to(dtype).double()


@dataclasses.dataclass
class Verdict:
    judged: int = 0
    open: int = 0
    wrong: list = dataclasses.field(default_factory=list)  # of texts


def compute(program, results, device, data):
    text, schema, tensors = program.write(results)
    numbers = [x for name, x in program.scalars.items() if f" {name}" in schema]
    function = opdock.formula(text, schema)
    found = on(device, function)(*[data[x.name] for x in tensors], *numbers)
    return (found if isinstance(found, tuple) else (found,)), tensors


def check(program, device="cpu", results=None):
    """Computes the formula both ways. Returns a Verdict."""
    verdict = Verdict()
    results = results or program.leaves()
    if not results:
        return verdict
    data = {x.name: x.data() for x in program.inputs}
    try:
        found, tensors = compute(program, results, device, data)
    except Exception as error:
        verdict.wrong.append(f"{type(error).__name__}: {error}")
        return verdict
    shapes, _ = program.shapes(results, tensors)
    for runs in (4, 100):  # what seems wrong is looked at with more noise
        verdict = Verdict()
        wanted = program.reference(results, tensors, Noisy(program.seed, runs), data)
        for name, got, want, shape in zip(results, found, wanted, shapes, strict=True):
            dtype = program.values[name].dtype
            if str(got.dtype) != f"torch.{dtype}" or got.shape != shape:
                verdict.wrong.append(
                    f"{name}: found {got.dtype} {list(got.shape)}, wanted {dtype} {list(shape)}"
                )
                continue
            wrong, judged = judge(got, want, dtype, shape)
            verdict.judged += int(judged.sum())
            verdict.open += int((~judged).sum())
            if wrong.any():
                at = tuple(wrong.nonzero()[0].tolist())
                base = (
                    want[0].expand(shape)[at]
                    if want[0].ndim == len(shape)
                    else want[0][..., 0].expand(shape)[at]
                )
                verdict.wrong.append(
                    f"{name}{list(at)}: found {got[at].item()!r}, wanted {base.item()!r} ({dtype})"
                )
        if not verdict.wrong:
            break
    return verdict


def check_gradients(program, device="cpu", results=None):
    """Compares the gradients of a formula with those of torch's autograd. Returns a Verdict."""
    verdict = Verdict()
    results = results or program.leaves()
    results = [x for x in results if is_float(program.values[x].dtype)]
    if not results:
        return verdict
    data = {x.name: x.data().detach().requires_grad_() for x in program.inputs}
    try:
        found, tensors = compute(program, results, device, data)
        shapes, _ = program.shapes(results, tensors)
        weights = torch.Generator().manual_seed(program.seed)
        weights = [torch.randn(s, generator=weights, dtype=torch.float64) for s in shapes]
        own = [data[x.name] for x in tensors]
        got = torch.autograd.grad(found, own, weights, allow_unused=True)
    except Exception as error:
        verdict.wrong.append(f"{type(error).__name__}: {error}")
        return verdict
    for runs in (3, 40):
        verdict = Verdict()
        all_runs = []
        for run in range(runs + 1):
            noise = Noisy(program.seed + run, 0, only_noise=run > 0, gradients=True)
            wanted = program.reference(results, tensors, noise, data)
            wanted = [
                w[0][..., 0].expand(s) if w[0].ndim > len(s) else w[0].expand(s)
                for w, s in zip(wanted, shapes, strict=True)
            ]
            all_runs.append(torch.autograd.grad(wanted, own, weights, allow_unused=True))
        for i, x in enumerate(tensors):
            if got[i] is None or all_runs[0][i] is None:
                continue
            want = torch.stack([run[i] for run in all_runs])
            finite = want.isfinite().all(0)
            spread = (want - want[0]).abs().amax(0)
            steady = finite & (spread <= want[0].abs() * 1e-3 + 1e-9)
            allowed = spread * 16 + want[0].abs() * 1e-12
            allowed += want[0].abs()[finite].max() * 1e-13 if finite.any() else 0
            wrong = steady & ~((got[i] - want[0]).abs() <= allowed)
            verdict.judged += int(steady.sum())
            verdict.open += int((~steady).sum())
            if wrong.any():
                at = tuple(wrong.nonzero()[0].tolist())
                verdict.wrong.append(
                    f"gradient of {x.name}{list(at)}: found {got[i][at].item()!r}, "
                    f"wanted {want[0][at].item()!r}"
                )
        if not verdict.wrong:
            break
    return verdict


def shrink(program, device, how):
    """Returns the results of the smallest part of the formula that is wrong."""
    names = [x.name for x in program.values.values() if x.code]
    for name in sorted(names, key=lambda x: len(program.cone([x]))):
        if program.has_tensors([name]) and how(program, device, [name]).wrong:
            return [name]
    return program.leaves()


def report(program, device, how):
    """Returns what a person needs to know of a wrong formula."""
    results = shrink(program, device, how)
    text, schema, tensors = program.write(results)
    wrong = how(program, device, results).wrong or how(program, device).wrong
    arrays = [f"  {x.name}: {x.describe()}" for x in tensors]
    again = f"random_formulas.py --seed {program.seed} --count 1 --device {device}"
    again += " --gradients" if program.gradients else ""
    return "\n".join(
        [
            f"seed {program.seed}:",
            *wrong,
            schema,
            text,
            *arrays,
            f"  numbers: {program.scalars}",
            f"again: {again} --only {','.join(results)}",
        ]
    )


@dataclasses.dataclass
class Counts:
    formulas: int = 0  # with an element that was judged
    judged: int = 0  # elements
    open: int = 0  # elements that depend on how intermediates are rounded
    wrong: list = dataclasses.field(default_factory=list)  # seeds


def run(seeds, device="cpu", gradients=False, only=None, show=print):
    """Checks the formulas of these seeds, and calls show(text) for each wrong one. Returns
    Counts."""
    how = check_gradients if gradients else check
    counts = Counts()
    for seed in seeds:
        program = Program(seed, gradients)
        verdict = how(program, device, only)
        counts.formulas += verdict.judged > 0
        counts.judged += verdict.judged
        counts.open += verdict.open
        if verdict.wrong:
            counts.wrong.append(seed)
            show(report(program, device, how) + "\n")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--text", action="store_true", help="only print the formulas")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(args.seed, args.seed + args.count)
    if args.text:
        for seed in seeds:
            program = Program(seed, args.gradients)
            print(seed, *program.write(args.only or program.leaves())[:2], sep="\n")
        return 0
    found = run(seeds, args.device, args.gradients, args.only)
    print(
        f"{args.count} formulas, {found.formulas} judged: {found.judged} elements judged, "
        f"{found.open} not; {len(found.wrong)} wrong: {found.wrong[:50]}"
    )
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
