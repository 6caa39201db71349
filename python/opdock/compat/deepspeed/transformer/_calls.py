# SPDX-License-Identifier: Apache-2.0
"""How the module's functions are called: as DeepSpeed's, which torch's modes do not change."""

import functools

import torch


def plain(function):
    """Decorates a function to record no gradients, and to round nothing in an autocast region."""

    @functools.wraps(function)
    def call(*arguments, **named):
        if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
            with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
                return call(*arguments, **named)
        if not torch.is_grad_enabled():
            return function(*arguments, **named)
        with torch.no_grad():
            return function(*arguments, **named)

    return call
