# SPDX-License-Identifier: Apache-2.0
"""What opdock.fuse() must know of NumPy, CuPy, JAX and torch: samples, dtypes, attributes.

A sample has one element and the rank of the array that it stands for; the library's own functions
are called on samples, and so decide about dtypes and about what is an error. CuPy and JAX arrays
are traced by NumPy's protocols, JAX's own functions by _fuse_jax.py; NumPy decides about CuPy's
dtypes.
"""

import contextlib
import functools
import operator
import sys

from opdock._errors import UnsupportedError
from opdock._fuse_proxies import Array


def library_of(x):
    """Returns the name of the library that x is an array of, or None."""
    for name, kind in (("torch", "Tensor"), ("numpy", "ndarray"), ("cupy", "ndarray"),
                       ("jax", "Array"), ("numpy", "generic")):  # fmt: skip
        found = getattr(sys.modules.get(name), kind, None)
        if found is not None and isinstance(x, found):
            return name
    return None


class _Attributes(Array):
    """The attributes that arrays of all libraries have."""

    __slots__ = ()

    @property
    def shape(self):
        node = self._open()
        return tuple(self._tracer.size(node, axis) for axis in range(len(node.dims)))

    @property
    def ndim(self):
        return len(self._open().dims)

    @property
    def dtype(self):
        return self._open().sample.dtype

    @property
    def T(self):
        return self.transpose(*reversed(range(len(self._open().dims))))

    @property
    def device(self):
        for operand in list(self._tracer.operands.values()):
            if operand.kind == "Tensor":
                code = f"{operand.code}.device"
                self._tracer.facts[code] = None
                return self._tracer.evaluate(code)
        return None

    def __getitem__(self, index):
        return self._call(operator.getitem, self, index if isinstance(index, tuple) else (index,))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"an array inside of opdock.fuse has no attribute {name!r}")
        found = getattr(self._open().sample, name, None)
        # JAX asks for attributes of its own before it refuses a stand-in.
        if found is None or (not callable(found) and self._tracer.library.name == "jax"):
            raise AttributeError(f"{self._tracer.library.name} arrays have no attribute {name!r}")
        if not callable(found):
            self._refuse(f"the attribute {name!r} of an array", "one that fuse knows",
                         "docs/guide/fuse.md lists them")  # fmt: skip
        return functools.partial(self._call, _method(name), self)


@functools.cache
def _method(name):
    """Returns the function that calls a method of that name."""

    def method(x, *args, **kwargs):
        return getattr(x, name)(*args, **kwargs)

    method.__name__ = name
    return method


class NumpyArray(_Attributes):
    __slots__ = ()

    @property
    def __class__(self):  # so that isinstance(x, numpy.ndarray) is true
        return self._tracer.library.kind()

    @property
    def size(self):
        product = 1
        for one in self.shape:
            product = product * one
        return product

    @property
    def real(self):
        return self

    @property
    def itemsize(self):
        return self._open().sample.dtype.itemsize

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        numpy = sys.modules["numpy"]
        if method == "reduce":
            names = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin",
                     "logical_and": "all", "logical_or": "any"}  # fmt: skip
            if ufunc.__name__ in names:
                kwargs.setdefault("axis", 0)
                function = getattr(numpy, names[ufunc.__name__])
                return self._tracer.call(function, inputs, kwargs)
        if method != "__call__":
            self._refuse(f"numpy.{ufunc.__name__}.{method}()", "a call of the function itself",
                         "write what it does with functions that fuse knows")  # fmt: skip
        if ufunc.__name__ in (
            "less",
            "less_equal",
            "greater",
            "greater_equal",
            "equal",
            "not_equal",
        ):
            # NumPy's numbers pass themselves as arrays to these.
            inputs = [x[()] if type(x) is numpy.ndarray and x.ndim == 0 else x for x in inputs]
        out = kwargs.pop("out", None)
        value = self._tracer.call(ufunc, inputs, kwargs)
        if out is None or (len(out) == 1 and out[0] is None):
            return value
        if len(out) == 1 and isinstance(out[0], Array):
            return self._tracer.write(out[0], value)
        self._refuse("an array that is no argument as out=", "new values only", "return the result")

    def __array_function__(self, function, types, args, kwargs):
        return self._tracer.call(function, args, kwargs)

    def __cupy_override_elementwise_kernel__(self, kernel, *args, **kwargs):
        name = kernel.name.removeprefix("cupy_")
        function = getattr(sys.modules["numpy"], name, None)
        if function is None:
            self._refuse(f"the CuPy function {name!r}", "one that fuse knows",
                         "docs/guide/fuse.md lists them")  # fmt: skip
        return self._tracer.call(function, args, kwargs)

    def __array__(self, *args, **kwargs):
        self._no_value("numpy.asarray()")


