# SPDX-License-Identifier: Apache-2.0
"""Makes an operator's kernel for autograd: from the gradients that the op declares, or an error.

A derivative that is not declared is never zero or None in silence. The kernel sees every call in
which autograd or one of torch.func's transforms takes part, and raises an error that names the op
for what it cannot differentiate.
"""

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from opdock._describe import OPTIONAL
from opdock._errors import UnsupportedError
from opdock.torch import _tangents
from opdock.torch._formula import backward_of_formula
from opdock.torch._incoming import incoming, zeros_like
from opdock.torch._op import INCOMING, PARAM, RESULT

_below = torch._C._after_autograd_keyset
#: The keys of a call to which nothing but the op itself is left: no mode, transform or wrapper.
_BACKENDS = {
    torch._C.DispatchKeySet(key).raw_repr()
    for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
}


def kernel_of(op, find):
    """Returns the Autograd kernel of `op`. find(name): returns the Op of a gradient's op."""

    def kernel(keyset, *args, **keywords):
        if _tangents.may_be_any() and _tangents.has_any((*args, *keywords.values())):
            return _tangents.call(op, op.bind(args, keywords))
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args, *keywords.values()):
            return _record(op, find, keyset, op.bind(args, keywords))
        rest = keyset & _below
        if rest.raw_repr() in _BACKENDS:  # what the dispatcher would call next is this
            return op.call(*args, **keywords)
        with torch._C._AutoDispatchBelowAutograd():
            return op.overload.redispatch(rest, *args, **keywords)

    return kernel


def _record(op, find, keyset, values):
    if op.written:
        raise UnsupportedError(
            f"{op.name}: found a tensor that requires a gradient, which an op that writes into its "
            "arguments does not record; call it under torch.no_grad(), or pass x.detach()"
        )
    tensors, *given = _sorted(values)
    call = op, find, keyset, values, *given
    if torch._C._functorch.peek_interpreter_stack() is None:
        return _pack(_Call.apply(call, *tensors))
    with enable_single_level_autograd_function():  # inside torch.func.grad and its like
        return _pack(_Call.apply(call, *tensors))


def _sorted(values):
    """Returns the tensors among values and in their lists; the place of the value of each; the
    values without them, of which a tensor leaves only its place; and how the tensors of each value
    lie among all: None for no tensor, a list of bools for a list, True for a tensor."""
    tensors, places, others, given = [], [], [], []
    for place, value in enumerate(values):
        other, there = value, None
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            places.append(place)
            other, there = None, True
        elif isinstance(value, (list, tuple)):
            found = [isinstance(x, torch.Tensor) for x in value]
            if any(found):
                tensors += [x for x in value if isinstance(x, torch.Tensor)]
                places += [place] * sum(found)
                other, there = None, found
        others.append(other)
        given.append(there)
    return tensors, places, others, given


def _pack(flat):
    """Returns the results in their form from what _Call returned: a flat tuple and a list of the
    lengths of the results that are lists."""
    *tensors, lengths = flat
    if lengths is None:
        return tensors[0] if len(tensors) == 1 else tuple(tensors)
    found, at = [], 0
    for length in lengths:
        if length is None:
            found.append(tensors[at])
            at += 1
        else:
            found.append(tensors[at : at + length])
            at += length
    return found[0] if len(found) == 1 else tuple(found)


def flatten(found):
    """Returns what an operator returns as a flat list of tensors and Nones."""
    return [] if found is None else _flatten(found)[0]


def _flatten(found):
    if isinstance(found, torch.Tensor):
        return [found], None
    results = found if isinstance(found, tuple) else (found,)
    if not any(isinstance(one, (list, tuple)) for one in results):
        return list(results), None
    flat, lengths = [], []
    for one in results:
        is_list = isinstance(one, (list, tuple))
        flat += one if is_list else [one]
        lengths.append(len(one) if is_list else None)
    return flat, lengths


