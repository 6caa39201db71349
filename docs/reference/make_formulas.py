#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of operations in docs/reference/formulas.md from core/formula/operations.def.

    docs/reference/make_formulas.py           replaces what stands between the two marks
    docs/reference/make_formulas.py --check   changes nothing; exit status 1 if it would

The rest of the page is written by hand.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "core" / "formula" / "operations.def"
PAGE = ROOT / "docs" / "reference" / "formulas.md"
BEGIN = "<!-- operations: written by make_formulas.py -->"
END = "<!-- end of operations -->"

# The types that each rule of core/formula/graph.h takes and returns.
RULES = {
    "kArithmetic": "numbers → the same type",
    "kRounding": "numbers → the same type",
    "kFloat": "any → floats",
    "kCompare": "any → bool",
    "kLogical": "any → bool",
    "kTest": "any → bool",
    "kBits": "integers, bools → the same type",
    "kShift": "integers → the same type",
    "kSame": "any → the same type",
    "kWhere": "any → the type of b and c",
    "kReduce": "numbers → the same type",
    "kReduceSum": "any → int64, or the float",
    "kReduceFloat": "floats → the same type",
    "kReduceIndex": "numbers → int64",
    "kReduceBool": "any → bool",
}
MEANINGS = {
    "neg": "-a",
    "abs": "the absolute value",
    "sign": "-1, 0 or 1",
    "relu": "a if it is positive, else 0",
    "floor": "rounded down",
    "ceil": "rounded up",
    "trunc": "rounded towards 0",
    "round": "rounded to the nearest integer, halves to the even one",
    "sqrt": "the square root",
    "rsqrt": "1 / sqrt(a)",
    "reciprocal": "1 / a",
    "exp": "e to the power of a",
    "exp2": "2 to the power of a",
    "expm1": "exp(a) - 1, exact near 0",
    "log": "the natural logarithm",
    "log2": "the logarithm of base 2",
    "log10": "the logarithm of base 10",
    "log1p": "log(1 + a), exact near 0",
    "sin": "the sine",
    "cos": "the cosine",
    "tan": "the tangent",
    "asin": "the inverse of sin",
    "acos": "the inverse of cos",
    "atan": "the inverse of tan",
    "sinh": "the hyperbolic sine",
    "cosh": "the hyperbolic cosine",
    "tanh": "the hyperbolic tangent",
    "asinh": "the inverse of sinh",
    "acosh": "the inverse of cosh",
    "atanh": "the inverse of tanh",
    "erf": "the error function",
    "erfc": "1 - erf(a), exact for large a",
    "sigmoid": "1 / (1 + exp(-a))",
    "silu": "a * sigmoid(a)",
    "softplus": "log(1 + exp(a)), a itself above 20",
    "gelu": "a times the normal distribution at a",
    "gelu_tanh": "gelu with the distribution approximated by tanh",
    "isnan": "is a NaN?",
    "isinf": "is a infinite?",
    "isfinite": "is a neither infinite nor NaN?",
    "signbit": "is the sign of a minus? True for -0.0",
    "logical_not": "is a 0?",
    "bitwise_not": "~a: every bit inverted; of a bool, the other one",
    "detach": "a itself, to which no gradient goes back",
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "div": "a / b",
    "floor_divide": "a // b: the quotient rounded down",
    "remainder": "a % b: what a // b leaves; its sign is that of b",
    "fmod": "what the quotient rounded towards 0 leaves; its sign is that of a",
    "pow": "a ** b",
    "atan2": "the angle of the point (b, a)",
    "hypot": "sqrt(a * a + b * b), without overflow",
    "maximum": "the larger one; NaN if one of them is",
    "minimum": "the smaller one; NaN if one of them is",
    "clamp_min": "a, but at least b; NaN if one of them is",
    "clamp_max": "a, but at most b; NaN if one of them is",
    "copysign": "a with the sign of b",
    "logaddexp": "log(exp(a) + exp(b)), without overflow",
    "eq": "a == b",
    "ne": "a != b",
    "lt": "a < b",
    "le": "a <= b",
    "gt": "a > b",
    "ge": "a >= b",
    "logical_and": "are both other than 0?",
    "logical_or": "is one of them other than 0?",
    "logical_xor": "is exactly one of them other than 0?",
    "bitwise_and": "a & b",
    "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b",
    "bitwise_left_shift": "a << b",
    "bitwise_right_shift": "a >> b",
    "where": "b where a is other than 0, else c",
    "fma": "a * b + c, rounded once",
    "sum": "the sum of the row",
    "mean": "the mean of the row",
    "prod": "the product of the row",
    "amax": "the largest number of the row; NaN if one of them is",
    "amin": "the smallest number of the row; NaN if one of them is",
    "logsumexp": "log(sum(exp(a))), without overflow",
    "argmax": "the column of the first largest number, or of the first NaN",
    "argmin": "the column of the first smallest number, or of the first NaN",
    "any": "is a number of the row other than 0?",
    "all": "are all numbers of the row other than 0?",
}
ARGUMENTS = {1: "(a)", 2: "(a, b)", 3: "(a, b, c)"}
WIDEST = 120  # columns of a line of the page


