# SPDX-License-Identifier: Apache-2.0
"""The functions that opdock.fuse() knows, by the names that NumPy, CuPy and torch give them.

They stand in modules by subject. A function is a row of a table there, or has a handler, which is
called with the tracer, the library's function and the arguments.
"""

import inspect

from opdock import _fuse_arrays  # noqa: F401  (it adds its handlers to the table)
from opdock._fuse_calls import HANDLERS, Call
from opdock._fuse_elementwise import FORMS, elementwise
from opdock._fuse_rows import REDUCTIONS, reduction

#: The names that libraries give to the same argument.
_ALIASES = {
    "input": "x", "a": "x", "self": "x", "x1": "x", "condition": "x", "m": "x", "tensor1": "y",
    "x2": "y", "other": "y", "exponent": "y", "end": "y", "tensor2": "z",
    "a_min": "min", "a_max": "max", "axis": "dim", "keepdims": "keepdim", "ddof": "correction",
}  # fmt: skip
#: Python's names of operators, and names that torch's methods have inside.
OPERATORS = {"truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "invert", "pos",
             "getitem", "rsub"}  # fmt: skip


def names():
    """Returns the names of all functions and methods that fuse() knows, sorted."""
    return sorted({*FORMS, *HANDLERS, *REDUCTIONS})


def call(tracer, function, args, kwargs):
    """Returns what a call of a library's function comes to. Refuses what cannot be traced."""
    name = getattr(function, "__name__", None) or type(function).__name__
    name = name.removeprefix("__").removesuffix("__")
    is_in_place = name not in FORMS and name.endswith("_") and name[:-1] in names()
    if is_in_place:
        name = name[:-1]
    known = {_ALIASES.get(key, key): value for key, value in kwargs.items()}
    if known.pop("out", None) is not None:
        tracer.refuse("out= inside of the function", "new values only", "return the result")
    if known.get("where", True) is True:
        known.pop("where", None)
    if known.get("inplace", False) is False:
        known.pop("inplace", None)
    if name == "reduce":  # a ufunc's method
        name = function.__self__.__name__
    if name in FORMS:
        handler, needed = elementwise, (name,)
    elif name in REDUCTIONS:
        handler, needed = reduction, (name,)
    elif name in HANDLERS:
        handler, needed = HANDLERS[name], ()
    else:
        _refuse_unknown(tracer, function, name)
    one = Call(tracer, function, name, args, kwargs)
    try:
        inspect.signature(handler).bind(one, *needed, *args, **known)
    except TypeError as error:
        tracer.refuse(
            f"a call of {_spelled(function, name)} with arguments that fuse does not know "
            f"({error})",
            "those that docs/guide/fuse.md lists",
            "leave them out",
        )
    value = handler(one, *needed, *args, **known)
    return tracer.write(args[0], value) if is_in_place else value


def _spelled(function, name):
    module = getattr(function, "__module__", None) or ""
    module = module.removeprefix("torch._C.").lstrip("_")
    return f'"{name}"' if not module or module.startswith("operator") else f'"{module}.{name}"'


def _refuse_unknown(tracer, function, name):
    import difflib

    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.9)
    advice = f"{near[0]!r} is one" if near else "docs/guide/fuse.md lists them"
    if name in ("item", "tolist", "numpy", "cpu", "cuda"):
        advice = "the values are not known when the function is traced; do this outside of it"
    tracer.refuse(
        f"the function or method {name!r}",
        "one that fuse knows",
        f"{advice}, or call it before or after the fused function",
    )
