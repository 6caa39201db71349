# SPDX-License-Identifier: Apache-2.0
"""Evaluates shape rules with symbolic sizes: an op's results as (dtype, shape), without its code.

The rules come as _opdock.shape_rules() returns them. Sizes may be torch.SymInts: no rule looks at
a size in order to choose, so that one graph serves all sizes.
"""

import torch

from opdock._names import DTYPES

_END = 2**63 - 1
_MAX, _MIN = 11, 12
_BINARY = {
    6: lambda a, b: a + b,
    7: lambda a, b: a - b,
    8: lambda a, b: a * b,
    9: lambda a, b: a // b,
    _MAX: torch.sym_max,
    _MIN: torch.sym_min,
}

#: DLPack's numbers -> torch's dtype
TORCH_DTYPES = {
    numbers: getattr(torch, name) for name, numbers in DTYPES.items() if hasattr(torch, name)
}


class Rule:
    """The shape rule of one result, with the arguments of one call: all of the op's parameters in
    the schema's order."""

    def __init__(self, rule, arguments, first_tensor):
        self.condition, self.then, self.otherwise, self.count, self.nodes = rule
        self.arguments = arguments
        self.first_tensor = first_tensor
        self.index = 0  # the index of the element, in a result that is a list

    def results(self):
        """Returns a list of (dtype, shape) for a result that is a list, else one of them; None if
        the call has no such result."""
        if self.count >= 0:
            return [self._result(index) for index in range(self._value(self.count))]
        return self._result()

    def _result(self, index=0):
        self.index = index
        holds = self.condition < 0 or self._value(self.condition)
        shape = self.then if holds else self.otherwise
        if shape is None:
            return None
        dims, dtype, dtype_param, dtype_element = shape
        return self._dtype(dtype, dtype_param, dtype_element), self._sizes(dims)

    def _argument(self, param, element):
        found = self.arguments[param]
        return found if element < 0 else found[self._value(element)]

    def _dtype(self, numbers, param, element):
        if numbers is not None:
            return TORCH_DTYPES[numbers]
        found = self.first_tensor if param < 0 else self._argument(param, element)
        return found.dtype if isinstance(found, torch.Tensor) else found

    def _sizes(self, dims):
        sizes = []
        for expr, param, element, first, last in dims:
            if expr >= 0:
                sizes.append(self._value(expr))
            else:
                run = self._argument(param, element).shape
                sizes += run[first : None if last == _END else last]
        return sizes

    def _value(self, node):
        kind, param, integer, a, b, c, element = self.nodes[node]
        if kind in _BINARY:
            return _BINARY[kind](self._value(a), self._value(b))
        match kind:
            case 0:
                return integer
            case 1:
                return self._argument(param, element)
            case 2:
                return self._argument(param, element).shape[self._value(a)]
            case 3:
                return self._argument(param, element).ndim
            case 4:
                return len(self.arguments[param])
            case 5:
                return self.index
            case 10:
                return -self._value(a)
            case 13:
                return self._value(a) if self._value(c) else self._value(b)
            case 14:
                return bool(self.arguments[param])
            case 15:
                return self.arguments[param] is not None
            case 16:
                return not self._value(a)
        raise AssertionError(f"found an expression of kind {kind}, wanted one of opdock.h")


def first_tensor(arguments):
    """Returns the first tensor among the arguments, also in their lists."""
    for one in arguments:
        for x in one if isinstance(one, (list, tuple)) else (one,):
            if isinstance(x, torch.Tensor):
                return x
    return None
