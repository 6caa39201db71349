# SPDX-License-Identifier: Apache-2.0
"""Finds the argument that made a call fail. It runs only after a failure, so good calls pay
nothing.

A function's annotations describe its named parameters. Its attribute `more`, a dict {number of
further positional arguments: {name: type}}, describes the arguments behind these.
"""

import functools
import inspect
import operator

import torch

from opdock._errors import ArgumentError, OpdockError
from opdock.compat.deepspeed.inference._checks import refuse_type

Tensor, MaybeTensor = torch.Tensor, torch.Tensor | None

# Exceptions that Python and torch raise for unsuitable arguments. A RuntimeError may have other
# causes; it is replaced only if an argument is at fault.
_BARE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def _converts(function, value):
    try:
        function(value)
        return True
    except Exception:
        return False


_KINDS = {
    int | None: (
        "a whole number, or None",
        lambda value: value is None or _converts(operator.index, value),
    ),
    Tensor: ("a torch.Tensor", lambda value: isinstance(value, torch.Tensor)),
    MaybeTensor: (
        "a torch.Tensor, or None",
        lambda value: value is None or isinstance(value, torch.Tensor),
    ),
    float: ("a number", functools.partial(_converts, float)),
    int: ("a whole number", functools.partial(_converts, operator.index)),
    bool: ("True or False", functools.partial(_converts, bool)),
}


def named(function, at):
    """Returns the function under DeepSpeed's name, at.name, without its first parameter.

    If a call ends in a bare Python error, it raises ArgumentError instead, which names the function
    and, if one argument is at fault, the argument.
    """

    def call(*arguments, **keywords):
        try:
            return function(at, *arguments, **keywords)
        except OpdockError:
            raise
        except _BARE as error:
            _explain(function, at, arguments, keywords, error)
            raise

    plain = inspect.signature(function)
    call.__signature__ = plain.replace(parameters=list(plain.parameters.values())[1:])
    call.__name__ = call.__qualname__ = at.name
    call.__doc__, call.__module__ = function.__doc__, function.__module__
    return call


def _explain(function, at, arguments, keywords, error):
    """Raises ArgumentError after a call that raised `error`, if the arguments are the cause."""
    try:
        bound = inspect.signature(function).bind(at, *arguments, **keywords)
    except TypeError as problem:
        names = ", ".join(str(p) for p in list(inspect.signature(function).parameters)[1:])
        raise ArgumentError(
            f"{at.name}(): found {len(arguments) + len(keywords)} arguments, wanted ({names}): "
            f"{problem}; pass them by position, as DeepSpeed does"
        ) from error
    given = []
    for parameter in list(bound.signature.parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            more = bound.arguments.get(parameter.name, ())
            kinds = getattr(function, "more", {}).get(len(more), {})
            pairs = zip(kinds.items(), more, strict=False)
            given += [(name, kind, value) for (name, kind), value in pairs]
        elif parameter.name in bound.arguments:
            given.append((parameter.name, parameter.annotation, bound.arguments[parameter.name]))
    for name, kind, value in given:
        wanted, fits = _KINDS.get(kind, ("", None))
        if fits is not None and not fits(value):
            refuse_type(at, name, value, wanted, error)
    if isinstance(error, RuntimeError):
        return
    types = ", ".join(f"{name}: {type(value).__name__}" for name, _, value in given)
    raise ArgumentError(
        f"{at.name}(): found arguments that do not go together ({types}): "
        f"{type(error).__name__}: {error}; wanted them as docs/reference/deepspeed.md says"
    ) from error
