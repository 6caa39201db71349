# SPDX-License-Identifier: Apache-2.0
"""Makes the signature, docstring and types of an op's function from its schema."""

import inspect

# Flags and the tag of a tensor, with opdock.h's values.
OPTIONAL, LIST, _KEYWORD_ONLY, _HAS_DEFAULT, _OPTIONAL_ELEMENTS = 1, 2, 4, 8, 32
TENSOR = 8

_TYPES = {
    1: "bool",
    2: "int",
    3: "float",
    4: "complex",
    5: "str",
    6: "DType",
    7: "Device",
    9: "Object",
    10: "Stream",
    11: "RandomSource",
}


def annotation(tag, flags, array="Array"):
    """Returns the Python type, as text, of a parameter with opdock.h's value tag and flags. array:
    the type to write for a tensor."""
    text = array if tag == TENSOR else _TYPES.get(tag, "Any")
    if flags & LIST:
        element = f"{text} | None" if flags & _OPTIONAL_ELEMENTS else text
        text = f"Sequence[{element}]"
    return f"{text} | None" if flags & OPTIONAL else text


def _several(types):
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"


def returns(function, arrays):
    """Returns the function's return type as text. arrays: as for signature()."""
    names = [parameter[0] for parameter in function._params]
    results = []
    for index, tag, flags in function._results:
        array = arrays.get(names[index] if index >= 0 else None, "Array")
        text = array if tag == TENSOR else _TYPES.get(tag, "Any")
        text = f"list[{text}]" if flags & LIST else text
        results.append(f"{text} | None" if flags & OPTIONAL else text)
    return _several(results) if results else "None"


def fresh(function):
    """Returns how many results `out=` takes; 0 if their number depends on the arguments."""
    found = [flags for index, tag, flags in function._results if index < 0 and tag == TENSOR]
    return 0 if any(found) else len(found)


def signature(function, arrays=None):
    """Returns an inspect.Signature with the schema's names, kinds and defaults, and `out`.

    arrays: {a parameter's name: the type of its arrays, as text}; the key None has the type of new
    results. "Array" stands for a type that is missing.
    """
    arrays = arrays or {}
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
                annotation=annotation(tag, flags, arrays.get(name, "Array")),
            )
        )
    outputs = fresh(function)
    if outputs and not any(parameter.name == "out" for parameter in parameters):
        kind = _several([arrays.get(None, "Array")] * outputs)
        parameters.append(
            inspect.Parameter(
                "out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{kind} | None"
            )
        )
    return inspect.Signature(parameters, return_annotation=returns(function, arrays))


def text_signature(function):
    """Returns the signature without annotations: "(x, *, scale=None, out=None)"."""
    plain = signature(function)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in plain.parameters.values()]
    return str(inspect.Signature(parameters))


def doc(function):
    """Returns the docstring: the call, the plugin's description and the schema."""
    lines = [f"{function.__name__}{text_signature(function)}", "", function._op_doc.strip(), ""]
    if fresh(function):
        lines += ["out: arrays to write the results into, instead of new ones.", ""]
    return "\n".join([*lines, f"Schema: {function.schema}"])
