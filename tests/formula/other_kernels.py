# SPDX-License-Identifier: Apache-2.0
"""Makes random formulas compute what another kernel would, to test their oracle: a right kernel
with other roundings must not be called wrong, and a faulty one must be."""

import contextlib
import re

from random_program import Program

#: Functions as torch's kernels for GPUs compute them. X: the argument, a text in parentheses.
AS_ON_GPUS = {
    "gelu": "0.5 * X * (1 + erf(X * 0.7071067811865476))",
    "gelu_tanh": "0.5 * X * (1 + tanh(0.7978845608028654 * X * (1 + 0.044715 * (1.0 * X) * X)))",
}

#: Faulty ones, as {what is wrong: (function, what is computed instead)}.
FAULTS = {
    "gelu's constant has four digits": ("gelu", "0.5 * X * (1 + erf(X * 0.7071))"),
    "gelu is 0 too early": ("gelu", "where(abs(gelu(X)) < 2e-6 * abs(1.0 * X), 0.0 * X, gelu(X))"),
    "gelu of float64 cancels as float32's": (
        "gelu",
        "where(abs(gelu(X)) < 2e-7 * abs(1.0 * X), 0.0 * X, gelu(X))",
    ),
    "gelu_tanh's constant has three digits": (
        "gelu_tanh",
        "X * sigmoid(1.5957691216057308 * X * (1 + 0.0447 * (1.0 * X) * X))",
    ),
    "exp is off by 30 units in the last place": ("exp", "exp(X) * 1.000002"),
    "log1p loses the digits of small numbers": ("log1p", "log(1 + X)"),
    "relu drops NaN": ("relu", "where(X > 0, X, 0 * (X > 0))"),
}


def _replaced(text, name, other):
    """Returns the formula with `other` in the place of each call of the function."""
    call = re.search(rf"(?<![\w.]){name}\(", text)
    if call is None:
        return text
    depth, end = 1, call.end()
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    argument = "(" + _replaced(text[call.end() : end - 1], name, other) + ")"
    rest = _replaced(text[end:], name, other)
    return f"{text[: call.start()]}({other.replace('X', argument)}){rest}"


@contextlib.contextmanager
def computing(others):
    """Within it, formulas have other functions, {name: text}; their references stay."""
    write = Program.write

    def written(program, results):
        text, schema, tensors = write(program, results)
        for name, other in others.items():
            text = re.sub(rf"(\w+)\.{name}\(\)", rf"{name}(\1)", text)
            text = _replaced(text, name, other)
        return text, schema, tensors

    Program.write = written
    try:
        yield
    finally:
        Program.write = write


def uses(seed, name):
    """Returns whether the random formula of this seed calls the function."""
    program = Program(seed)
    return re.search(rf"\b{name}\(", program.write(program.leaves())[0]) is not None
