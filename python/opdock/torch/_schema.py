# SPDX-License-Identifier: Apache-2.0
"""Writes an op's schema as PyTorch's dispatcher takes it.

It differs from Opdock's own in four ways: parameters are positional, because autocast and vmap do
not take others; ints are SymInts; a Generator is left out, because operators that are compiled
cannot take one, so the op draws from torch's default generator; and a result that is one of the
parameters is left out, because torch.compile wants operators that write in place to return nothing
of what they write.
"""

import json

from opdock._describe import LIST, OPTIONAL, TENSOR
from opdock._errors import UnsupportedError

HAS_DEFAULT, KEYWORD_ONLY, WRITTEN, OPTIONAL_ELEMENTS = 8, 4, 16, 32
GENERATOR = 11

#: torch's types, by opdock.h's value tags.
_TYPES = {1: "bool", 2: "SymInt", 3: "float", 5: "str", 6: "ScalarType", 7: "Device"}
_NAMES = {4: "complex", 9: "Object", 10: "Stream", 11: "Generator"}


def _refuse(name, what):
    raise UnsupportedError(
        f"{name}: found {what}, wanted tensors, numbers, texts, dtypes and devices, which are what "
        f"an operator of torch can take and return; call opdock.ops.{name} instead"
    )


def _type(tag, flags, alias):
    text = f"Tensor({alias}!)" if alias else "Tensor" if tag == TENSOR else _TYPES[tag]
    if flags & LIST:
        text += "?[]" if flags & OPTIONAL_ELEMENTS else "[]"
    return f"{text}?" if flags & OPTIONAL else text


def _constant(value):
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_constant, value))}]"
    return repr(value)


def visible(function):
    """Returns the indices of the parameters that the operator has: all but optional generators."""
    return [i for i, (_, tag, _, _) in enumerate(function._params) if tag != GENERATOR]


def fresh(function):
    """Returns the indices of the results that the operator returns: the new tensors."""
    return [i for i, (param, _, _) in enumerate(function._results) if param < 0]


def schema(name, function):
    """Returns the schema of the operator `name`. Raises UnsupportedError, which says why, if torch
    has no such operators."""
    parameters, defaults, letters = [], False, iter("abcdefghijklmnopqrstuvwxyz")
    for param, tag, flags, default in function._params:
        if tag == GENERATOR and flags & OPTIONAL:
            continue
        if tag != TENSOR and tag not in _TYPES:
            _refuse(name, f"the parameter {param!r} of the type {_NAMES.get(tag, tag)}")
        alias = None
        if flags & WRITTEN and (alias := next(letters, None)) is None:
            _refuse(name, "more than 26 parameters that are written")
        text = f"{_type(tag, flags, alias)} {param}"
        if flags & HAS_DEFAULT:
            text += f"={_constant(default)}"
            defaults = True
        elif defaults and "*" not in parameters:
            parameters.append("*")  # what has no default cannot follow what has one
        parameters.append(text)
    results = []
    for i in fresh(function):
        _, tag, flags = function._results[i]
        if tag != TENSOR:
            _refuse(name, "a result that is no tensor")
        results.append(_type(tag, flags, None))
    inside = ", ".join(results)
    return f"{name}({', '.join(parameters)}) -> " + (inside if len(results) == 1 else f"({inside})")
