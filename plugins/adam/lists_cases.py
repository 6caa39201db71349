# SPDX-License-Identifier: Apache-2.0
"""The lists of tensors that the tests of this plugin's ops call them with."""

import copy

import row_cases
import torch

import opdock
from opdock.testing import on

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
# Dtypes of params, grads and states; whether there are masters.
KINDS = [(F32, F32, F32, False)]
for narrow in (F16, BF16):
    KINDS += [(narrow, g, a, m) for g in (narrow, F32) for a in (narrow, F32) for m in (0, 1)]
SIZES = [0, 1, 3, 1000, 65537]

AVERAGES = ("exp_avgs", "exp_avg_sqs")
#: op -> what it keeps of earlier gradients
STATES = {
    "adamw_": AVERAGES,
    "adam_": AVERAGES,
    "lion_": AVERAGES[:1],
    "adagrad_": ("state_sums",),
    "lamb_": AVERAGES,
}
#: the ops that count their steps
COUNTING = ("adamw_", "adam_", "lamb_")


class State:
    """The lists that a call takes, with random numbers, on the CPU."""

    def __init__(self, shapes, kind=KINDS[0], step=3.0, seed=0, op="adamw_"):
        param, grad, state, has_masters = kind
        self.op, self.states = op, STATES[op]

        def numbers(dtype, number, deviation=1.0):
            return [
                row_cases.random(s if isinstance(s, tuple) else (s,), dtype, key, deviation)
                for key, s in enumerate(shapes, 1000 * number + seed)
            ]

        self.masters = numbers(F32, 1) if has_masters else None
        self.params = [w.to(param) for w in self.masters] if has_masters else numbers(param, 1)
        self.grads = numbers(grad, 2)
        for name in self.states:
            if name == "exp_avgs":
                self.exp_avgs = numbers(state, 3, 0.5)
            else:
                setattr(self, name, [x.square() for x in numbers(state, 4)])
        self.step = torch.tensor(step) if op in COUNTING else None

    def names(self):
        """Returns the lists' names."""
        return ("params", "grads", *self.states, "masters")

    def lists(self):
        """Yields all tensors but step, with their list's name and their number."""
        for name in self.names():
            for i, x in enumerate(getattr(self, name) or []):
                yield (name, i), x

    def change(self, function):
        """Replaces each tensor x of the lists by function(x, its number)."""
        for name in self.names():
            if getattr(self, name) is not None:
                setattr(self, name, [function(x, i) for i, x in enumerate(getattr(self, name))])
        return self

    def __deepcopy__(self, memo):
        other = copy.copy(self).change(lambda x, _: x.clone())
        other.step = None if self.step is None else self.step.clone()
        return other

    def call(self, function, **options):
        lists = [getattr(self, name) for name in ("params", "grads", *self.states)]
        step = [] if self.step is None else [self.step]
        return function(*lists, *step, masters=self.masters, **options)


def optimize(device, state, **options):
    """Calls the state's op, and asserts that the tensors that it only reads are unchanged. Returns
    its result."""
    read = [x.clone() for x in state.grads]
    found = state.call(on(device, getattr(opdock.ops, state.op)), **options)
    for before, after in zip(read, state.grads, strict=True):
        assert torch.equal(before, after) or before.isnan().any()
    return found


def same(one, other):
    """Asserts that all tensors of two states are equal."""
    for (_, x), (_, y) in zip(one.lists(), other.lists(), strict=True):
        assert torch.equal(x, y)
    assert one.step is other.step or torch.equal(one.step, other.step)


def moved(x, offset):
    """Returns a copy of a vector that begins this many elements after an aligned address."""
    return torch.cat([x.new_zeros(offset), x])[offset:]


def reordered(x, number):
    """Returns a tensor that is channels_last, transposed, or has a dimension of size 1 with any
    stride; it has the number's shape of REORDERED."""
    if number == 0:
        return x.to(memory_format=torch.channels_last)
    return x.t() if number == 1 else x.as_strided(x.shape, (7, 3, 1))


REORDERED = [(2, 5, 3, 4), (17, 33), (1, 4, 3)]
