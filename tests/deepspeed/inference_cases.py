# SPDX-License-Identifier: Apache-2.0
"""What the tests of the inference binding share: dtypes, bounds, and a comparison with float64."""

import pytest
import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: (rtol, atol) of DeepSpeed's own tests
THEIRS = {"fp32": (5e-4, 5e-5), "fp16": (3e-2, 2e-3), "bf16": (4.8e-1, 3.2e-2)}
#: ours: below theirs by 500 and 100 in float32, 50 and 100 in float16, 96 and 100 in bfloat16
BOUNDS = {"fp32": (1e-6, 5e-7), "fp16": (6e-4, 2e-5), "bf16": (5e-3, 3.2e-4)}
NONE = torch.empty(1)  # how DeepSpeed passes "no mask", "no alibi", "no scale"

each_dtype = pytest.mark.parametrize("suffix", DTYPES)


@pytest.fixture
def random():
    """random(shape, suffix, scale): normal numbers, the same in each run."""
    generator = torch.Generator().manual_seed(20)

    def make(shape, suffix="fp32", scale=1.0):
        numbers = torch.randn(shape, generator=generator) * scale
        return numbers.to(DTYPES[suffix])

    return make


def assert_close(found, wanted, suffix, times=1.0):
    """found, of the suffix's dtype, equals wanted, float64, within `times` the bounds."""
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    rtol, atol = (bound * times for bound in BOUNDS[suffix])
    theirs = THEIRS[suffix]
    assert rtol <= theirs[0] / 10 and atol <= theirs[1] / 10, "a bound that is not far below theirs"
    found, wanted = found.double(), wanted.double()
    worst = ((found - wanted).abs() / (atol + rtol * wanted.abs())).nan_to_num(torch.inf)
    worst = worst.masked_fill(found == wanted, 0).max().item() if found.numel() else 0.0
    assert worst <= 1, f"{worst:.3g} times the bound"


def assert_product_close(found, wanted, suffix, roundings=2):
    """found equals wanted, float64, within so many roundings of its dtype of the element and of the
    whole's root mean square: products cancel. In float32 a rounding counts 8, for the sums."""
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    unit = torch.finfo(found.dtype).eps / 2 * (8 if suffix == "fp32" else 1)
    scale = wanted.abs() + wanted.square().mean().sqrt()
    worst = ((found.double() - wanted).abs() / (unit * scale)).max().item()
    assert worst <= roundings, f"{worst:.3g} roundings"


def gelu(x, approximate="tanh"):
    """GELU in float64 by its definition."""
    if approximate == "tanh":
        return x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def layer_norm(x, gamma=None, beta=None, eps=1e-5):
    """Layer norm in float64 by its definition: the population's variance."""
    x = x.double()
    y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + eps
    )
    y = y if gamma is None else y * gamma.double()
    return y if beta is None else y + beta.double()


def rms_norm(x, gamma, eps=1e-5):
    """RMS norm in float64 by its definition."""
    x = x.double()
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gamma.double()
