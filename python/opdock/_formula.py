# SPDX-License-Identifier: Apache-2.0
"""Makes functions of formulas: opdock.formula()."""

import inspect

from opdock import _names, _opdock
from opdock._runtime import default


def formula(text, schema=None):
    """Returns the function that computes a formula, on the CPU or on a GPU, in one pass.

        silu_mul = opdock.formula("gate * sigmoid(gate) * up")
        y = silu_mul(gate, up)

    text: the formula; docs/reference/formulas.md has the language. schema: the function's
    parameters and results, such as "rms_norm(Tensor x, Tensor? weight=None, *, float eps=1e-5) ->
    Tensor"; a result Tensor(a!) is written into the parameter that has the same mark. None: the
    names that the formula uses are its tensors, in the order of their first use.

    The function takes torch, NumPy, CuPy and JAX arrays of bool, integer and float dtypes, of any
    shapes that can be broadcast and any strides, all on one device, and returns new arrays of
    torch's result dtypes, as ops do; `out=` works as well. float16 and bfloat16 are computed in
    float32 and rounded once, at the end. A GPU's kernel is compiled by the first call with these
    dtypes and this kind of layout, or taken from the cache; later shapes use it again. If a torch
    tensor requires a gradient, autograd records the call, and the formula's own derivative is
    computed by one more kernel; derivatives of second order are refused. A tangent of forward mode
    is computed likewise if the formula is elementwise and has one result.

    Any thread. Raises InvalidArgumentError for a faulty text, with the line and the column.
    """
    _names.text("formula", "text", text, "a str")
    if schema is not None:
        _names.text("formula", "schema", schema, "a str or None")
    return Formula(text, schema)


class Formula:
    """A formula as a function; formula() makes it. Has the attributes of opdock.Function."""

    # A call finds the function itself in this slot: a method that calls it would take 0.2 µs more.
    __slots__ = ("__call__", "__weakref__", "_gradients", "function", "text")

    def __init__(self, text, schema):
        self.text = text
        self._gradients = _Gradients(text, schema)
        self.function = _opdock.make_formula(default(), text, schema, recorder=self._gradients)
        self.__call__ = self.function

    def gradient(self, names):
        """Returns the function of the gradients of these parameters: opdock_make_gradient()."""
        return self._gradients.of(names)

    @property
    def __signature__(self):
        return inspect.signature(self.function)

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "function"), name)

    def __repr__(self):
        return f"<opdock.formula {self.function.schema}>"


class _Gradients:
    """The gradients of a formula. Called by its function, instead of the op, for arguments that
    require a gradient. Does not refer to the function, which owns it."""

    def __init__(self, text, schema):
        self.text, self._schema = text, schema

    def of(self, names):
        return _opdock.make_formula(default(), self.text, self._schema, ",".join(names))

    def __call__(self, function, args, keywords):
        from opdock._formula_autograd import record

        return record(function, self, args, keywords)
