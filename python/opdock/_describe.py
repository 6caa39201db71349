# SPDX-License-Identifier: Apache-2.0
"""What help(), inspect and type checkers see of an op's function."""

import inspect

_OPTIONAL, _LIST, _KEYWORD_ONLY, _HAS_DEFAULT, _OPTIONAL_ELEMENTS = 1, 2, 4, 8, 32

_TYPES = {
    1: "bool",
    2: "int",
    3: "float",
    4: "complex",
    5: "str",
    6: "DType",
    7: "Device",
    8: "Array",
    9: "Any",
    10: "Any",
    11: "int | tuple[int, int]",
}


def annotation(tag, flags):
    """The Python type of a parameter with opdock.h's value tag and flags, as text."""
    text = _TYPES.get(tag, "Any")
    if flags & _LIST:
        element = f"{text} | None" if flags & _OPTIONAL_ELEMENTS else text
        text = f"Sequence[{element}]"
    return f"{text} | None" if flags & _OPTIONAL else text


def returns(function):
    """The type of what the function returns, as text."""
    count = len(function._results)
    if count == 0:
        return "None"
    return "Array" if count == 1 else "tuple[" + ", ".join(["Array"] * count) + "]"


def signature(function):
    """An inspect.Signature with the schema's names, kinds and defaults, and `out`."""
    parameters = []
    for name, tag, flags, default in function._params:
        keyword_only = flags & _KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY
                if keyword_only
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default if flags & _HAS_DEFAULT else inspect.Parameter.empty,
                annotation=annotation(tag, flags),
            )
        )
    fresh = function._results.count(-1)
    if fresh and not any(parameter.name == "out" for parameter in parameters):
        kind = "Array" if fresh == 1 else "tuple[" + ", ".join(["Array"] * fresh) + "]"
        parameters.append(
            inspect.Parameter(
                "out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{kind} | None"
            )
        )
    return inspect.Signature(parameters, return_annotation=returns(function))


def text_signature(function):
    """The signature without annotations: "(x, *, scale=None, out=None)"."""
    plain = signature(function)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in plain.parameters.values()]
    return str(inspect.Signature(parameters))


def doc(function):
    """The docstring: the call, what the plugin says, the schema."""
    lines = [f"{function.__name__}{text_signature(function)}", "", function._op_doc.strip(), ""]
    if function._results.count(-1):
        lines += ["out: arrays to write the results into, instead of new ones.", ""]
    return "\n".join([*lines, f"Schema: {function.schema}"])
