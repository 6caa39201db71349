# SPDX-License-Identifier: Apache-2.0
"""Makes one kernel of a function over arrays: opdock.fuse()."""

import functools
import inspect

from opdock import _fuse_donate, _fuse_functions
from opdock._errors import ArgumentError, InvalidArgumentError, OpdockError
from opdock._fuse_libraries import Numpy, Torch, library_of
from opdock._fuse_plan import Plan, lock
from opdock._fuse_proxies import Array, Number
from opdock._fuse_trace import DTYPES, NAMESPACE, Place, Tracer

_MAX_PLANS = 1000  # of one function: its formulas are never freed


class Fused:
    """A function that opdock.fuse() made. Calls have the function's own parameters, and out=."""

    def __init__(self, function, donate=()):
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        self._takes_out = self._signature is not None and "out" in self._signature.parameters
        self._donate = _fuse_donate.checked(donate, self._signature, self._name)
        self._plans = {}  # pattern -> list of (facts, their code, {values: Plan})
        self._count = 0

    def __call__(self, *args, **kwargs):
        out = None if self._takes_out else kwargs.pop("out", None)
        flat, key = [], []
        for x in args:
            _flatten(x, flat, key)
        if kwargs:
            for name in sorted(kwargs):
                key.append(name)
                _flatten(kwargs[name], flat, key)
        key = tuple(key)
        plan = None
        try:
            known = self._plans.get(key)
        except TypeError as error:
            raise ArgumentError(
                f"fuse: {self._name}: found an argument that has no hash ({error}), wanted arrays, "
                "numbers, and objects that have one; pass its parts instead"
            ) from None
        if known is not None:
            for facts, values_of, plans in known:
                plan = plans.get(_keys(values_of(flat)) if facts else ())
                if plan is not None:
                    break
        if plan is None:
            if any(
                isinstance(x, (Array, Number)) for x in flat
            ):  # inside of another traced function
                return self._function(*args, **kwargs)
            plan = self._make_plan(args, kwargs, flat, key)
        return plan(flat) if out is None else plan.write_into(flat, out)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def formulas(self):
        """Returns the formulas made so far, as a list of (schema, text): one for each kernel."""
        with lock():
            lists = [plans for known in self._plans.values() for _, _, plans in known]
            plans = [plan for one in lists for plan in one.values()]
        return list(dict.fromkeys(pair for plan in plans for pair in plan.formulas()))

    def __repr__(self):
        return f"<opdock.fuse of {self._name}>"

    def _make_plan(self, args, kwargs, flat, key):
        library = self._library(flat)
        tracer, value = self._trace(library, args, kwargs, flat, library.needs_plain_numbers)
        donated = ()
        if self._donate:
            donated = _fuse_donate.codes(self._donate, self._signature, args, kwargs, _flatten)
        plan = Plan(tracer, value, donated)
        tracer.is_open = False
        values_of = _code_of(plan.facts)
        values = _keys(values_of(flat)) if plan.facts else ()
        with lock():
            if self._count >= _MAX_PLANS:
                raise InvalidArgumentError(
                    f"fuse: {self._name}: found more than {_MAX_PLANS} patterns of arguments, "
                    f"wanted "
                    "fewer, because each is compiled and kept; "
                    + self._advice_on_patterns(plan.facts)
                )
            self._count += 1
            known = self._plans.setdefault(key, [])
            for facts, _, plans in known:
                if facts == plan.facts:
                    return plans.setdefault(values, plan)
            known.append((plan.facts, values_of, {values: plan}))
        return plan

    def _advice_on_patterns(self, facts):
        if facts:
            return "pass what changes as an array, or do not use its value in Python"
        return "pass what changes as an array or a number"

    def _library(self, flat):
        names = list(dict.fromkeys(filter(None, map(library_of, flat))))
        if not names:
            raise InvalidArgumentError(
                f"fuse: {self._name}: found no array among the arguments, wanted at least one, of "
                "torch, NumPy, CuPy or JAX"
            )
        if len(names) > 1:
            raise InvalidArgumentError(
                f"fuse: {self._name}: found arrays of {' and '.join(names)}, wanted those of one "
                "library; convert them first"
            )
        return Torch() if names[0] == "torch" else Numpy(names[0])

    def _trace(self, library, args, kwargs, flat, is_plain):
        tracer = Tracer(self._name, library, flat, is_plain, _fuse_functions.call)
        try:
            with library.traced():
                return tracer, self._run(tracer, args, kwargs)
        except BaseException as error:
            tracer.is_open = False
            # A library may refuse a stand-in for a number; the number itself it may take.
            if isinstance(error, OpdockError) or not isinstance(error, Exception):
                raise
            if is_plain and library.name == "jax" and isinstance(error, (TypeError, ValueError)):
                raise InvalidArgumentError(
                    f"fuse: {self._name}: found a call that takes no stand-in for a JAX array, "
                    "wanted operators, methods, and functions as names of their modules; write "
                    "jax.numpy.exp(x) instead of exp(x), and leave out jax.jit\n"
                    f"  {Place(error)}"
                ) from error
            if is_plain:
                raise
        return self._trace(library, args, kwargs, flat, True)

    def _run(self, tracer, args, kwargs):
        counter = iter(range(len(tracer.flat)))
        given = []
        for name, x in self._named(args, kwargs):
            given.append(_stand_in(tracer, x, name, counter))
        names = sorted(kwargs)
        positional = given[: len(args)]
        return self._function(*positional, **dict(zip(names, given[len(args) :], strict=True)))

    def _named(self, args, kwargs):
        """Returns (name, value) of each argument, in the order in which they are flattened."""
        names = [f"x{i}" for i in range(len(args))]
        if self._signature is not None:
            self._signature.bind(*args, **kwargs)  # raises TypeError as a call does
            parameters = list(self._signature.parameters.values())
            for i in range(len(args)):
                kind = parameters[min(i, len(parameters) - 1)]
                names[i] = kind.name if kind.kind != kind.VAR_POSITIONAL else f"{kind.name}_{i}"
        return [*zip(names, args, strict=True), *((name, kwargs[name]) for name in sorted(kwargs))]


