# SPDX-License-Identifier: Apache-2.0
"""What the modules of opdock.fuse()'s functions share: a call of a library's function, and the
table of those that have a handler."""

from opdock import _fuse_trace
from opdock._fuse_proxies import Array, Number

#: name -> the function that handles its calls, with a Call and the arguments
HANDLERS = {}
#: What an arithmetic operation is of bools, of which formulas have none: its text by the names of
#: functions.
_OF_BOOLS = {
    **dict.fromkeys(("add", "maximum", "fmax", "max"), "{0} | {1}"),
    **dict.fromkeys(("mul", "multiply", "minimum", "fmin", "min"), "{0} & {1}"),
    **dict.fromkeys(("abs", "absolute", "sign", "floor", "ceil", "trunc", "fix"), "{0} & {0}"),
}


class Call:
    """A call of a library's function."""

    def __init__(self, tracer, function, name, args, kwargs):
        self.tracer, self.function, self.name = tracer, function, name
        self.args, self.kwargs = args, kwargs

    def sample(self):
        """Returns what the library gives for samples."""
        kwargs = {key: value for key, value in self.kwargs.items() if key != "out"}
        return self.tracer.sample(self.function, self.args, kwargs)

    def emit(self, form, rule, operands, sample=None):
        return self.tracer.emit(form, rule, operands, self.sample() if sample is None else sample)

    def refuse(self, argument, found, wanted, advice):
        self.tracer.refuse(f"{argument}={found!r} of {self.name!r}", wanted, advice)

    def number(self, argument, x, advice="pass a number"):
        """Returns the value of a Python number that must be known; refuses arrays."""
        if isinstance(x, Array):
            self.refuse(argument, x, "a number", advice)
        return x._use() if isinstance(x, Number) else x


def handler(names):
    """Returns the decorator of what handles the functions of these names."""

    def add(function):
        for name in names.split():
            HANDLERS[name] = function
        return function

    return add


def emit(one, form, rule, operands):
    """Returns the value of an elementwise function, whose text in a formula is `form`."""
    tracer = one.tracer
    sample = one.sample()
    if sample is NotImplemented:
        raise TypeError(f"{one.name!r} is not possible for these operands")
    if rule == "compare":
        a, b = (_fuse_trace._samples(x) for x in operands)
        return tracer.emit(form, rule, operands, sample, tracer.library.compared_in(a, b))
    if rule == "arithmetic" and tracer.dtype_of(sample) == "bool":
        if one.name not in _OF_BOOLS:
            tracer.refuse(f"{one.name!r} of bools", "numbers", "convert them first")
        form, rule = _OF_BOOLS[one.name], "bits"
    return tracer.emit(form, rule, operands, sample)
