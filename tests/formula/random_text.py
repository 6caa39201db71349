# SPDX-License-Identifier: Apache-2.0
"""The text of a random formula, and the reference that it is compared with."""

import math
import random

import torch
from random_operations import ATOM, POWER, UNARY


class Written:
    """The part of a Program that asks for its values: seed, inputs, scalars, values and uses are
    the Program's."""

    def cone(self, names):
        """Returns the names of all values that these need."""
        needed, stack = set(), list(names)
        while stack:
            name = stack.pop()
            if name not in needed:
                needed.add(name)
                stack += self.values[name].args
        return needed

    def leaves(self):
        """Returns the results: the statements that nothing uses."""
        found = [x.name for x in self.values.values() if x.code and not self.uses.get(x.name)]
        found = found[:32]
        return found if self.has_tensors(found) else []

    def has_tensors(self, names):
        """Returns whether these values depend on a tensor, as a formula has to."""
        needed = self.cone(names)
        return any(x.name in needed for x in self.inputs)

    def write(self, results):
        """Returns the formula that gives these values, its schema, and the names of its tensors."""
        needed = self.cone(results)
        uses = {}
        for name in needed:
            for arg in self.values[name].args:
                uses[arg] = uses.get(arg, 0) + 1
        shown, lines, pick = {}, [], random.Random(self.seed)
        for value in self.values.values():
            if value.name not in needed or not value.code:
                continue
            text = _Fill(self.values, shown).fill(value.text)
            if (
                uses.get(value.name) == 1
                and value.name not in results
                and pick.random() < 0.6
                and len(text) < 200
            ):
                shown[value.name] = text, value.binds
            else:
                lines.append(f"{value.name} = {text}")
        lines.append("return " + ", ".join(results))
        tensors = [x for x in self.inputs if x.name in needed]
        parameters = [f"Tensor {x.name}" for x in tensors]
        parameters += [f"{'int' if n == 'n' else 'float'} {n}" for n in self.scalars if n in needed]
        out = ", ".join(["Tensor"] * len(results))
        out = f"({out})" if len(results) > 1 else out
        return "\n".join(lines), f"f({', '.join(parameters)}) -> {out}", tensors

    def shapes(self, results, tensors):
        """Returns the shapes that the results should have, and the space."""
        space = torch.broadcast_shapes(*[x.shape for x in tensors])
        reduces = any(self.values[x].reduces for x in self.cone(results))
        short = [not self.values[x].per_column and reduces and len(space) > 0 for x in results]
        return [space[:-1] if s else space for s in short], space

    def reference(self, results, tensors, noise, data):
        """Computes the results by torch, with a first dimension for the noise."""
        _, space = self.shapes(results, tensors)
        space = tuple(space) or (1,)  # a number counts as a row of one
        rank, env = len(space), {"N": noise, "torch": torch}
        for x in tensors:
            value = data[x.name]
            value = value.double() if value.is_floating_point() else value
            env[x.name] = value.reshape((1,) * (1 + rank - value.ndim) + tuple(value.shape))
        env["row"] = torch.arange(math.prod(space[:-1])).reshape(1, *space[:-1], 1)
        env["column"] = torch.arange(space[-1]).reshape((1,) * rank + (-1,))
        needed = self.cone(results)
        for value in self.values.values():
            if value.name in needed and value.code:
                env[value.name] = eval(value.code, env)
        return [env[name] for name in results]


class _Fill:
    """Puts operands into a text, in parentheses where they are needed."""

    def __init__(self, values, shown):
        self.values, self.shown = values, shown

    def fill(self, text):
        out, at = [], 0
        while (begin := text.find("{", at)) >= 0:
            end = text.index("}", begin)
            name, place = text[begin + 1 : end].rsplit(":", 1)
            out += [text[at:begin], self._operand(name, int(place[:-1]), place[-1])]
            at = end + 1
        return "".join(out) + text[at:]

    def _operand(self, name, level, side):
        literal = name not in self.values
        text, binds = self.shown.get(name, (name, UNARY if name[0] == "-" else ATOM))
        if literal and level == ATOM:
            return f"({text})"
        needs = binds < level or (
            binds == level and level < ATOM and (side == "r") != (level == POWER)
        )
        if level == UNARY and binds >= UNARY:
            needs = False
        if level == POWER and side == "r" and binds >= UNARY:
            needs = False
        return f"({text})" if needs else text
