# SPDX-License-Identifier: Apache-2.0
"""Tests which types values become: of two operands, with numbers, and by conversions."""

import itertools

import pytest
import torch
from conftest import DEVICE, NIGHTLY
from test_operations import chunks
from values import TYPES, name_of, results_of, special

NUMBERS = [True, 2, 2.5]

pytestmark = pytest.mark.daily("cpu", "cuda")


def compute_all(compute, texts, tensors):
    """Returns the values of expressions over named tensors, in formulas of 32 results."""
    found = []
    for part in chunks(texts):
        used = [name for name in tensors if any(f"{name}" in text for text in part)]
        params = ", ".join(f"Tensor {name}" for name in used)
        schema = f"f({params}) -> ({', '.join(['Tensor'] * len(part))})"
        schema = schema if len(part) > 1 else f"f({params}) -> Tensor"
        text = "return " + ", ".join(part)
        found += results_of(compute(text, *[tensors[name] for name in used], schema=schema))
    return found


def sample(dtype):
    return torch.tensor([0, 1, 1, 0, 1, 1, 0]).to(dtype)


@pytest.mark.daily("cpu")
def test_two_operands(compute):
    tensors = {"m_": torch.arange(7) % 2 == 0}
    operands = []
    for dtype in TYPES:
        for name, x in (
            (f"x_{name_of(dtype)}_", sample(dtype)),
            (f"z_{name_of(dtype)}_", sample(dtype)[1]),
        ):
            tensors[name] = x
            operands.append((name, x))
    pairs = list(itertools.combinations_with_replacement(operands, 2))
    pairs += [(one, (repr(number), number)) for one in operands for number in NUMBERS]
    found = compute_all(compute, [f"where(m_, {a[0]}, {b[0]})" for a, b in pairs], tensors)
    for ((a_name, a), (b_name, b)), one in zip(pairs, found, strict=True):
        dtype = torch.result_type(a, b)
        assert one.dtype == dtype, f"{a_name}, {b_name}: {one.dtype}, wanted {dtype}"
        b = b if isinstance(b, torch.Tensor) else torch.tensor(b)
        assert torch.equal(one, torch.where(tensors["m_"], a.to(dtype), b.to(dtype)))


@pytest.mark.daily("cpu")
def test_numbers_as_parameters(compute):
    """They are numbers as literals are, whatever Python's type of the argument is."""
    for kind, value in (("float", 2.5), ("float", 3), ("int", 7), ("int", -(1 << 63))):
        x = {name_of(dtype): sample(dtype) for dtype in TYPES[1:]}
        schema = f"f({', '.join(f'Tensor {n}_' for n in x)}, {kind} s) -> ("
        schema += ", ".join(["Tensor"] * len(x)) + ")"
        found = compute(
            "return " + ", ".join(f"{n}_ + s" for n in x), *x.values(), value, schema=schema
        )
        for one, tensor in zip(found, x.values(), strict=True):
            number = float(value) if kind == "float" else value
            assert one.dtype == torch.result_type(tensor, number)
            if kind == "float" or abs(value) < 100 or tensor.dtype == torch.int64:
                assert torch.equal(one, tensor + number)


def is_defined(x, dtype):
    """Returns for which numbers of x C++ and PyTorch say what they become."""
    if not x.dtype.is_floating_point or dtype.is_floating_point or dtype == torch.bool:
        return torch.ones_like(x, dtype=torch.bool)
    info = torch.iinfo(dtype)
    return (x.double() >= info.min) & (x.double() < float(info.max))


@pytest.mark.daily("cpu", "cuda")
def test_conversions(compute):
    """Each to each; every day without the types that differ from others only by their size."""
    left_out = () if NIGHTLY or DEVICE == "cpu" else (torch.int16, torch.int32, torch.bfloat16)
    types = [dtype for dtype in TYPES if dtype not in left_out]
    tensors = {}
    for dtype in types:
        x = special(dtype)
        tensors[f"x_{name_of(dtype)}_"] = x[torch.arange(61) % len(x)]
    each = [(name, target) for name in tensors for target in types]
    found = compute_all(compute, [f"to({name}, {name_of(t)})" for name, t in each], tensors)
    for (name, target), one in zip(each, found, strict=True):
        x = tensors[name]
        x, one = (y[is_defined(x, target)] for y in (x, one))
        assert one.dtype == target
        right = x.to(target)
        assert torch.equal(one.nan_to_num(), right.nan_to_num()), (name, target)
        if target.is_floating_point:
            assert torch.equal(one.isnan(), right.isnan())
            assert torch.equal(one.signbit() & ~one.isnan(), right.signbit() & ~one.isnan())