def read_operations():
    """Yields (name, number of arguments, rule, derivatives) in the file's order."""
    source = re.sub(r"(?m)//.*$", "", OPERATIONS.read_text(encoding="utf-8"))
    row = re.compile(
        r'OPDOCK_OPERATION\(\s*\w+,\s*"(\w+)",\s*(\d),\s*(\w+),\s*((?:"[^"]*"\s*)+)\)', re.DOTALL
    )
    found = row.findall(source)
    if len(found) != source.count("OPDOCK_OPERATION("):
        sys.exit(f"{OPERATIONS}: {len(found)} of its rows can be read, wanted all of them")
    for name, arguments, rule, strings in found:
        derivatives = "".join(re.findall(r'"([^"]*)"', strings)).replace("\\n", "\n")
        yield name, int(arguments), rule, derivatives


def gradient(arguments, derivatives):
    """Which arguments have a gradient: "a, c", or "–"."""
    parts = derivatives.split(";")
    return (
        ", ".join(one for one, part in zip("abc"[:arguments], parts, strict=False) if part) or "–"
    )


def cell(text):
    return text.replace("|", "\\|")


def operations():
    """The generated part of the page."""
    rows = list(read_operations())
    names = [name for name, *_ in rows]
    if sorted(names) != sorted(MEANINGS):
        odd = sorted(set(names) ^ set(MEANINGS))
        sys.exit(f"{OPERATIONS} and MEANINGS of {Path(__file__).name} differ in {odd}")
    lines = [BEGIN, "", "| operation | meaning | types | gradients of |", "|---|---|---|---|"]
    for name, arguments, rule, derivatives in rows:
        call = f"`{name}{ARGUMENTS[arguments]}`"
        cells = [call, cell(MEANINGS[name]), RULES[rule], gradient(arguments, derivatives)]
        lines.append("| " + " | ".join(cells) + " |")
        if len(lines[-1]) > WIDEST:
            sys.exit(f"{name}: {len(lines[-1])} columns, wanted at most {WIDEST}")
    lines += [
        "",
        "These are the gradients, as formulas: `g` is the gradient of the result `y`.",
        "",
    ]
    lines.append("```text")
    for name, arguments, _, derivatives in rows:
        for letter, part in zip("abc"[:arguments], derivatives.split(";"), strict=False):
            if not part:
                continue
            *statements, last = part.split("\n")
            start = f"{name}, {letter}: "
            lines += [start + (statements.pop(0) if statements else last)]
            if "\n" in part:
                lines += [" " * len(start) + one for one in [*statements, last]]
    lines += ["```", "", END]
    return "\n".join(lines)


def main():
    page = PAGE.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{PAGE}: the two marks are missing")
    before, rest = page.split(BEGIN)
    wanted = before + operations() + rest.split(END)[1]
    if wanted == page:
        return
    if "--check" in sys.argv[1:]:
        sys.exit(
            f"{PAGE} is older than core/formula/operations.def: run docs/reference/make_formulas.py"
        )
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
