# SPDX-License-Identifier: Apache-2.0
"""Registers ops as operators of torch."""

import threading

import torch

from opdock import _load, _opdock, _runtime
from opdock._errors import ArgumentError, InvalidArgumentError, NotFoundError, UnsupportedError
from opdock._formula import Formula, formula
from opdock.torch import _autocast, _autograd, _fake, _library, _recorder, _sharding, _vmap
from opdock.torch._op import Op
from opdock.torch._schema import schema

# Never destroyed: torch crashes in a call of an operator whose library is gone.
_namespace = torch.library.Library("opdock", "FRAGMENT")
_lock = threading.RLock()
_ops = {}  # name -> Op
_refused = {}  # name -> why torch has no such operator


def register_all():
    """Registers every op of the plugins that are usable or can be built here, those that have come
    since as well; returns the names of all operators.

    Ops with parameters that torch's operators cannot have are left out; refused() lists them. Loads
    no plugin. Any thread.
    """
    for name in _load.op_names():
        if name not in _ops and name not in _refused:
            try:
                _register(name, _runtime.function(name), None)
            except (NotFoundError, UnsupportedError) as error:
                _refused[name] = str(error)
    return sorted(_ops)


def refused():
    """Returns {name: reason} of the ops that register_all() has left out."""
    return dict(_refused)


def register(what, name=None):
    """Makes torch.ops.opdock.NAME of one op, and returns that operator.

    what: an op's name, such as "softmax" or "plugin/softmax"; a function of opdock.load(); a
    formula of opdock.formula(); or a function of opdock.fuse() that has been called, so that it has
    one formula, whose parameters are the operator's. name: the operator's name; by default the op's
    own, which a formula has if it was made with a schema. Registering the same op under the same
    name again returns the operator that there is. Any thread.

    Raises InvalidArgumentError if another op has that name, UnsupportedError if torch cannot have
    such an operator.
    """
    function, made = what, None
    if isinstance(what, str):
        function = _runtime.function(what)
    elif callable(getattr(what, "formulas", None)):
        return register(_only_formula(what), name)
    elif isinstance(what, Formula):
        function, made = what.function, what
    if not isinstance(function, _opdock.Function):
        raise ArgumentError(
            f"register(): argument 'what': found an object of type {type(what).__name__}, wanted "
            "an op's name, or what opdock.load() or opdock.formula() returns"
        )
    name = function.__name__ if name is None else name
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"register(): argument 'name': found {name!r}, wanted an identifier")
    return _register(name, function, made).overload


def operator_of(overload):
    """Returns the Op of an operator of torch, or None if it is not one of Opdock's."""
    if overload.namespace != "opdock":
        return None
    op = _ops.get(overload._schema.name.removeprefix("opdock::"))
    return op if op is not None and op.overload is overload else None


def _only_formula(fused):
    """Returns the formula of a function of opdock.fuse()."""
    found = fused.formulas()
    if len(found) != 1:
        raise ArgumentError(
            f"register(): argument 'what': found a fused function with {len(found)} formulas, "
            "wanted one; call it once with arguments like those to come, or register "
            "opdock.formula(text, schema) for one of its formulas()"
        )
    schema_text, text = found[0]
    return formula(text, schema_text)


def _register(name, function, made):
    with _lock:
        known = _ops.get(name)
        if known is not None:
            if known.function is function or _same_formula(known.formula, made):
                return known
            raise InvalidArgumentError(
                f"register(): found torch.ops.opdock.{name} of another op ({known.function.schema})"
                ", wanted a name that is free; pass name="
            )
        op = Op(name, function, made)
        _define(op)
        _ops[name] = op
        return op


def _same_formula(a, b):
    return (
        a is not None
        and b is not None
        and (a.text, a.function.schema)
        == (
            b.text,
            b.function.schema,
        )
    )


def _define(op):
    text = schema(op.name, op.function)
    try:
        torch._C.parse_schema(f"opdock::{text}")
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise UnsupportedError(
            f"{op.name}: found the schema {text!r}, which torch cannot read ({why}), wanted names "
            f"and defaults that it can; call opdock.ops.{op.name} instead"
        ) from None
    _namespace.define(text, tags=op.tags())
    op.overload = getattr(torch.ops.opdock, op.name).default
    op.formula_gradient = lambda names: _gradient_of((op, names))
    for key, advice in _OTHER_KEYS.items():
        _namespace.impl(op.name, _refusal_of(op.name, key, advice), key)
    kernel = _autograd.kernel_of(op, _gradient_of if op.formula is not None else _finder(op))
    done = _library.implement(op, text, kernel)
    if not done.device:
        for key in ("CPU", "CUDA"):
            _namespace.impl(op.name, op.call, key)
    if not done.autograd:
        _namespace.impl(op.name, kernel, "Autograd", with_keyset=True)
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        kernel = _autocast.kernel_of(op, device)
        if kernel is not None:
            _namespace.impl(op.name, kernel, key)
    name = f"opdock::{op.name}"
    torch.library.register_fake(name, _fake.kernel_of(op), lib=_namespace, allow_override=True)
    torch.library.register_vmap(name, _vmap.rule_of(op), lib=_namespace)
    _sharding.add(op, _ops)


#: Dispatch keys of tensors whose memory is not dense, and how to get one whose memory is.
_OTHER_KEYS = {
    **dict.fromkeys(("SparseCPU", "SparseCUDA"), "x.to_dense()"),
    **dict.fromkeys(("SparseCsrCPU", "SparseCsrCUDA"), "x.to_dense()"),
    **dict.fromkeys(("NestedTensorCPU", "NestedTensorCUDA"), "x.to_padded_tensor(…) or its parts"),
    **dict.fromkeys(("QuantizedCPU", "QuantizedCUDA"), "x.dequantize()"),
    "MkldnnCPU": "x.to_dense()",
}


def _refusal_of(name, key, advice):
    def refuse(*args, **keywords):
        raise UnsupportedError(
            f"{name}: found a tensor of the backend {key}, wanted plain dense memory; pass {advice}"
        )

    return refuse


def _finder(op):
    """Returns the function that finds the ops of the gradients that `op` declares."""

    def find(name):
        known = _ops.get(name)
        return _register(name, _runtime.function(name), None) if known is None else known

    return find


def register_gradient(name, gradient, params):
    """Registers the operator that computes a gradient of the operator `name`, for the recorder;
    returns its function and its name. gradient: the op that is declared; None for a formula, of
    whose parameters `params`, separated by blanks, the gradients are wanted."""
    op = _ops[name]
    find = _finder(op) if op.formula is None else _gradient_of
    found = find((op, tuple(params.split())) if gradient is None else gradient)
    return found.function, found.name


if _library.has_guard():
    _recorder.open_library(register_gradient)


def _gradient_of(key):
    """Returns the Op of a formula's gradients. key: (the Op of the formula, or of a plugin's op
    that is one, names of parameters)."""
    op, names = key
    name = "_".join((op.name, "backward", *names))
    with _lock:
        known = _ops.get(name)
        if known is None:
            made = op.formula or formula(op.formula_text(), op.function.schema)
            function = made.gradient(names)
            known = _register(name, function, _Gradient(function, op, names))
        return known


class _Gradient:
    """A formula's gradient as a formula: its own derivatives are not defined. op: the formula's Op.
    of: the names of the parameters whose gradients are its results."""

    def __init__(self, function, op, of):
        self.text, self.function, self.op, self.of = function.schema, function, op, of

    def gradient(self, names):
        raise UnsupportedError(
            f"{self.function.__name__}: found a second derivative of a formula to compute, wanted "
            "a first one; call backward() without create_graph"
        )