def test_elements_behind_the_end_do_no_harm(compute):
    """A vector has elements that are not the tensor's, for which 0 / 0 is no integer."""
    x, y = torch.full((5,), 7.0), torch.full((5,), 2.0)
    found = compute(
        "return to(x / y, int32), to(x / y, uint8), (x / y).to(int64) // x.to(int64)", x, y
    )
    assert [one.tolist() for one in found] == [[3] * 5, [3] * 5, [0] * 5]
    found = compute("return to(x / y / sum(x / y), int32), to(log(y) * 10, int8)", x, y)
    assert [one.tolist() for one in found] == [[0] * 5, [6] * 5]


@pytest.mark.gpu
def test_floats_that_integers_do_not_hold(compute):
    """A GPU clamps them. The CPU's results are open."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 3e9, -3e9, 1e30, -2147483648.0])
    found = compute("return to(x, int32), to(x, int64)", x)
    most, wide = torch.iinfo(torch.int32), torch.iinfo(torch.int64)
    assert found[0].tolist() == [0, most.max, most.min, most.max, most.min, most.max, most.min]
    assert found[1].tolist() == [
        *(0, wide.max, wide.min, 3000000000, -3000000000, wide.max, most.min)
    ]


def test_a_cast_rounds(compute):
    x = torch.randn(100)
    found = compute(
        "h = x.half(); return h.float(), h.float() * 3, x.bfloat16().double(), (h * 3).half()",
        x,
    )
    half = x.half()
    assert torch.equal(found[0], half.float())
    assert torch.equal(found[1], half.float() * 3)
    assert torch.equal(found[2], x.bfloat16().double())
    assert torch.equal(found[3], (half.float() * 3).half())


def test_16_bits_are_rounded_once(compute):
    x, y = torch.randn(501).bfloat16(), torch.randn(501).bfloat16()
    found = compute("(x * y + x) * y", x, y)
    wide = (x.float() * y.float() + x.float()) * y.float()
    # The device may fuse a product and a sum; that changes float32 numbers, which rarely shows.
    assert (found != wide.bfloat16()).sum() <= 2 and found.dtype == torch.bfloat16


NUMBERS_OF_TEXTS = ["1e-45", "0.1", "inf", "nan", "-inf", "-0.0", "1e-40",
                    "3.4028234663852886e38", "1.1754943508222875e-38", "123456789.0",
                    "16777217.0", "5e-324"]  # fmt: skip


def test_constants(compute):
    """Numbers of the text arrive exactly, down to their bits."""
    for dtype, bits in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
        x = torch.zeros(3, dtype=dtype)
        calls = ", ".join(f"where(isnan(x), x, {n})" for n in NUMBERS_OF_TEXTS)
        for text, one in zip(NUMBERS_OF_TEXTS, compute("return " + calls, x), strict=True):
            wanted = torch.full((3,), float(text), dtype=torch.float64).to(dtype)
            same = one.isnan() if text == "nan" else one.view(bits) == wanted.view(bits)
            assert one.dtype == dtype and same.all(), (text, one)


def test_integer_constants(compute):
    i, j = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int32)
    # The language has no literal for the smallest one.
    wide = ["9223372036854775807", "-9223372036854775807 - 1", "-1", "4294967296"]
    ends = ["2147483647", "-2147483648", "-1"]
    names = ("add", "maximum", "pow", "bitwise_and", "eq")
    calls = [f"i + ({n})" for n in wide] + [f"{name}(j, {n})" for n in ends for name in names]
    found = iter(compute("return " + ", ".join(calls), i, j))
    for text in wide:
        value = -(1 << 63) if "- 1" in text else int(text)
        assert int(next(found)[0]) == value
    for text in ends:
        number = torch.tensor(int(text), dtype=torch.int32)
        for name in names:
            assert torch.equal(next(found), getattr(torch, name)(j, number)), (name, text)
