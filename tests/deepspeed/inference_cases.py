# SPDX-License-Identifier: Apache-2.0
"""What the tests of the inference binding share: dtypes, bounds, and a comparison with float64.

Tensors are made on the CPU and moved to the device; oracles are computed in float64 on the CPU.
"""

import pytest
import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: (rtol, atol) of DeepSpeed's own tests
THEIRS = {"fp32": (5e-4, 5e-5), "fp16": (3e-2, 2e-3), "bf16": (4.8e-1, 3.2e-2)}
#: ours: below theirs by 500 and 100 in float32, 50 and 100 in float16, 96 and 100 in bfloat16
BOUNDS = {"fp32": (1e-6, 5e-7), "fp16": (6e-4, 2e-5), "bf16": (5e-3, 3.2e-4)}
#: how DeepSpeed passes "no mask", "no alibi", "no scale": on the CPU, with tensors of a GPU too
NONE = torch.empty(1)
#: what an activation may be wrong by on a GPU, relative to what it multiplies, as in the tests of
#: the plugin `activation`: there erf is added to 1, and where the two cancel its error stays; for
#: 16-bit results it is a shorter approximation.
ACTIVATED = {"fp32": 5e-7, "fp16": 1e-5, "bf16": 1e-5}
#: what weights of attention may add on a GPU, relative to the largest value. There the plugin's
#: kernels round them to float16 or bfloat16 before the product with the values, which on the CPU
#: stays in float32; the float32 kernel takes powers of two, and the product of a score with the
#: logarithm of e is one more rounding that the exponent multiplies by the score's size.
WEIGHTS = {"fp32": 3e-6, "fp16": 2.0**-11, "bf16": 2.0**-8}

each_dtype = pytest.mark.parametrize("suffix", DTYPES)


@pytest.fixture
def random(device):
    """random(shape, suffix, scale): normal numbers on the device, the same in each run."""
    generator = torch.Generator().manual_seed(20)

    def make(shape, suffix="fp32", scale=1.0):
        numbers = torch.randn(shape, generator=generator) * scale
        return numbers.to(DTYPES[suffix]).to(device)

    return make


def exact(tensor):
    """The tensor in float64 on the CPU."""
    return tensor.detach().cpu().double()


def more_roundings(tensor):
    """How often more than on the CPU a product may be rounded to its dtype on the tensor's device.

    A library on a GPU may round it before it adds a bias, and what it does not compute itself a
    second kernel does with rounded results (docs/concepts/gemm.md).
    """
    return 2 if tensor.is_cuda and tensor.dtype != torch.float32 else 0


def assert_close(found, wanted, suffix, times=1.0, activated=None):
    """found, of the suffix's dtype, equals wanted, float64, within `times` the bounds.

    activated: magnitudes of what an activation has multiplied; on a GPU ACTIVATED of it besides.
    """
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    rtol, atol = (bound * times for bound in BOUNDS[suffix])
    theirs = THEIRS[suffix]
    assert rtol <= theirs[0] / 10 and atol <= theirs[1] / 10, "a bound that is not far below theirs"
    bound = atol + rtol * exact(wanted).abs()
    if activated is not None and found.is_cuda:
        bound += ACTIVATED[suffix] * activated.abs()
    _assert_within(found, wanted, bound)


def assert_attention_close(found, wanted, values, suffix):
    """assert_close() for weighted means of `values`: 5 times the bounds, and on a GPU WEIGHTS."""
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
    """found equals wanted, float64, within so many roundings of its dtype of the element and of the
    whole's root mean square: products cancel. In float32 a rounding counts 8, for the sums.
    more_roundings() are allowed besides."""
    assert found.dtype == DTYPES[suffix] and found.shape == wanted.shape
    unit = torch.finfo(found.dtype).eps / 2 * (8 if suffix == "fp32" else 1)
    scale = wanted.abs() + wanted.square().mean().sqrt()
    worst = ((exact(found) - wanted).abs() / (unit * scale)).max().item()
    assert worst <= roundings + more_roundings(found), f"{worst:.3g} roundings"


def gelu(x, approximate="tanh"):
    """GELU in float64 by its definition."""
    if approximate == "tanh":
        return x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def layer_norm(x, gamma=None, beta=None, eps=1e-5):
    """Layer norm in float64 by its definition: the population's variance."""
    x = exact(x)
    y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + eps
    )
    y = y if gamma is None else y * exact(gamma)
    return y if beta is None else y + exact(beta)


def rms_norm(x, gamma, eps=1e-5):
    """RMS norm in float64 by its definition."""
    x = exact(x)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * exact(gamma)
