# SPDX-License-Identifier: Apache-2.0
"""Writes a region as a formula: its text and its schema."""

import re

import torch

from opdock.torch.backend._fusable import literal_of, number_text
from opdock.torch.backend._values import DTYPES, is_number, is_tensor, value

_PLACES = re.compile(r"\{(\d+)\}")


def text_of(region):
    """Returns (schema, text) of a region. The parameters are region.inputs, then region.numbers;
    the results are region.results. Equal regions get equal texts."""
    return _Writer(region).write()


class _Writer:
    def __init__(self, region):
        self.region = region
        self.own = {one.node for one in region.nodes}
        self.inputs = {key: f"a{i}" for i, key in enumerate(region.inputs)}
        self.numbers = {node: f"n{i}" for i, node in enumerate(region.numbers)}
        self.names = {}  # node of the region -> the variable that has its value
        self.lines = []

    def write(self):
        for one in self.region.nodes:
            self._write(one)
        results = [self._result(node, kind) for node, kind in self.region.results]
        body = "\n".join([*self.lines, f"return {', '.join(results)}"])
        params = [f"Tensor {name}" for name in self.inputs.values()]
        for node, name in self.numbers.items():
            is_int = isinstance(value(node), (int, torch.SymInt))
            params.append(f"{'int' if is_int else 'float'} {name}")
        tensors = ", ".join(["Tensor"] * len(results))
        tensors = tensors if len(results) == 1 else f"({tensors})"
        return f"region({', '.join(params)}) -> {tensors}", body

    def _write(self, one):
        text = self._filled(one)
        if re.fullmatch(r"\w+", text) and not text[0].isdigit():
            self.names[one.node] = text  # a value that has a name already
            return
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.names[one.node] = name

    def _filled(self, one):
        reads_drops = one.node in self.region.drops and one.kind != "reduce"
        wanted = self._dtypes(one)

        def operand(match):
            place = int(match[1])
            return self._operand(one.args[place], wanted(place), reads_drops)

        return _PLACES.sub(operand, one.text)

    def _dtypes(self, one):
        """Returns the function that says in which dtype an argument is computed, or None."""
        if one.kind not in ("point", "row") or one.rule == "free":
            return lambda place: None
        dtype = value(one.node).dtype
        if one.rule == "compare":
            dtype = _promoted([value(x) for x in one.args if is_tensor(x)])
        condition = {"where": 0, "fill": 1}.get(one.rule)
        return lambda place: None if place == condition else dtype

    def _operand(self, x, dtype, reads_drops):
        if is_number(x):
            return self.numbers[x]
        number = literal_of(x)
        if number is not None:
            return number_text(_as(number, value(x).dtype))
        if not is_tensor(x):
            return number_text(x)
        name = self.names[x] if x in self.own else self.inputs[x, reads_drops]
        if dtype is not None and dtype is not value(x).dtype:
            return f"{name}.to({DTYPES[dtype]})"
        return name

    def _result(self, node, kind):
        name = self.names[node]
        dtype = value(node).dtype
        if kind == "row" and not self.region.rows[node]:
            # A formula stores one number for each row of what comes from a reduction: the largest
            # of equal numbers is the number itself. column() makes it one for each column first.
            if dtype is torch.bool:
                name = f"any(where(column() < 0, False, {name}))"
            else:
                name = f"amax(where(column() < 0, 0, {name}))"
        return f"{name}.to({DTYPES[dtype]})"


def _as(number, dtype):
    """Returns a number as a tensor of that dtype has it."""
    if dtype is torch.bool:
        return bool(number)
    return float(number) if dtype.is_floating_point else int(number)


def _promoted(values):
    """Returns the dtype in which torch compares these tensors; None if they have one dtype."""
    if len({x.dtype for x in values}) < 2:
        return None
    models = [torch.empty((1,) * min(x.ndim, 1), dtype=x.dtype) for x in values]
    return torch.result_type(*models)
