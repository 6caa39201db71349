# SPDX-License-Identifier: Apache-2.0
"""Functions that record no gradients, as DeepSpeed's kernels record none."""

import functools

import torch


def without_gradients(function):
    """Decorates a function to record no gradients. Where none are recorded anyway, it costs less
    than torch.no_grad()."""

    @functools.wraps(function)
    def call(*arguments, **named):
        if not torch.is_grad_enabled():
            return function(*arguments, **named)
        with torch.no_grad():
            return function(*arguments, **named)

    return call
