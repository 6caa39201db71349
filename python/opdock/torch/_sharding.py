# SPDX-License-Identifier: Apache-2.0
"""Tells DTensor along which dimensions the tensors of a call may be sharded.

A rank calls the op on its own parts, so that this needs a promise: what the op computes there does
not depend on the other ranks' parts. Formulas make it, as their text says what an element depends
on. Other ops are listed here by name: what they declare (shape rules, `rows`) says where numbers
lie and not what they depend on; attention declares rows that see each other. The op of a gradient
follows from the op that it differentiates. Every other op takes DTensors that are replicated, and
refuses sharded ones by name.

torch.distributed.tensor takes seconds to import, so that it is the program that does it. The rules
are registered when opdock.torch is imported after it, or else by the first call with a DTensor:
DTensor asks for the results' sizes before it looks for a rule.
"""

import sys
from typing import Any, NamedTuple

import torch

from opdock._errors import UnsupportedError
from opdock._formula_reach import ELEMENT, OTHERS, reach
from opdock.torch._op import INCOMING, PARAM, RANDOM, RESULT
from opdock.torch._shape import Rule


class Alignment(NamedTuple):
    """Where a tensor's dimensions are among those of a call, which begin with the rows'."""

    kind: str
    lacks: int = 0  # how many of the call's last dimensions the tensor does not have


#: The tensor has the call's first dimensions, as results have: it is sharded along with them.
LEADING = Alignment("leading")
#: The tensor is broadcast: a dimension that is missing at the front, or has size 1, is replicated.
BROADCAST = Alignment("broadcast")
#: Each rank needs all of the tensor.
WHOLE = Alignment("whole")


class Sharding(NamedTuple):
    """How the tensors of an op's calls may be sharded."""

    params: dict  # {name: Alignment}
    kept: Any  # kept(ndim, values): the dimensions that are not sharded; values: {name: argument}
    #: For the op of gradients: of each result the Alignment of the parameter that it belongs to.
    #: None: results have the call's first dimensions.
    results: list | None = None


def _of_elements(ndim, values):
    return set()


def _of_rows(ndim, values):
    return {ndim - 1}


def _of_rows_in_order(ndim, values):
    return {ndim - 1, ndim - 2} if values.get("causal") else {ndim - 1}


def _of_heads(ndim, values):
    """Returns rope's: without positions a token's place in the sequence says how it is rotated."""
    return {ndim - 1} if values.get("positions") is not None else {ndim - 1, ndim - 3}


_NORM = {"x": LEADING}, _of_rows
_ADD_NORM = {"x": LEADING, "residual": LEADING}, _of_rows
_SOFTMAX = {"x": LEADING}, _of_rows_in_order
_ROTATED = {"q": LEADING, "k": LEADING, "cos": WHOLE, "sin": WHOLE}
_LOSS = {"logits": LEADING, "target": LEADING}
#: Ops without a formula of which each row is computed by itself. What is not named is BROADCAST.
_OPS = {
    "add_layer_norm": _ADD_NORM,
    "add_rms_norm": _ADD_NORM,
    "bias_add_layer_norm": _ADD_NORM,
    "cross_entropy": (_LOSS, _of_rows),
    "cross_entropy_with_gradient": (
        {**_LOSS, "scale": Alignment("broadcast", 1)},
        _of_rows,
    ),
    "layer_norm": _NORM,
    "log_softmax": _SOFTMAX,
    "rms_norm": _NORM,
    "rope": ({**_ROTATED, "positions": Alignment("broadcast", 2)}, _of_heads),
    "softmax": _SOFTMAX,
}


def _own(op):
    """Returns the Sharding of an op that is listed or has a formula, else None."""
    if op.written or op.flags & RANDOM or op.has_list_results:
        return None
    known = _OPS.get(op.name) if op.formula is None else None
    if known is not None:
        params, kept = known
        return Sharding({op.names[i]: params.get(op.names[i], BROADCAST) for i in op.tensors}, kept)
    text = op.formula_text()
    far = reach(text) if text else OTHERS
    if far == OTHERS:
        return None
    params = {op.names[i]: BROADCAST for i in op.tensors}
    return Sharding(params, _of_elements if far == ELEMENT else _of_rows)


def _of_formula_gradient(op):
    """Returns the Sharding of the gradients of a formula: op.formula is a _register._Gradient."""
    own = _own(op.formula.op)
    if own is None:
        return None
    params = {op.names[i]: own.params.get(op.names[i], LEADING) for i in op.tensors}
    return Sharding(params, own.kept, [own.params[name] for name in op.formula.of])


def _of_gradient(op, ops):
    """Returns the Sharding of an op that others declare as that of their gradients, or None if none
    does, or if they see its tensors in different ways."""
    params, results, kept = {}, {}, None
    for other in ops:
        for of, gradient, arguments in other.function._gradients:
            own = _own(other) if gradient == op.name and other is not op else None
            if own is None:
                continue
            seen = {result: own.params[other.params[index][0]] for index, result in of}
            passed = {}
            for (name, *_), (kind, index, _) in zip(op.params, arguments, strict=True):
                if kind in (RESULT, INCOMING):
                    passed[name] = LEADING
                elif kind == PARAM and other.params[index][0] in own.params:
                    passed[name] = own.params[other.params[index][0]]
            if not (_agree(params, passed) and _agree(results, seen) and kept in (None, own.kept)):
                return None
            kept = own.kept
    if kept is None or any(i not in results for i in op.fresh):
        return None
    params = {op.names[i]: params.get(op.names[i], BROADCAST) for i in op.tensors}
    return Sharding(params, kept, [results[i] for i in op.fresh])


