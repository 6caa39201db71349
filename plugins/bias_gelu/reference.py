# SPDX-License-Identifier: Apache-2.0
"""bias_gelu in PyTorch: the oracle of the plugin's tests."""

import torch


def bias_gelu(x, bias):
    """Returns the GELU of x + bias, by its tanh approximation.

    x: floating, shape [..., L]. bias: shape [L]. The result has x's dtype; computed in float64 if x
    is float64, else in float32."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    y = torch.nn.functional.gelu(x.to(compute) + bias.to(compute), approximate="tanh")
    return y.to(x.dtype)
