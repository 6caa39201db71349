# SPDX-License-Identifier: Apache-2.0
"""Makes random formulas, statement by statement, each with the same computation in torch."""

import random

from random_operations import (
    ATOM,
    BINARY_OPS,
    COMPARE_OPS,
    INFIX,
    REDUCE,
    SMOOTH,
    UNARY,
    UNARY_OPS,
    Value,
    is_float,
    promoted,
)
from random_text import Written
from random_values import Input, make_space


class Program(Written):
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
        expression, _, also = expression.replace("DTYPE", repr(dtype)).partition("|")
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
        op = self.random.choice(REDUCE[:9] if self.gradients else REDUCE)
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
            # The parts of this operation have types of their own.
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
