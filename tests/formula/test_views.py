# SPDX-License-Identifier: Apache-2.0
"""Tests formulas that see tensors in parts, by chunk and cat, or in groups, by grouped."""

import pytest
import torch
from conftest import DEVICE, NIGHTLY
from torch.nn.functional import gelu

import opdock

#: Where the parts are is the same for both kinds of GPUs.
pytestmark = pytest.mark.daily("cpu", "cuda")

GEGLU = "hidden, gate = chunk(x, 2)\nreturn hidden * gelu(gate)"
BIASED = """
hidden, gate = chunk(x, 2)
first, second = chunk(bias, 2)
return (hidden + first if bias else hidden) * gelu(gate + second if bias else gate)
"""
SWAP = "a, b = x.chunk(2, -1)\nreturn cat(b, a)"


def random(*shape, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def halves(x):
    """A layout whose rows have a step of 2 and begin off any alignment."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype)
    view = wide[..., 1::2]
    return view.copy_(x)


@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed"])
@pytest.mark.parametrize("length", [2, 6, 64, 250, 1030])
def test_parts_of_rows(compute, length, layout):
    is_all = NIGHTLY or DEVICE == "cpu"  # elsewhere each dtype is another kernel to compile
    for dtype in (torch.float32, torch.bfloat16) if is_all else (torch.bfloat16,):
        x = random(5, length, dtype=dtype)
        seen = {"contiguous": x, "strided": halves(x), "transposed": x.t().contiguous().t()}[layout]
        a, b = x.double().chunk(2, -1)
        wanted = (a * gelu(b)).to(dtype)
        tolerance = {torch.float32: 2e-6, torch.bfloat16: 8e-3}[dtype]
        torch.testing.assert_close(compute(GEGLU, seen), wanted, rtol=tolerance, atol=tolerance)


def test_an_optional_tensor_in_parts(compute):
    x, bias = random(3, 20), random(20, seed=2)
    schema = "geglu(Tensor x, Tensor? bias=None) -> Tensor"
    for given in (None, bias):
        a, b = (x if given is None else x + given).chunk(2, -1)
        found = compute(BIASED, x, given, schema=schema)
        torch.testing.assert_close(found, a * gelu(b), rtol=2e-6, atol=2e-6)


def test_three_parts_beside_a_whole_tensor_and_a_reduction(compute):
    x, y = random(4, 30), random(4, 10, seed=2)
    a, b, c = x.chunk(3, -1)
    found = compute("a, _, c = chunk(x, 3)\nreturn a * y + c, sum(a)", x, y)
    torch.testing.assert_close(found[0], a * y + c, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(found[1], a.sum(-1), rtol=2e-6, atol=2e-6)


def test_results_in_parts(compute):
    x, y = random(4, 30), random(10, seed=2)
    text = "a, b, c = chunk(x, 3)\nreturn cat(c + y, a), a > b"
    a, b, c = x.chunk(3, -1)
    found = compute(text, x, y)
    assert torch.equal(found[0], torch.cat([c + y, a], -1))
    assert torch.equal(found[1], a > b)
    wide = compute("return cat(x, y.to(x.dtype), x * 2)", random(3, 7), random(3, 1))
    x, y = random(3, 7), random(3, 1)
    assert torch.equal(wide, torch.cat([x, y.expand(3, 7), x * 2], -1))


def test_rows_of_parts_that_are_normed(compute):
    x = random(6, 96)
    a, b = x.chunk(2, -1)
    found = compute("a, b = chunk(x, 2)\nreturn cat(softmax(a), b - mean(b))", x)
    wanted = torch.cat([a.softmax(-1), b - b.mean(-1, keepdim=True)], -1)
    torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)


def test_parts_are_swapped_in_place(compute):
    for length in (2, 14, 4096):
        x = random(3, length)
        a, b = x.chunk(2, -1)
        wanted = torch.cat([b, a], -1)
        assert compute(SWAP, x, out=x) is x
        assert torch.equal(x, wanted)


def test_a_result_over_other_parts_is_refused(compute):
    x = random(3, 2)
    found = "written over it as a whole, but the formula reads it in 2 parts"
    with pytest.raises(opdock.InvalidArgumentError, match=found):
        compute("a, _ = chunk(x, 2)\nreturn x * a", x, out=x)
    assert torch.equal(compute("a, _ = chunk(x, 2)\nreturn x * a", x), x * x[:, :1])


def test_parts_that_do_not_divide_are_refused(compute):
    for shape, found in (((3, 7), '"x": found a last dimension of 7'), ((), "without dimensions")):
        with pytest.raises(opdock.InvalidArgumentError, match=found + ", wanted .*2 .*parts"):
            compute(GEGLU, random(*shape))
    with pytest.raises(opdock.InvalidArgumentError, match='"y": found the shape'):
        compute("a, b = chunk(x, 2)\nreturn a * b * y", random(3, 8), random(3, 8))


def test_zero_sizes(compute):
    for shape in ((0, 8), (5, 0), (2, 0, 4)):
        assert compute(GEGLU, torch.empty(shape)).shape == (*shape[:-1], shape[-1] // 2)
        assert compute(SWAP, torch.empty(shape)).shape == shape


@pytest.mark.parametrize("group", [1, 2, 3, 7, 8, 64, 1000])
def test_numbers_of_groups(compute, group):
    for groups in (1, 5):
        q = torch.randint(-128, 128, (groups * group,), dtype=torch.int8)
        scale = random(groups)
        wanted = (q.view(groups, group) * scale[:, None]).view(-1)
        assert torch.equal(compute("q * grouped(scale)", q, scale), wanted)
        shaped = q.view(groups, 1, group)
        assert torch.equal(compute("q * grouped(scale)", shaped, scale), wanted.view(shaped.shape))


def test_groups_cross_rows(compute):
    q, scale, offset = random(6, 8), random(4), random(4, seed=2)
    found = compute("q * grouped(scale) + grouped(offset)", q, scale, offset)
    wanted = q.view(4, 12) * scale[:, None] + offset[:, None]
    torch.testing.assert_close(found, wanted.view(6, 8))
    for shape in ((0, 8), (5, 0)):
        assert compute("q * grouped(scale)", torch.empty(shape), torch.ones(0)).shape == shape


def test_groups_that_do_not_fit_are_refused(compute):
    q = random(4, 6)
    for args, found in [
        ((q, random(5)), '"scale": found 5 numbers, wanted one for each of equal groups of the 24'),
        ((q, random(0)), '"scale": found 0 numbers'),
        ((random(6, 4).t(), random(4)), '"q": found the shape .* with gaps, wanted .*contiguous'),
        ((q, random(8)[::2]), '"scale": found gaps'),
    ]:
        with pytest.raises(opdock.InvalidArgumentError, match=found):
            compute("q * grouped(scale)", *args)
    with pytest.raises(opdock.InvalidArgumentError, match='"bias": found the shape'):
        compute("q * grouped(scale) + bias", q, random(2), random(6))
    with pytest.raises(opdock.InvalidArgumentError, match="found gaps between its elements"):
        compute("q * grouped(scale)", q, random(2), out=torch.empty(6, 4).t())


def test_a_dtype_is_an_argument(compute):
    q, scale = torch.randint(-128, 128, (4, 6), dtype=torch.int8), random(8)
    text = "to(q * grouped(scale), dtype if dtype else float32)"
    schema = "dequantize(Tensor q, Tensor scale, *, ScalarType? dtype=None) -> Tensor"
    exact = (q.view(8, 3) * scale[:, None]).view(4, 6)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(compute(text, q, scale, schema=schema, dtype=dtype), exact.to(dtype))
    assert torch.equal(compute(text, q, scale, schema=schema), exact)
    with pytest.raises(opdock.InvalidArgumentError, match="argument 'dtype': found complex64"):
        compute(text, q, scale, schema=schema, dtype=torch.complex64)
    with pytest.raises(opdock.InvalidArgumentError, match='"dtype", which is None in this call'):
        compute("x.to(dtype)", q, schema="f(Tensor x, ScalarType? dtype=None) -> Tensor")