class TorchArray(_Attributes):
    __slots__ = ()
    # There is no property __class__ here: torch would take this for a tensor, and crash.
    __array_ufunc__ = None  # NumPy's functions are none of a tensor's

    @property
    def requires_grad(self):
        return False

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    @property
    def mT(self):
        return self.transpose(-2, -1)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        pending = [*args, *kwargs.values()]
        while pending:
            x = pending.pop(0)
            if isinstance(x, Array):
                return x._tracer.call(function, args, kwargs)
            if isinstance(x, (tuple, list)):
                pending += x
        return NotImplemented

    def __array__(self, *args, **kwargs):
        self._no_value("numpy.asarray()")


class Numpy:
    """NumPy, and with its rules CuPy and JAX. name: that of the library of the arguments."""

    def __init__(self, name):
        self.name = name
        import numpy

        self._numpy = numpy
        self.writes = name != "jax"  # whether its arrays can be written
        #: NumPy 1 looks at the values of numbers, not only at their types.
        self.needs_plain_numbers = int(numpy.__version__.split(".")[0]) < 2

    def kind(self):
        module = sys.modules[self.name]
        return module.Array if self.name == "jax" else module.ndarray

    def array(self, tracer, node):
        return NumpyArray(tracer, node)

    def sample(self, dtype, rank):
        if self.needs_plain_numbers and rank == 0:
            raise UnsupportedError(
                "fuse: found an array without dimensions under NumPy 1, whose results' dtypes "
                "depend "
                "on its value; wanted NumPy 2, or a Python number"
            )
        if self.name == "jax":
            return sys.modules["jax"].numpy.ones((1,) * rank, dtype)
        return self._numpy.ones((1,) * rank, self._numpy.dtype(dtype))

    def dtype_name(self, sample):
        dtype = self._numpy.asarray(sample).dtype
        return dtype.name if dtype.isnative else f"{dtype.name} of another byte order"

    def compared_in(self, a, b):
        """Returns the dtype in which two samples are compared, as a name."""
        try:
            return self.dtype_name(a + b)
        except OverflowError:  # a number that the array's integers do not hold
            return "int64"

    def quiet(self):
        return self._numpy.errstate(all="ignore")

    def traced(self):
        """Returns the context in which a function is traced."""
        if self.name != "jax":
            return contextlib.nullcontext()
        from opdock import _fuse_jax

        return _fuse_jax.traced()

    # About donated arrays (_fuse_donate.py).

    def records(self, flat):
        """Returns whether a gradient needs the arrays of a call later."""
        return False

    def fits(self, x, dtype):
        """Returns whether a result of this dtype may be written over x, whose shape it has."""
        flags = x.flags
        return x.dtype.name == dtype and flags.c_contiguous and getattr(flags, "writeable", True)

    def empty(self, shape, dtype, like):
        return sys.modules[self.name].empty(shape, dtype)


class Torch:
    name = "torch"
    writes = True
    needs_plain_numbers = False

    def kind(self):
        return sys.modules["torch"].Tensor

    def array(self, tracer, node):
        return TorchArray(tracer, node)

    def sample(self, dtype, rank):
        torch = sys.modules["torch"]
        return torch.ones((1,) * rank, dtype=getattr(torch, dtype), device="cpu")

    def dtype_name(self, sample):
        return str(sample.dtype).removeprefix("torch.")

    def compared_in(self, a, b):
        return str(sys.modules["torch"].result_type(a, b)).removeprefix("torch.")

    def quiet(self):
        return contextlib.nullcontext()

    def traced(self):
        return contextlib.nullcontext()

    def records(self, flat):
        torch = sys.modules["torch"]
        return torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in flat)

    def fits(self, x, dtype):
        # A Parameter is kept by its module: it is not the caller's to give away.
        plain = type(x) is sys.modules["torch"].Tensor and not x.requires_grad
        return plain and self.dtype_name(x) == dtype and x.is_contiguous()

    def empty(self, shape, dtype, like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
