# SPDX-License-Identifier: Apache-2.0
"""Implements opdock.testing.check_gradients(): compares an op's declared gradients with central
differences of its results."""

import inspect

import numpy

from opdock._describe import OPTIONAL

# A value tag and the kinds of a gradient formula's arguments, with opdock.h's values.
_GENERATOR = 11
_PARAM, _RESULT, _INCOMING = 0, 1, 2

# The error of a central difference is about STEP^2 times the third derivative, plus 1e-16 / STEP
# times the sum.
STEP = 2.0**-17
TOLERANCE = 1e-6


def check(function, find, args, keywords):
    """Checks the gradients of `function` as opdock.testing.check_gradients() documents it.
    find(name): returns another function of the same plugin."""
    call = _Call(function, args, keywords)
    results = call.results(call.values)
    pairs = zip(_floating(results), _floating(call.results(call.values)), strict=True)
    if not all(numpy.array_equal(one, other, equal_nan=True) for one, other in pairs):
        raise ValueError(
            f"{function.__name__}: found other results in a second call of the same arguments, "
            "wanted the same; give an op that draws random numbers a parameter of type Generator"
        )
    random = numpy.random.default_rng(0)
    weights = [_weights(result, random) for result in results]
    count = 0
    for params, op, formula in function._gradients:
        if op is None or all(call.values[i] is None for i, _ in params):
            continue
        helper = find(op)
        found = helper(**call.arguments_of(helper, formula, results, weights))
        found = found if isinstance(found, tuple) else (found,)
        for i, place in params:
            gradient = found[place]
            for number, array in _items(call.values[i]):
                if array is not None:
                    one = gradient if number is None else gradient[number]
                    call.compare(i, number, array, one, weights)
                    count += 1
    if count == 0:
        raise ValueError(
            f"{function.__name__}: found no gradient to check, wanted an op that declares one, and "
            "an array for a parameter that has it"
        )


class _Call:
    """The arguments of a call, in the schema's order, and its results."""

    def __init__(self, function, args, keywords):
        self.function = function
        self.params = function._params
        bound = inspect.signature(function).bind(*args, **keywords)
        bound.apply_defaults()
        self.values = [bound.arguments[param[0]] for param in self.params]
        for i, (_, tag, _, _) in enumerate(self.params):
            if tag == _GENERATOR:
                self.values[i] = _fixed(self.values[i])

    def results(self, values):
        """Calls the op with `values`; returns a tuple of results. The op gets copies, since it may
        write into its arguments."""
        named = {param[0]: _copy(value) for param, value in zip(self.params, values, strict=True)}
        found = self.function(**named)
        return found if isinstance(found, tuple) else (found,)

    def arguments_of(self, helper, formula, results, weights):
        """Returns the arguments that the formula passes to the gradient's op, as {parameter:
        value}."""
        arguments = {}
        for param, (kind, index, constant) in zip(helper._params, formula, strict=True):
            name, _, flags, _ = param
            value = constant
            if kind == _PARAM:
                value = self.values[index]
            elif kind == _RESULT:
                value = results[index]
            elif kind == _INCOMING:
                value = weights[index]
                if value is None and not flags & OPTIONAL:
                    value = numpy.zeros_like(results[index])
            arguments[name] = _copy(value)
        return arguments

    def compare(self, index, number, array, found, weights):
        """Compares the gradient `found` of one array with the differences; raises if it is
        wrong."""
        where = f"{self.function.__name__}: the gradient of '{self.params[index][0]}'"
        where += "" if number is None else f"[{number}]"
        dtype = getattr(array, "dtype", type(array).__name__)
        if dtype != "float64":
            raise ValueError(
                f"{where}: found {dtype}, wanted a NumPy array of float64, of which differences "
                "are exact enough"
            )
        if found.shape != array.shape:
            raise AssertionError(f"{where}: found shape {found.shape}, wanted {array.shape}")
        wanted = self.differences(index, number, array, weights)
        allowed = TOLERANCE * max(1.0, abs(wanted).max(initial=0.0))
        wrong = ~(abs(found - wanted) <= allowed)  # NaN is wrong
        if wrong.any():
            at = tuple(
                int(i) for i in numpy.argwhere(wrong)[0]
            )  # () for an array without dimensions
            raise AssertionError(
                f"{where}: {wrong.sum()} of {wrong.size} elements differ; at {at} found "
                f"{float(found[at])!r}, wanted {float(wanted[at])!r}, as the differences are"
            )

    def differences(self, index, number, array, weights):
        """Returns the derivative by each element: the central difference of the weighted sums."""
        wanted = numpy.empty_like(array)
        for at in numpy.ndindex(array.shape):
            sums = []
            for step in (-STEP, STEP):
                moved = array.copy()
                moved[at] += step
                values = list(self.values)
                if number is None:
                    values[index] = moved
                else:
                    values[index] = [*values[index]]
                    values[index][number] = moved
                pairs = zip(_floating(self.results(values)), _floating(weights), strict=True)
                sums.append(sum(float((result * weight).sum()) for result, weight in pairs))
            wanted[at] = (sums[1] - sums[0]) / (2 * STEP)
        return wanted


def _fixed(generator):
    """Returns a generator that gives each call the same numbers."""
    if generator is None:
        return 1
    return (generator.seed, generator.offset) if hasattr(generator, "offset") else generator


def _weights(result, random):
    """Returns random weights for a result's elements; None for a result that is not floating."""
    if isinstance(result, list):
        return [_weights(one, random) for one in result]
    if getattr(getattr(result, "dtype", None), "kind", None) != "f":
        return None
    return random.standard_normal(result.shape).astype(result.dtype)


def _items(value):
    """Returns [(index, array)] for a list of arrays, [(None, array)] for one array."""
    return list(enumerate(value)) if isinstance(value, (list, tuple)) else [(None, value)]


def _copy(value):
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copy, value))
    return value.copy() if hasattr(value, "dtype") else value


def _floating(results):
    """Yields the floating arrays among results or weights, also those in lists."""
    for result in results:
        if isinstance(result, list):
            yield from _floating(result)
        elif getattr(getattr(result, "dtype", None), "kind", None) == "f":
            yield result
