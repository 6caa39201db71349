# SPDX-License-Identifier: Apache-2.0
"""The stand-ins with which opdock.fuse() traces: for arrays (Array) and for numbers (Number)."""

import operator

from opdock._errors import InvalidArgumentError


class Array:
    """The stand-in for an array: the base of those of each library."""

    __slots__ = ("_tracer", "_node")

    def __init__(self, tracer, node):
        self._tracer, self._node = tracer, node

    def _open(self):
        """Returns the node; raises if the trace has ended."""
        if not self._tracer.is_open:
            raise InvalidArgumentError(
                f"fuse: {self._tracer.name}: found an array of an earlier trace, wanted one of "
                f"this "
                "call; the function stored it outside: return it instead"
            )
        return self._node

    def _call(self, function, *args, **kwargs):
        return self._tracer.call(function, args, kwargs)

    def _refuse(self, found, wanted, advice):
        self._open()
        self._tracer.refuse(found, wanted, advice)

    def _no_value(self, what):
        self._refuse(
            f"{what} of an array",
            "no use of its values in Python, since they are not known when the function is traced",
            "select with where(), or compute this part outside of the fused function",
        )

    def __bool__(self):
        self._no_value("bool()")

    def __float__(self):
        self._no_value("float()")

    def __int__(self):
        self._no_value("int()")

    def __complex__(self):
        self._no_value("complex()")

    def __index__(self):
        self._no_value("an index")

    def __iter__(self):
        self._refuse(
            "a loop over an array", "whole arrays", "write what is done with each element instead"
        )

    def __contains__(self, _):
        self._no_value("'in'")

    def __len__(self):
        if not self._node.dims:
            raise TypeError("len() of unsized object")
        return int(self._tracer.size(self._node, 0))

    def __setitem__(self, *_):
        self._refuse(
            "an assignment to elements of an array",
            "new values only",
            "write where(mask, value, x)",
        )

    __hash__ = object.__hash__

    def __repr__(self):
        return f"<opdock.fuse: {self._node.dtype} array of {len(self._node.dims)} dimensions>"


def _add_array_operators():
    names = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "mod": "mod",
             "floordiv": "floordiv", "pow": "pow", "and": "and_", "or": "or_", "xor": "xor",
             "lshift": "lshift", "rshift": "rshift", "matmul": "matmul"}  # fmt: skip
    for name, known in names.items():
        function = getattr(operator, known)

        def straight(self, other, function=function):
            return self._call(function, self, other)

        def reflected(self, other, function=function):
            return self._call(function, other, self)

        def in_place(self, other, function=function):
            return self._tracer.write(self, self._call(function, self, other))

        setattr(Array, f"__{name}__", straight)
        setattr(Array, f"__r{name}__", reflected)
        setattr(Array, f"__i{name}__", in_place)
    for name in ("lt", "le", "eq", "ne", "gt", "ge"):
        function = getattr(operator, name)

        def compared(self, other, function=function):
            return self._call(function, self, other)

        setattr(Array, f"__{name}__", compared)
    for name in ("neg", "pos", "invert", "abs"):
        function = getattr(operator, name)

        def signed(self, function=function):
            return self._call(function, self)

        setattr(Array, f"__{name}__", signed)


class Number:
    """The stand-in for a number: an argument, a size, or what arithmetic makes of them.

    Arithmetic with numbers gives a Number, which Python computes at each call. Whatever else needs
    the value gets that of the traced call, and makes it a fact.
    """

    __slots__ = ("_tracer", "_value", "_code", "_name")

    def __init__(self, tracer, value, code, name=None):
        self._tracer, self._value, self._code, self._name = tracer, value, code, name

    @property
    def __class__(self):  # so that isinstance(x, float) is true
        return type(self._value)

    def _operand(self):
        return self._tracer.number_operand(self)

    def _use(self):
        return self._tracer.use(self)

    def _derived(self, function, form, *others):
        codes = [x._code if isinstance(x, Number) else _code_of(x) for x in others]
        values = [x._value if isinstance(x, Number) else x for x in others]
        if None in codes:
            return NotImplemented
        value = function(*values)
        if type(value) not in (int, float):
            return function(*(x._use() if isinstance(x, Number) else x for x in others))
        return Number(self._tracer, value, f"({form.format(*codes)})")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if any(isinstance(x, Array) for x in inputs):
            return NotImplemented
        inputs = [x._use() if isinstance(x, Number) else x for x in inputs]
        return getattr(ufunc, method)(*inputs, **kwargs)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        for x in (*args, *(kwargs or {}).values()):
            if isinstance(x, Array):
                return x._tracer.call(function, args, kwargs or {})
        return NotImplemented

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._use(), name)

    def __repr__(self):
        return repr(self._value)


def _code_of(x):
    """Returns the code of a number that is a constant, or None for anything else."""
    return f"({x!r})" if type(x) in (bool, int, float) else None


def _add_number_operators():
    forms = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "truediv": "{} / {}",
             "floordiv": "{} // {}", "mod": "{} % {}"}  # fmt: skip
    for name, form in forms.items():
        function = getattr(operator, name)

        def straight(self, other, function=function, form=form):
            return self._derived(function, form, self, other)

        def reflected(self, other, function=function, form=form):
            return self._derived(function, form, other, self)

        setattr(Number, f"__{name}__", straight)
        setattr(Number, f"__r{name}__", reflected)
    for name, form in {"neg": "-{}", "pos": "+{}", "abs": "abs({})"}.items():
        function = getattr(operator, name)

        def signed(self, function=function, form=form):
            return self._derived(function, form, self)

        setattr(Number, f"__{name}__", signed)

    def power(self, other):
        # The power of two integers may be a float, that of a negative number complex.
        if type(other) is float and self._value > 0:
            return self._derived(operator.pow, "{} ** {}", self, other)
        return _with_value(operator.pow)(self, other)

    Number.__pow__ = power
    used = {
        **{f"__{name}__": getattr(operator, name) for name in ("lt", "le", "eq", "ne", "gt", "ge")},
        **{f"__{name}__": getattr(operator, name) for name in ("lshift", "rshift", "xor")},
        **{"__and__": operator.and_, "__or__": operator.or_, "__invert__": operator.invert},
        **{"__bool__": bool, "__int__": int, "__float__": float, "__complex__": complex},
        **{"__index__": operator.index, "__hash__": hash, "__str__": str, "__format__": format},
        **{"__round__": round, "__divmod__": divmod},
        **{f"__{name}__": getattr(__import__("math"), name) for name in ("trunc", "floor", "ceil")},
    }
    for name, function in used.items():
        setattr(Number, name, _with_value(function))
    for name in ("pow", "lshift", "rshift", "and_", "or_", "xor"):
        function = getattr(operator, name)
        setattr(Number, f"__r{name.rstrip('_')}__", _with_value(function, is_reflected=True))


def _with_value(function, is_reflected=False):
    def method(self, *others):
        if any(isinstance(x, Array) for x in others):
            return NotImplemented
        values = [x._use() if isinstance(x, Number) else x for x in (self, *others)]
        return function(*(reversed(values) if is_reflected else values))

    return method


_add_array_operators()
_add_number_operators()