# ---- arguments


def _flatten(x, flat, key):
    """Appends what x has to the flat list of arguments, and its pattern to the key."""
    kind = type(x)
    flattener = _FLATTENERS.get(kind)
    if flattener is None:
        flattener = _FLATTENERS[kind] = _flattener(x)
    flattener(x, flat, key)


def _flattener(x):
    if isinstance(x, Array):
        return _flatten_object
    library = library_of(x)
    if library == "torch":
        return _flatten_torch
    if library is not None:
        return _flatten_array
    if isinstance(x, tuple) or type(x) is list:
        return _flatten_sequence
    if type(x) is dict:
        return _flatten_dict
    if type(x) in (int, float):
        return _flatten_number
    return _flatten_object


def _flatten_torch(x, flat, key):
    flat.append(x)
    key += (x.dtype, x.ndim)


def _flatten_array(x, flat, key):
    flat.append(x)
    key += (type(x), x.dtype, x.ndim)


def _flatten_number(x, flat, key):
    flat.append(x)
    key.append(type(x))


def _flatten_sequence(x, flat, key):
    key += (type(x), len(x))
    for one in x:
        _flatten(one, flat, key)


def _flatten_dict(x, flat, key):
    key += (dict, tuple(x))
    for one in x.values():
        _flatten(one, flat, key)


def _flatten_object(x, flat, key):
    flat.append(x)
    key += (type(x), repr(x) if type(x) is complex else x)


_FLATTENERS = {}


def _stand_in(tracer, x, name, counter):
    """Returns what the traced function gets for an argument. counter: the places in the flat
    list."""
    if type(x) is dict:
        return {k: _stand_in(tracer, v, f"{name}_{k}", counter) for k, v in x.items()}
    if type(x) is list or isinstance(x, tuple):
        items = [_stand_in(tracer, v, f"{name}_{i}", counter) for i, v in enumerate(x)]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    code = f"a[{next(counter)}]"
    if type(x) in (int, float):
        return tracer.number(x, code, name)
    library = library_of(x)
    if library is None:
        return x
    if library == "numpy" and type(x).__module__ == "numpy" and not hasattr(x, "__setitem__"):
        code = f"asarray({code})"  # a NumPy number
    dtype = tracer.library.dtype_name(x)
    if dtype not in DTYPES:
        raise InvalidArgumentError(
            f"fuse: {tracer.name}: argument {name!r}: found {dtype}, wanted bool, uint8, int8 to "
            "int64, float16, bfloat16, float32 or float64; convert it first"
        )
    return tracer.input(code, name, dtype, x.ndim)


# ---- facts


def _code_of(facts):
    return eval(f"lambda a: ({''.join(code + ', ' for code in facts)})", NAMESPACE)


def _keys(values):
    """Returns a key of the values of facts, in which 1, 1.0 and True differ, as do 0.0 and -0.0."""
    return tuple(map(repr, values))


def fuse(function=None, *, donate=()):
    """Returns a function that computes the same as `function`, in one kernel.

        @opdock.fuse
        def silu_mul(gate, up):
            return gate / (1 + numpy.exp(-gate)) * up

    function: one over arrays of NumPy, CuPy, JAX or torch, unchanged: it uses their operators,
    functions and methods (docs/guide/fuse.md lists those that are known). Without it, fuse()
    returns the decorator. donate: the name of a parameter, or several, whose arrays the caller does
    not use again: results of their dtype and shape take their memory.

    The first call of a pattern runs the function once, on stand-ins that note what it computes,
    writes that as a formula and calls opdock.formula(). The pattern is: dtypes and numbers of
    dimensions of the arrays, types of the Python numbers, values of all other arguments (by their
    hash: bools, strings, None, ...), and how the arguments are passed, also in tuples, lists and
    dicts. Later calls of the same pattern do not run the function, whatever the shapes, strides and
    numbers are. Two things depend on values: if the function uses the value of a number in Python
    (bool(), int(), float(), a comparison, math.sqrt(), ...), or that of a size of an array, then
    that value is part of the pattern. x.shape may be read, and computed with, without that. The
    function must have no side effects, and depend on its arguments only: globals and closures count
    with the values of the first call, and arrays there are errors.

    Results: those of the function, with its library's dtypes and shapes: arrays, numbers and
    constants in tuples, lists and dicts. float16 and bfloat16 are computed in float32 and rounded
    once, at the end, or where the function converts to them. Arrays along the last dimension are
    reduced (sum, mean, softmax, ...); any other axis is an error. A reduction without keepdims is a
    value of each row: it can be combined with other ones, and with all others after r[..., None].
    Results whose shapes differ need a kernel each. `out=` takes the array, or the tuple of arrays,
    to write into, unless the function has a parameter of that name.

    The result has the method formulas(), which lists what was made: (schema, text) for each kernel.

    Any thread; a function that raises leaves nothing behind. Raises InvalidArgumentError for what
    cannot be traced, with the line of the function: uses of an array's values in Python, such as
    `if x > 0` (use where()), functions that are not known, changes of arguments in place. torch's
    autograd records calls with tensors that require grad; derivatives of second order are refused.
    """
    if function is None:
        return functools.partial(fuse, donate=donate)
    if not callable(function):
        raise ArgumentError(
            f"fuse(): found an object of type {type(function).__name__}, wanted a function"
        )
    return Fused(function, donate)