def _agree(known, more):
    """Adds what is new to `known`; returns whether nothing there is another."""
    return all(known.setdefault(key, value) == value for key, value in more.items())


def sharding_of(op, ops):
    """Returns the Sharding of an op, or None if its tensors must not be sharded. ops: all that are
    registered."""
    if getattr(op.formula, "of", None) is not None:
        return _of_formula_gradient(op)
    return _own(op) or _of_gradient(op, ops)


def _place(alignment, shape, ndim, dim):
    """Returns which dimension of a tensor is the call's dimension `dim`, or None if it has none.
    Raises LookupError if it is one that cannot be sharded."""
    if alignment.kind == "leading":
        if dim >= len(shape) or shape[dim] == 1:
            raise LookupError
        return dim
    at = dim - (ndim - alignment.lacks - len(shape))
    is_there = alignment.kind == "broadcast" and 0 <= at < len(shape)
    return at if is_there and shape[at] != 1 else None


def _shapes(op, values):
    """Returns the shape of each result, None for one that the call does not have. Of formulas'
    results that are no gradients the sizes are left out."""
    of = getattr(op.formula, "of", None)
    if of is not None:
        named = dict(zip(op.names, values, strict=True))
        return [named[name].shape for name in of]
    if op.formula is not None:
        return [()] * len(op.fresh)
    found = [Rule(op.rules[i], op.whole(values), None).results() for i in op.fresh]
    return [one and one[1] for one in found]


def _ways(sharding, op, values, specs):
    """Yields (placements of the results, of the tensors) along one dimension of a device mesh: each
    way in which the call may be made. specs: {name: tensor}, those of the call."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    shapes = _shapes(op, values)
    yield (
        [None if s is None else Replicate() for s in shapes],
        [Replicate() for _ in specs],
    )
    if sharding is None:
        return
    inputs = [(sharding.params[name], tuple(x.shape)) for name, x in specs.items()]
    outputs = [*zip(sharding.results or [LEADING] * len(shapes), shapes, strict=True)]
    ndim = max(len(shape) + alignment.lacks for alignment, shape in inputs)
    kept = sharding.kept(ndim, dict(zip(op.names, values, strict=True)))
    for dim in sorted({*range(ndim)} - kept):
        try:
            places = [_place(*one, ndim, dim) for one in inputs]
            if all(at is None for at in places):
                continue
            if sharding.results is None:
                found = [dim] * len(shapes)
            else:
                found = [None if s is None else _place(t, s, ndim, dim) for t, s in outputs]
        except LookupError:
            continue
        # The gradient of a broadcast tensor is a sum over the rows: each rank has a part of it.
        yield (
            [
                None if s is None else Partial("sum") if at is None else Shard(at)
                for at, s in zip(found, shapes, strict=True)
            ],
            [Replicate() if at is None else Shard(at) for at in places],
        )


def _rule_of(op, ops):
    """Returns the rule, as torch's register_sharding takes it. ops: {name: Op} of all operators."""
    sharding = None

    def rule(*args, **keywords):
        nonlocal sharding
        values = op.bind(args, keywords)
        if op.written or op.flags & RANDOM or op.has_list_results or _has_list(op, values):
            raise UnsupportedError(
                f"{op.name}: found a DTensor, wanted plain tensors for an op that {_what(op)}; "
                "pass x.to_local() to have each rank call it on its own part, or x.full_tensor()"
            )
        specs = {op.names[i]: values[i] for i in op.tensors if values[i] is not None}
        sharding = sharding or sharding_of(op, ops.values())
        if sharding is None and not all(_is_replicated(x) for x in specs.values()):
            raise UnsupportedError(
                f"{op.name}: found a DTensor that is sharded, wanted a replicated one, as nothing "
                "says which dimensions of this op are independent; pass x.full_tensor(), or "
                "x.redistribute(placements=[Replicate()])"
            )
        return [*_ways(sharding, op, values, specs)]

    return rule


def _has_list(op, values):
    return any(isinstance(values[i], (list, tuple)) for i in op.tensors)


def _is_replicated(spec):
    return all(placement.is_replicate() for placement in spec.placements)


def _what(op):
    if op.written:
        return "writes into its arguments"
    return "draws random numbers" if op.flags & RANDOM else "takes or returns lists of tensors"


_waiting = []  # operators of which DTensor has no rule yet, with all operators


def add(op, ops):
    """Has DTensor know the operator, now or later. ops: {name: Op} of all operators."""
    _waiting.append((op, ops))
    flush()


def flush():
    """Registers the rules of all operators that came since the last call, if the program uses
    torch.distributed.tensor."""
    if not _waiting or not hasattr(sys.modules.get("torch.distributed.tensor"), "DTensor"):
        return
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    facts = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    while _waiting:
        op, ops = _waiting.pop()
        register_sharding(op.overload)(_rule_of(op, ops))
        # DTensor keeps a rule's answer for calls that are alike. By register_sharding only tensors
        # and ints make a difference; here also bools, texts and dtypes, from the first of them on.
        # Floats would fill that memory where each call has another one.
        arguments = op.overload._schema.arguments
        known = [i for i, one in enumerate(arguments) if not _is_tensor_or_float(one.type)]
        keywords = [arguments[i].name for i in known if arguments[i].kwarg_only]
        first = known[0] if known else len(arguments)
        facts[op.overload] = RuntimeSchemaInfo(first, keywords or None, needs_pytree=True)


def _is_tensor_or_float(kind):
    """Returns whether a parameter of this type of torch's is a tensor or a float."""
    if isinstance(kind, (torch.OptionalType, torch.ListType)):
        return _is_tensor_or_float(kind.getElementType())
    return isinstance(kind, (torch.TensorType, torch.FloatType))
