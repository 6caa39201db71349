# SPDX-License-Identifier: Apache-2.0
"""What is known of an op that is registered: its parameters, results and gradients."""

import torch

from opdock import _opdock
from opdock._describe import LIST, TENSOR
from opdock._errors import ArgumentError
from opdock._formula import Formula
from opdock.torch._schema import KEYWORD_ONLY, WRITTEN, fresh, visible

# Kinds of a gradient's arguments, with opdock.h's values.
PARAM, RESULT, INCOMING = 0, 1, 2
INT = 2  # the tag of a parameter that may be a symbolic size
# Flags of an op, with plugin.h's values.
CAPTURE_SAFE, HOST_SYNC, MAY_BLOCK, RANDOM = 2, 64, 16, 128


def _plain(x):
    """Returns a tensor of a subclass as a torch.Tensor, also in a list; anything else as it is."""
    if isinstance(x, (list, tuple)):
        found = [_plain(one) for one in x]
        return x if all(a is b for a, b in zip(found, x, strict=True)) else found
    if not isinstance(x, torch.Tensor) or type(x) in (torch.Tensor, torch.nn.Parameter):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor)


class Op:
    """An op of a plugin, or a formula, and the operator of torch that stands for it."""

    def __init__(self, name, function, formula=None):
        self.name = name  # after torch.ops.opdock.
        self.function = function
        self.formula = formula  # an opdock._formula.Formula, or None
        self.params = function._params
        self.flags, self.device_arg = _opdock.op_facts(function)
        self.visible = visible(function)  # the operator's parameters, as indices of the op's
        self.names = [self.params[i][0] for i in self.visible]
        self.defaults = [self.params[i][3] for i in self.visible]
        self.fresh = fresh(function)  # the operator's results, as indices of the op's
        self.has_sizes = any(self.params[i][1] == INT for i in self.visible)
        self.has_list_results = any(function._results[i][2] & LIST for i in self.fresh)
        self.is_lossless = len(self.fresh) == len(function._results)
        self.written = [
            place for place, i in enumerate(self.visible) if self.params[i][2] & WRITTEN
        ]
        self.tensors = [
            place for place, i in enumerate(self.visible) if self.params[i][1] == TENSOR
        ]
        self.num_positional = self._count_positional()
        self.rules = _opdock.shape_rules(function)
        self.saved_params, self.saved_results = self._saved()
        self.overload = None  # set once the operator is defined
        self.formula_gradient = None  # likewise: returns the Op of the gradients of some parameters

    def formula_text(self):
        """Returns the formula that the op is, "" if it has none. Loads the op's plugin."""
        if self.formula is None:
            return _opdock.formula_text(self.function)
        return self.formula.text if isinstance(self.formula, Formula) else ""

    def _count_positional(self):
        """Returns how many of the operator's parameters the function takes by position."""
        count = 0
        for place, i in enumerate(self.visible):
            if i != place or self.params[i][2] & KEYWORD_ONLY:
                break
            count += 1
        return count

    def _saved(self):
        """Returns the places of the parameters and of the results that the gradients are computed
        from."""
        if self.formula is not None:
            return set(range(len(self.visible))), set()
        uses = [arg for _, op, args in self.function._gradients if op is not None for arg in args]
        params = {index for kind, index, _ in uses if kind == PARAM}
        results = {index for kind, index, _ in uses if kind == RESULT}
        return (
            {place for place, i in enumerate(self.visible) if i in params},
            {place for place, i in enumerate(self.fresh) if i in results},
        )

    def bind(self, args, keywords):
        """Returns all arguments of the operator in its order, with defaults: the dispatcher leaves
        out those that are equal to them."""
        values = [*args, *self.defaults[len(args) :]]
        for name, value in keywords.items():
            values[self.names.index(name)] = value
        return values

    def whole(self, values):
        """Returns the arguments of all of the op's parameters, from those of the operator."""
        if len(values) == len(self.params):
            return values
        found = [None] * len(self.params)
        for i, value in zip(self.visible, values, strict=True):
            found[i] = value
        return found

    def call(self, *args, **keywords):
        """Calls the op itself."""
        try:
            if not keywords and len(args) <= self.num_positional and self.is_lossless:
                return self.function(*args)
            return self._call(args, keywords)
        except ArgumentError:
            # A subclass with a __torch_function__ has had its say when the operator was called.
            plain = [_plain(x) for x in (*args, *keywords.values())]
            if all(x is y for x, y in zip(plain, (*args, *keywords.values()), strict=True)):
                raise
        return self._call(plain[: len(args)], dict(zip(keywords, plain[len(args) :], strict=True)))

    def _call(self, args, keywords):
        count = self.num_positional
        if len(args) > count:
            keywords.update(zip(self.names[count:], args[count:], strict=False))
            args = args[:count]
        found = self.function(*args, **keywords)
        return found if self.is_lossless else self._fresh_of(found)

    def _fresh_of(self, found):
        """Returns the new tensors among the results, without the parameters that are returned."""
        results = found if isinstance(found, tuple) else (found,)
        kept = tuple(results[i] for i in self.fresh)
        return None if not kept else kept[0] if len(kept) == 1 else kept

    def tags(self):
        """Returns the tags that tell torch.compile and CUDA graphs about the op."""
        tags = [torch.Tag.pt2_compliant_tag]
        if not self.flags & CAPTURE_SAFE or self.flags & (HOST_SYNC | MAY_BLOCK):
            tags.append(torch.Tag.cudagraph_unsafe)
        if self.flags & RANDOM:
            tags.append(torch.Tag.nondeterministic_seeded)
        return tuple(tags)
