# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.gemm/1 against products in float64, on every device, with whatever library serves
there."""

import itertools
import math
import os
import re

import pytest
import torch

import opdock
from opdock.testing import on

gemm = opdock.ops.test_gemm

NONE, RELU, GELU, GELU_TANH, SILU = range(5)
TF32, DETERMINISTIC = 1, 2
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2]
# (half a unit in the last place, relative to a number; the number below which it no longer shrinks)
HALF_ULP = {
    torch.float32: (2.0**-24, 2.0**-126),
    torch.float16: (2.0**-11, 2.0**-14),
    torch.bfloat16: (2.0**-8, 2.0**-126),
    torch.float8_e4m3fn: (2.0**-4, 2.0**-6),
    torch.float8_e5m2: (2.0**-3, 2.0**-14),
}


def random(shape, dtype, seed, deviation=1.0):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, generator=generator).to(dtype)
    return (torch.randn(shape, generator=generator) * deviation).to(dtype)


def activate(kind, x):
    if kind == RELU:
        return x.clamp(min=0)
    if kind == GELU:
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    if kind == GELU_TANH:
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x / (1 + torch.exp(-x)) if kind == SILU else x


def oracle(a, b, d, c, how):
    """Returns three tensors: the result in float64; for each element, the sum of the terms'
    magnitudes; and the magnitude of the intermediate value that may be rounded."""
    x, y = a.double(), b.double()
    if how.get("transpose_a"):
        x = x.mT
    if how.get("transpose_b"):
        y = y.mT
    if how.get("a_scale") is not None:
        x = x * how["a_scale"].double().reshape(-1, 1)
    if how.get("b_scale") is not None:
        y = y * how["b_scale"].double().reshape(1, -1)
    alpha = how.get("alpha", 1.0)
    value, size = alpha * (x @ y), abs(alpha) * (x.abs() @ y.abs())
    before = d if how.get("in_place") else c
    beta = how.get("beta", 1.0)
    added = 0.0 if before is None or beta == 0 else beta * before.double()
    bias = 0.0 if how.get("bias") is None else how["bias"].double()
    late = how.get("residual", False)
    middle = value.abs() + abs(bias) + abs(added)
    value = value + bias + (0.0 if late else added)
    value = activate(how.get("activation", NONE), value) + (added if late else 0.0)
    size = size + abs(bias) + abs(added)
    if how.get("d_scale") is not None:
        factor = how["d_scale"].double()
        value, size, middle = value * factor, size * factor.abs(), middle * factor.abs()
    return value.expand(d.shape), size.expand(d.shape), middle.expand(d.shape)


def check(device, a, b, d, c=None, roundings=1, **how):
    """Checks the op. roundings: how often a result may be rounded to d's dtype: a library may round
    its sums before the remaining operations are applied."""
    value, size, middle = oracle(a, b, d, c, how)
    found = on(device, gemm)(a, b, d.clone(memory_format=torch.preserve_format), c, **how)
    assert (found.shape, found.dtype) == (d.shape, d.dtype)
    if d.dtype == torch.int32:
        assert torch.equal(found.double(), value)
        return found
    ulp, least = HALF_ULP[d.dtype]
    if d.dtype in EIGHTS:  # values that are too large saturate
        value = value.clamp(-torch.finfo(d.dtype).max, torch.finfo(d.dtype).max)
    depth = a.shape[-2 if how.get("transpose_a") else -1] + 16
    # float32 sums may be in any order; an activation's slope is at most 1.13.
    bound = 1.13 * depth * 2.0**-24 * size + ulp * value.abs().clamp(min=least)
    bound = bound + 1.13 * (roundings - 1) * ulp * middle.clamp(min=least)
    # An H200's tensor cores keep some 14 bits of the largest product while they add products of
    # eight-bit floats: torch._scaled_mm, which uses the same library, errs there by 2**-13.3 of
    # their size.
    if a.dtype in EIGHTS and torch.cuda.is_available():
        bound = bound + 2.0**-12 * size
    worst = ((found.double() - value).abs() / bound.clamp(min=1e-300)).max() if d.numel() else 0
    assert worst <= 1, f"{worst} times the bound"
    return found


def matrices(m, n, k, dtype, d_dtype=None, batch=(), transpose_a=False, transpose_b=False):
    a = random((*batch, *((k, m) if transpose_a else (m, k))), dtype, 1)
    b = random((*batch, *((n, k) if transpose_b else (k, n))), dtype, 2, 0.5)
    d = torch.full((*batch, m, n), 99.0).to(d_dtype or dtype)
    return a, b, d


SHAPES = [(1, 1, 1), (3, 5, 7), (64, 64, 128), (65, 130, 129), (1, 300, 200), (200, 1, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_shapes(device, dtype, turned, shape):
    how = {"transpose_a": turned[0], "transpose_b": turned[1]}
    check(device, *matrices(*shape, dtype, **how), **how)


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_sums_of_16_bit_floats_as_float32(device, dtype):
    check(device, *matrices(17, 33, 65, dtype, torch.float32))


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
@pytest.mark.parametrize("bias", [False, True])
def test_nothing(device, shape, bias):
    a, b, d = matrices(*shape, torch.float32)
    check(device, a, b, d, bias=random((shape[1],), torch.float32, 3) if bias else None)


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_int8_is_exact(device, turned):
    how = {"transpose_a": turned[0], "transpose_b": turned[1]}
    check(device, *matrices(20, 36, 300, torch.int8, torch.int32, **how), **how)


@pytest.mark.parametrize("d_dtype", FLOATS)
@pytest.mark.parametrize("rows", [False, True])
def test_int8_with_scales(device, d_dtype, rows):
    # Larger than a tile of the plain kernels, so that other scales than the first are used.
    m, n = 66, 72
    a, b, d = matrices(m, n, 16, torch.int8, d_dtype, transpose_b=True)
    a_scale = random((m if rows else 1,), torch.float32, 4).abs() * 1e-3
    b_scale = random((n if rows else 1,), torch.float32, 5).abs() * 1e-2
    bias = random((n,), d_dtype, 6)
    check(device, a, b, d, a_scale=a_scale, b_scale=b_scale, transpose_b=True)
    check(
        device, a, b, d, a_scale=a_scale, b_scale=b_scale, transpose_b=True, bias=bias,
        activation=SILU,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_less_workspace_than_plan_asked_for(device, dtype):
    """The result is right, by an algorithm that needs less. The call is refused where the sums have
    no place, and by rocBLAS, which has one workspace for everything."""
    a, b, d = matrices(16, 32, 64, dtype, torch.float32)
    how = {"alpha": 0.5} if dtype == torch.int8 else {}
    try:
        check(device, a, b, d, workspace=0, **how)
    except ValueError as error:
        assert device == "rocm" or (device == "cuda" and dtype == torch.int8)
        words = re.search(r"workspace: found 0 bytes, wanted at least (\d+); hand in", str(error))
        sums = 2048 if dtype == torch.int8 else 0
        assert int(words[1]) == sums + (2**25 if device == "rocm" else 0)
        print("refused")


@pytest.mark.parametrize("pair", [*itertools.product(EIGHTS, EIGHTS)])
@pytest.mark.parametrize("d_dtype", FLOATS + EIGHTS)
@pytest.mark.parametrize("shape", [(19, 35), (16, 32)])
def test_eight_bit_floats(device, pair, d_dtype, shape):
    m, n = shape
    a = random((m, 48), pair[0], 1)
    b = random((n, 48), pair[1], 2)
    b[0, 0], b[1, 0] = 0.0, torch.finfo(pair[1]).smallest_normal / 2
    d = torch.zeros(m, n).to(d_dtype)
    scales = {"a_scale": torch.tensor([0.5]), "b_scale": torch.tensor([0.25])}
    if d_dtype in EIGHTS:
        scales["d_scale"] = torch.tensor([3.0])
    check(device, a, b, d, transpose_b=True, **scales)
    bias = random((n,), torch.float32, 3)
    check(device, a, b, d, transpose_b=True, roundings=2, bias=bias, activation=GELU, **scales)


def test_eight_bit_results_that_are_too_large_and_small(device):
    a = torch.tensor([[1.0], [0.0], [-1.0]]).to(torch.float8_e4m3fn)
    b = torch.tensor([[448.0, 2.0**-9, 2.0**-6]]).to(torch.float8_e4m3fn)
    for dtype, factor in itertools.product(EIGHTS, [1.0, 0.25, 0.3, 1000.0]):
        d_scale = torch.tensor([factor])
        found = check(device, a, b, torch.zeros(3, 3).to(dtype), d_scale=d_scale)
        wanted = (a.float() @ b.float() * factor).clamp(
            -torch.finfo(dtype).max, torch.finfo(dtype).max
        )
        assert torch.equal(found.float(), wanted.to(dtype).float())  # as torch rounds


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", range(5))
@pytest.mark.parametrize("bias", [False, True])
def test_epilogues(device, dtype, activation, bias):
    a, b, d = matrices(33, 70, 40, dtype)
    c = random((33, 70), dtype, 7)
    how = {"activation": activation, "roundings": 2}
    if bias:  # cuBLASLt rounds with C added, and again with the bias
        how |= {"bias": random((70,), dtype, 8), "roundings": 3}
    check(device, a, b, d, **how)
    check(device, a, b, d, c, alpha=0.5, beta=-0.75, **how)
    check(device, a, b, d, c, alpha=0.5, beta=2.0, residual=True, **how)
    for residual in (False, True):
        check(device, a, b, random(d.shape, dtype, 9), in_place=True, residual=residual, **how)


@pytest.mark.parametrize("dtype", FLOATS[1:])
@pytest.mark.parametrize("activation", range(5))
def test_epilogues_of_whole_vectors(device, dtype, activation):
    """Rows are multiples of 16 bytes, which a separate kernel finishes."""
    how = {"activation": activation}
    a, b, d = matrices(5, 24, 8, dtype, batch=(2,))
    c, bias = random((2, 5, 24), dtype, 7), random((24,), dtype, 8)
    check(device, a, b, d, roundings=2, **how)
    check(device, a, b, d, c, roundings=3, bias=bias, beta=-0.75, **how)
    check(device, a, b, d, c, roundings=3, bias=bias, beta=2.0, residual=True, **how)
    # These rows have gaps; c's row stride is not a multiple of whole vectors.
    wide = torch.full((5, 40), 99.0).to(dtype)[:, 8:32]
    check(device, a[0], b[0], wide, random((5, 32), dtype, 9)[:, :24], roundings=2, **how)
    check(device, a[0], b[0], wide, random((5, 27), dtype, 9)[:, :24], roundings=2, **how)


@pytest.mark.parametrize("dtype", FLOATS[1:])
@pytest.mark.parametrize("activation", [RELU, GELU, SILU])
def test_epilogues_hide_no_nan_and_no_infinity(device, dtype, activation):
    a, b, d = matrices(4, 16, 8, dtype)
    a[1, 3], a[2] = float("nan"), 0.0
    b[3] = b[3].abs() + 1
    bias = torch.full((16,), float("inf")).to(dtype)
    found = on(device, gemm)(a, b, d.clone(), activation=activation)
    assert found[1].isnan().all() and found[[0, 2, 3]].isfinite().all()
    found = on(device, gemm)(a, b, d.clone(), bias=bias, activation=activation)
    assert found[1].isnan().all() and (found[[0, 2, 3]] == float("inf")).all()


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_a_bias_of_another_dtype(device, dtype):
    a, b, d = matrices(9, 24, 40, dtype)
    check(device, a, b, d, bias=random((24,), torch.float32, 8), roundings=2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_batches(device, dtype):
    a, b, d = matrices(10, 12, 30, dtype, batch=(3,))
    bias, c = random((12,), dtype, 4), random((3, 10, 12), dtype, 5)
    check(device, a, b, d, roundings=2)
    check(device, a[:1], b, d, roundings=2, bias=bias, activation=GELU)
    check(device, a, b[0], d, c, roundings=2)
    check(device, a, b[0], d, c[0], roundings=2, residual=True, activation=RELU)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8])
def test_strides(device, dtype):
    d_dtype = torch.int32 if dtype == torch.int8 else dtype
    a = random((4, 20, 64), dtype, 1)[1:3, 2:13, 5:38]
    b = random((2, 40, 50), dtype, 2)[:, 3:36, 1:18]
    d = torch.zeros(11, 2, 24).to(d_dtype)[:, :, 2:19].transpose(0, 1)
    check(device, a, b, d)
    check(device, a.mT[:, :, :1].mT, b, d[:, :1])
    check(device, a[0], b[0], torch.zeros(30, 19).to(d_dtype)[4:15, :17])


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_to_be_read_is_not(device, dtype):
    a, b, d = matrices(8, 16, 24, dtype)
    check(device, a, b, d.fill_(float("nan")))
    check(device, a, b, d, torch.full_like(d, float("nan")), beta=0.0)


@pytest.mark.parametrize("flags", [TF32, DETERMINISTIC])
def test_the_same_call_gives_the_same_bits(device, flags):
    a, b, d = matrices(40, 50, 2000, torch.bfloat16)
    first = check(device, a, b, d, flags=flags)
    assert torch.equal(first, check(device, a, b, d, flags=flags))


def refused(*args, **how):
    with pytest.raises(opdock.OpdockError) as error:
        gemm(*args, **how)
    return str(error.value)


def test_what_is_wrong_is_named():
    a, b, d = matrices(4, 6, 8, torch.float32)
    assert "argument 'b'" in refused(a, b[:7], d)
    assert "argument 'd'" in refused(a, b, d[:3].clone())
    assert "argument 'bias'" in refused(a, b, d, bias=torch.zeros(5))
    assert "argument 'c'" in refused(a, b, d, torch.zeros(4, 5))
    assert "argument 'a'" in refused(a.mT.contiguous().mT, b, d)
    assert "argument 'a_scale'" in refused(a, b, d, a_scale=torch.zeros(3))
    assert "gemm: a, b: found float32, float16" in refused(a, b.half(), d)
    assert "gemm: d: found float16 of float32" in refused(a, b, d.half())
    assert "gemm: c: found float16" in refused(a, b, d, d.half().clone())
    assert "gemm: activation: found 5" in refused(a, b, d, activation=5)
    assert "gemm: bias_dtype" in refused(a, b, d, bias=torch.zeros(6, dtype=torch.int32))
    i, j, whole = matrices(4, 6, 8, torch.int8, torch.int32)
    assert "gemm: d: found int32 with" in refused(i, j, whole, alpha=2.0)


unnamed = pytest.mark.skipif("OPDOCK_GEMM" in os.environ, reason="the library is named already")


@unnamed
def test_without_a_library_too():
    """Runs the tests above with OPDOCK_GEMM=plain."""
    import subprocess
    import sys

    words = [sys.executable, "-m", "pytest", "-q", "-p", "opdock.testing", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, __file__], env={**os.environ, "OPDOCK_GEMM": "plain"}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def python(program, **env):
    """Runs a program in a process of its own; the result has its stdout and stderr."""
    import subprocess
    import sys

    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **env}, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip


MULTIPLY = """
import os, sys, numpy, opdock
a, b = numpy.random.rand(90, 70).astype("f"), numpy.random.rand(70, 80).astype("f")
def wrong():
    d = numpy.zeros((90, 80), "f")
    opdock.ops.test_gemm(a, b, d)
    return float(abs(d - a.astype("d") @ b.astype("d")).max()) > 1e-4
"""


def test_numpys_blas_serves_a_program_without_torch():
    done = python(MULTIPLY + "assert not wrong() and 'torch' not in sys.modules")
    assert done.stderr == ""


# A child's products are plain kernels', so naming these shows nothing new.
@unnamed
def test_a_forked_child_does_not_hang_and_says_why_it_is_slow():
    program = f"import torch{MULTIPLY}wrong()\nif os.fork() == 0: os._exit(wrong() + 2 * wrong())\n"
    done = python(program + "assert os.wait()[1] == 0")
    assert done.stderr.count("gemm-library-unfit: found a process that was forked") <= 1


@unnamed
def test_a_child_that_loads_opdock_itself_does_not_hang():
    """The parent's use of torch's library before the fork appears in no counter of the child's
    Opdock."""
    program = "import os, torch\ntorch.rand(999, 999) @ torch.rand(999, 999)\nif os.fork() == 0:\n"
    program += "".join(f"    {line}\n" for line in MULTIPLY.strip().splitlines())
    done = python(program + "    os._exit(wrong() + 2 * wrong())\nassert os.wait()[1] == 0")
    assert done.stderr.count("gemm-library-unfit: found a process that was forked") <= 1
