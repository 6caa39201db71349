# SPDX-License-Identifier: Apache-2.0
"""Traces JAX's own functions for opdock.fuse().

JAX has no protocol by which a call of jax.numpy.exp(x) asks x, as NumPy's and torch's functions
do. So its modules' names lead to stand-ins for their functions while a function is traced: one with
a traced array among its arguments is noted, and any other is made by JAX as ever, in other threads
too. A function that was imported by its own name (`from jax.numpy import exp`) is not replaced.
"""

import contextlib
import os
import sys
import threading

from opdock._fuse_proxies import Array

#: Modules whose functions are replaced, if a program has imported them: all of them, or those of
#: these names. jax.lax has functions whose names mean something else in jax.numpy, such as max.
_MODULES = {
    "jax.numpy": None,
    "jax.nn": None,
    "jax.lax": ("rsqrt", "logistic", "erf", "erfc", "log", "exp", "tanh"),
    "jax.scipy.special": ("erf", "erfc", "expit", "logsumexp", "xlogy"),
}
#: What fuse() calls functions that it knows by another name.
_NAMES = {"logistic": "sigmoid", "hard_tanh": "hardtanh", "hard_sigmoid": "hardsigmoid",
          "hard_silu": "hardswish", "soft_sign": "softsign"}  # fmt: skip


class _State:
    def __init__(self):
        self.lock = threading.Lock()  # guards what follows
        self.traces = 0  # under way
        self.replaced = []  # (module, name, function), while there are any


_state = _State()


def _renew():
    """Restores JAX in a forked child: the threads that traced do not exist there."""
    global _state
    replaced, _state = _state.replaced, _State()
    _restore(replaced)


os.register_at_fork(after_in_child=_renew)


class _Function:
    """Stands for a function of JAX while something is traced."""

    def __init__(self, original):
        self._original = original
        self.__name__ = name = getattr(original, "__name__", type(original).__name__)
        self._known = _ADAPTED.get((_home(original), name)) or _Named(original, name)

    def __call__(self, *args, **kwargs):
        tracer = _tracer_of(args) or _tracer_of(kwargs.values())
        if tracer is None:
            return self._original(*args, **kwargs)
        known = self._known
        if not isinstance(known, _Named):
            known, args, kwargs = known(tracer, self._original, *args, **kwargs)
        return tracer.call(known, args, kwargs)

    def __getattr__(self, name):  # at(), reduce() and the like
        return getattr(self._original, name)


class _Named:
    """A function under the name by which fuse() knows it. Calls are those of samples."""

    def __init__(self, function, name):
        self._function, self.__name__ = function, _NAMES.get(name, name)
        self.__module__ = getattr(function, "__module__", None)

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)


def _home(function):
    """Returns the part of JAX that a function belongs to: "numpy", "nn", "ops", …"""
    parts = (getattr(function, "__module__", None) or "").replace("._src", "").split(".")
    return parts[1] if len(parts) > 1 else ""


def _tracer_of(values):
    for x in values:
        if isinstance(x, Array):
            return x._tracer
        if isinstance(x, (tuple, list)):
            found = _tracer_of(x)
            if found is not None:
                return found
    return None


# ---- functions whose arguments are others than those of torch's functions of the same name


def _gelu(tracer, original, x, approximate=True):
    def gelu(x, approximate):
        return original(x, approximate=approximate == "tanh")

    return gelu, (x, "tanh" if approximate else "none"), {}


def _softmax(tracer, original, x, axis=-1, where=None):
    _refuse_where(tracer, original, where)
    return original, (x,), {"axis": axis}


def _logsumexp(tracer, original, a, axis=None, b=None, keepdims=False, return_sign=False,
               where=None):  # fmt: skip
    _refuse_where(tracer, original, where)
    if b is not None or return_sign:
        tracer.refuse("logsumexp() with factors or a sign", "logsumexp(x, axis)",
                      "compute these parts with other functions")  # fmt: skip
    return original, (a,), {"axis": axis, "keepdims": keepdims}


def _refuse_where(tracer, original, where):
    if where is not None:
        tracer.refuse(f"where= of {original.__name__!r}", "no where=",
                      "replace the numbers beforehand by where(mask, x, value)")  # fmt: skip


_ADAPTED = {("nn", "gelu"): _gelu, ("nn", "softmax"): _softmax, ("nn", "log_softmax"): _softmax,
            ("ops", "logsumexp"): _logsumexp}  # fmt: skip


# ---- replacing


def _replace():
    """Returns what was replaced, as _State has it."""
    replaced = []
    for module_name, names in _MODULES.items():
        module = sys.modules.get(module_name)
        if module is None:
            continue
        for name, value in list(vars(module).items()):
            wanted = not name.startswith("_") if names is None else name in names
            if wanted and callable(value) and not isinstance(value, type):
                replaced.append((module, name, value))
    for module, name, value in replaced:
        setattr(module, name, _Function(value))
    return replaced


def _restore(replaced):
    for module, name, value in replaced:
        setattr(module, name, value)


@contextlib.contextmanager
def traced():
    """While this lasts, JAX's modules have functions that can be traced."""
    with _state.lock:
        if _state.traces == 0:
            _state.replaced = _replace()
        _state.traces += 1
    try:
        yield
    finally:
        with _state.lock:
            _state.traces -= 1
            if _state.traces == 0:
                _restore(_state.replaced)
                _state.replaced = []
