# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the tests of the inference binding: dtypes, bounds, and comparison with float64.

Tensors are made on the CPU and moved to the device; oracles are computed in float64 on the CPU."""

import pytest
import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: (rtol, atol) of DeepSpeed's own tests
THEIRS = {"fp32": (5e-4, 5e-5), "fp16": (3e-2, 2e-3), "bf16": (4.8e-1, 3.2e-2)}
#: (rtol, atol) of these tests: below DeepSpeed's by factors of 500 and 100 in float32, 50 and 100
#: in float16, 96 and 100 in bfloat16
BOUNDS = {"fp32": (1e-6, 5e-7), "fp16": (6e-4, 2e-5), "bf16": (5e-3, 3.2e-4)}
#: how DeepSpeed passes "no mask", "no alibi", "no scale": a CPU tensor, even next to tensors on a
#: GPU
NONE = torch.empty(1)
#: the error of an activation on a GPU, relative to what it multiplies, as in the tests of the
#: plugin `activation`: erf is added to 1, and its error stays where the two cancel; 16-bit results
#: use a shorter approximation
ACTIVATED = {"fp32": 5e-7, "fp16": 1e-5, "bf16": 1e-5}
#: the error that attention weights may add on a GPU, relative to the largest value. The GPU kernels
#: round the weights to float16 or bfloat16 before the product with the values, which the CPU keeps
#: in float32. The float32 kernel computes powers of two, and the product of a score with log2(e)
#: adds a rounding that the exponent multiplies by the score's size.
WEIGHTS = {"fp32": 3e-6, "fp16": 2.0**-11, "bf16": 2.0**-8}

each_dtype = pytest.mark.parametrize("suffix", DTYPES)


@pytest.fixture
def random(device):
    """Returns random(shape, suffix, scale): normally distributed numbers on the device, the same
    ones in each run."""
    generator = torch.Generator().manual_seed(20)

    def make(shape, suffix="fp32", scale=1.0):
        numbers = torch.randn(shape, generator=generator) * scale
        return numbers.to(DTYPES[suffix]).to(device)

    return make


def exact(tensor):
    """Returns the tensor in float64 on the CPU."""
    return tensor.detach().cpu().double()


def more_roundings(tensor):
    """Returns how many more roundings of a product the tensor's device may make than the CPU.

    A library on a GPU may round it before it adds a bias, and what it does not compute itself a
    second kernel does with rounded results (docs/concepts/gemm.md).
    """
    return 2 if tensor.is_cuda and tensor.dtype != torch.float32 else 0


def assert_close(found, wanted, suffix, times=1.0, activated=None):
    """Asserts that found, of the suffix's dtype, equals wanted, float64, within `times` the bounds.

    activated: magnitudes that an activation has multiplied; on a GPU ACTIVATED times them is
    allowed in addition."""
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    rtol, atol = (bound * times for bound in BOUNDS[suffix])
    theirs = THEIRS[suffix]
    assert rtol <= theirs[0] / 10 and atol <= theirs[1] / 10, "a bound that is not far below theirs"
    bound = atol + rtol * exact(wanted).abs()
    if activated is not None and found.is_cuda:
        bound += ACTIVATED[suffix] * activated.abs()
    _assert_within(found, wanted, bound)


def assert_attention_close(found, wanted, values, suffix):
    """Calls assert_close() for weighted means of `values`: 5 times the bounds, plus WEIGHTS on a
    GPU."""
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    rtol, atol = (bound * 5 for bound in BOUNDS[suffix])
    if found.is_cuda:
        atol += WEIGHTS[suffix] * exact(values).abs().max().item()
    _assert_within(found, wanted, atol + rtol * wanted.abs())


def _assert_within(found, wanted, bound):
    found, wanted = exact(found), exact(wanted)
    worst = ((found - wanted).abs() / bound).nan_to_num(torch.inf)
    worst = worst.masked_fill(found == wanted, 0).max().item() if found.numel() else 0.0
    assert worst <= 1, f"{worst:.3g} times the bound"


def assert_product_close(found, wanted, suffix, roundings=2):
    """Asserts that found equals wanted, float64, within `roundings` roundings of its dtype. They
    are relative to the element plus the whole's root mean square, since products cancel. In float32
    a rounding counts 8 times, for the sums. more_roundings() are allowed in addition."""
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    unit = torch.finfo(found.dtype).eps / 2 * (8 if suffix == "fp32" else 1)
    scale = wanted.abs() + wanted.square().mean().sqrt()
    worst = ((exact(found) - wanted).abs() / (unit * scale)).max().item()
    assert worst <= roundings + more_roundings(found), f"{worst:.3g} roundings"


def gelu(x, approximate="tanh"):
    """Computes GELU in float64 by its definition."""
    if approximate == "tanh":
        return x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def layer_norm(x, gamma=None, beta=None, eps=1e-5):
    """Computes layer norm in float64 by its definition, with the population variance."""
    x = exact(x)
    y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + eps
    )
    y = y if gamma is None else y * exact(gamma)
    return y if beta is None else y + exact(beta)


def rms_norm(x, gamma, eps=1e-5):
    """Computes RMS norm in float64 by its definition."""
    x = exact(x)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * exact(gamma)
