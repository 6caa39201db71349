# SPDX-License-Identifier: Apache-2.0
"""Makes an operator's rule for torch.vmap: a call for each element of the batch.

What an op declares does not say which of its dimensions are independent, so that the calls are
made one by one, which is right for each op and as fast as a loop. An op that writes into its
arguments, or that would have to draw the same random numbers for each element, is refused.
"""

import torch
from torch.utils import _pytree as pytree

from opdock._errors import UnsupportedError
from opdock.torch._op import RANDOM


def rule_of(op):
    """Returns the rule, as torch.library.register_vmap takes it."""

    def rule(info, in_dims, *args):
        if op.written:
            _refuse(op, "an op that writes into its arguments", "loop over the batch")
        if op.flags & RANDOM and info.randomness != "different":
            _refuse(
                op,
                f"an op that draws random numbers, and randomness={info.randomness!r}",
                "call torch.vmap with randomness='different'",
            )
        if info.batch_size == 0:
            _refuse(op, "a batch of no elements", "leave out the call")
        calls = [_one(op, in_dims, args, i) for i in range(info.batch_size)]
        return _stack(calls)

    return rule


def _refuse(op, found, advice):
    raise UnsupportedError(
        f"{op.name}: found {found} inside torch.vmap, wanted one that can be called for each "
        f"element; {advice}"
    )


def _one(op, in_dims, args, i):
    """Calls the op for element `i` of the batch."""
    values = []
    for dims, value in zip(in_dims, args, strict=True):
        if isinstance(value, (list, tuple)) and isinstance(dims, (list, tuple)):
            values.append([_select(x, d, i) for x, d in zip(value, dims, strict=True)])
        else:
            values.append(_select(value, dims, i))
    return op.overload(*values)


def _select(value, dim, i):
    if dim is None or not isinstance(value, torch.Tensor):
        return value
    return value.select(dim, i).contiguous()  # ops want stride 1 in the last dimension


def _stack(calls):
    """Returns the results of all calls, each stacked along a new first dimension, and where that
    dimension is."""
    flat = [pytree.tree_flatten(call) for call in calls]
    spec = flat[0][1]
    columns = list(zip(*[leaves for leaves, _ in flat], strict=True))
    stacked = [None if column[0] is None else torch.stack(column) for column in columns]
    dims = [None if one is None else 0 for one in stacked]
    return pytree.tree_unflatten(stacked, spec), pytree.tree_unflatten(dims, spec)