# One level of torch.func's transforms: this class's apply() records a call for the level that
# called the kernel. torch.autograd.Function's would start with the outermost level again.
class _Call(_SingleLevelFunction):
    @staticmethod
    def forward(ctx, call, *tensors):
        op, find, keyset, values, places, others, given = call
        with torch._C._AutoDispatchBelowAutograd():
            if torch._C._functorch.peek_interpreter_stack() is None:
                found = op.overload.redispatch(keyset & _below, *values)
            else:
                # torch runs forward() with both kinds of differentiation off. The transforms
                # outside of this one, which the call reaches next, must have them on: otherwise
                # their derivatives would be zeros without an error.
                with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                    found = op.overload.redispatch(keyset & _below, *values)
        flat, lengths = _flatten(found)
        # A gradient that is None, for which zeros are needed, can only be one of several.
        zeros = None if len(flat) == 1 else [x if x is None else zeros_like(x) for x in flat]
        ctx.call = op, find, others, given, zeros, lengths
        ctx.set_materialize_grads(False)
        fixed = [x for x in flat if x is not None and not (x.is_floating_point() or x.is_complex())]
        if fixed:
            ctx.mark_non_differentiable(*fixed)
        # A tensor from which no gradient is computed is not kept, and may be written over.
        kept = [
            x if place in op.saved_params else None
            for place, x in zip(places, tensors, strict=True)
        ]
        for place, one in enumerate(_regroup(flat, lengths)):
            for x in one if isinstance(one, list) else (one,):
                kept.append(x if place in op.saved_results else None)
        ctx.save_for_backward(*kept)
        return (*flat, lengths)

    @staticmethod
    def backward(ctx, *grads):
        return (None, *_backward(ctx, grads[:-1]))


class _Saved:
    """What a backward pass may use: arguments and results by their place, and which need one."""

    def __init__(self, ctx, grads):
        saved = list(ctx.saved_tensors)
        needs = ctx.needs_input_grad[1:]
        self.op, self.find, others, all_given, zeros, lengths = ctx.call
        self.values, self.needs, self.spans, at = [], [], [], 0
        for other, given in zip(others, all_given, strict=True):
            begin = at
            if given is None:
                self.values.append(other)
            elif given is True:
                self.values.append(saved[at])
                at += 1
            else:
                whole = []
                for there in given:
                    whole.append(saved[at] if there else None)
                    at += there
                self.values.append(whole)
            self.needs.append(any(needs[begin:at]))
            self.spans.append((begin, at, given))
        self.num_tensors = at
        self.results = _regroup(saved[at:], lengths)
        self.zeros = _regroup([None] if zeros is None else zeros, lengths)
        self.grads = _regroup(list(grads), lengths)


def _regroup(flat, lengths):
    if lengths is None:
        return flat
    found, at = [], 0
    for length in lengths:
        found.append(flat[at] if length is None else flat[at : at + length])
        at += 1 if length is None else length
    return found


def _backward(ctx, grads):
    """Returns a gradient for each tensor of the call."""
    saved = _Saved(ctx, grads)
    out = [None] * saved.num_tensors
    if all(g is None for g in grads):
        return out
    op = saved.op
    wanted = [place for place, needs in enumerate(saved.needs) if needs]
    if op.formula is not None:
        return backward_of_formula(op, saved.find, saved, wanted, out)
    left = set(wanted)
    for params, gradient, formula in op.function._gradients:
        places = {op.visible.index(i): result for i, result in params if i in op.visible}
        mine = [place for place in places if place in left]
        if not mine:
            continue
        if gradient is None:
            _refuse_gradient(op, mine[0], formula)
        helper = saved.find(gradient)
        found = helper.overload(*_arguments(helper, formula, saved))
        found = found if isinstance(found, tuple) else (found,)
        for place in mine:
            one = found[helper.fresh.index(places[place])]
            if one is None:
                _refuse_gradient(op, place, f"{gradient} returned none")
            _put(out, saved.spans[place], one)
            left.discard(place)
    if left:
        _refuse_gradient(op, min(left), "none is declared")
    return out


def _refuse_gradient(op, place, why):
    raise UnsupportedError(
        f"{op.name}: found a gradient to compute for {op.names[place]!r}, which this op does not "
        f"define ({why}); call it under torch.no_grad(), or pass x.detach() for that argument"
    )


def _put(out, span, gradient):
    begin, end, given = span
    if given is True:
        out[begin] = gradient
        return
    there = [g for g, is_there in zip(gradient, given, strict=True) if is_there]
    out[begin:end] = there


def _arguments(helper, formula, saved):
    """Returns the arguments with which the gradient's op is called."""
    found = [None] * len(helper.visible)
    for place, i in enumerate(helper.visible):
        _, _, flags, _ = helper.params[i]
        kind, index, constant = formula[i]
        value = constant
        if kind == PARAM:
            value = saved.values[saved.op.visible.index(index)]
        elif kind == RESULT:
            value = saved.results[saved.op.fresh.index(index)]
        elif kind == INCOMING:
            at = saved.op.fresh.index(index)
            value = incoming(saved.grads[at], saved.zeros[at], bool(flags & OPTIONAL))
        found[place] = value
    return found
