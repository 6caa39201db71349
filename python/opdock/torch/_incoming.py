# SPDX-License-Identifier: Apache-2.0
"""Prepares the gradients of an operator's results for the op that continues with them."""

import functools
import sys

import torch


def zeros_like(x):
    """Returns the function that makes zeros for the gradient of a result; it does not keep x."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(x, distributed.DTensor):
        where = {"device_mesh": x.device_mesh, "placements": x.placements}
        return functools.partial(distributed.zeros, x.shape, dtype=x.dtype, **where)
    return functools.partial(torch.zeros, x.shape, dtype=x.dtype, device=x.device)


def incoming(gradient, zeros, may_lack):
    """Returns the gradient of a result, contiguous, or zeros if there is none; None if the op that
    takes it allows that."""
    if isinstance(gradient, list):
        return [incoming(g, z, False) for g, z in zip(gradient, zeros, strict=True)]
    if gradient is not None:
        return gradient.contiguous()
    return None if may_lack or zeros is None else zeros()
