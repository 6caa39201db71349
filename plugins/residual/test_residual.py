# SPDX-License-Identifier: Apache-2.0
"""Tests residual_add, vector_add and moe_res_matmul on every device, against their definitions in
float64."""

import itertools

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

# Bound of the computation's error, relative to the sum of the terms' magnitudes: a handful of
# roundings in float32.
COMPUTED = 5e-7
LENGTHS = [
    1,
    2,
    3,
    7,
    31,
    64,
    127,
    384,
    512,
    1000,
    1023,
    1024,
    1025,
    1232,
    4096,
    8192,
    16385,
    32768,
]
FORMS = ("pre_norm", "post_norm", "parallel")


def op(name):
    """Loads this plugin's op, and not another plugin's op of the same name."""
    return opdock.load(f"residual/{name}")


def layer_terms(hidden, residual, attention, bias, other, form, divisor):
    """Returns the terms that residual_add adds up according to the documentation, in float64."""
    h, r, a, b, c = (
        0.0 if tensor is None else tensor.double()
        for tensor in (hidden, residual, attention, bias, other)
    )
    if form == "pre_norm":
        return [h, r / divisor, a / divisor, b / divisor, c / divisor]
    if form == "parallel":
        return [h, a, r / divisor, b / divisor, c / divisor]
    return [h, r, b]


class Check:
    """Calls ops on a device and compares their results with the oracle."""

    def __init__(self, device, assert_close):
        self.device, self.assert_close = device, assert_close
        self.all_layouts = row_cases.tests_layouts_of_formulas(device)

    def call(self, name, *args, **keywords):
        return on(self.device, op(name))(*args, **keywords)

    def terms(self, found, terms, like):
        row_cases.assert_like(found, like)
        terms = [torch.as_tensor(term, dtype=torch.float64).expand(like.shape) for term in terms]
        scale = sum(term.abs() for term in terms)
        self.assert_close(found, sum(terms), COMPUTED, scale)

    def layer(self, x, form, divisor=1.0, biases=(True, True)):
        residual, attention = (random(x.shape, x.dtype, 20 + i) for i in range(2))
        bias, other = (
            random(x.shape[-1:], x.dtype, 30 + i) if there else None
            for i, there in enumerate(biases)
        )
        if form == "post_norm":
            attention = other = None
        args = (x, residual, attention, bias, other)
        found = self.call("residual_add", *args, form=form, divisor=divisor)
        self.terms(found, layer_terms(*args, form, divisor), x)

    def vector_add(self, a, b, gamma):
        found = self.call("vector_add", a, b, gamma=gamma)
        self.terms(found, [a.double(), gamma * b.double()], a)

    def weighted(self, residual, coef, output):
        found = self.call("moe_res_matmul", residual, coef, output)
        first, second = coef.double().chunk(2)
        self.terms(found, [output.double() * second, residual.double() * first], residual)

    def everything(self, x):
        for form in FORMS:
            self.layer(x, form, 1.0 if form == "post_norm" else 3.0)
        other = random(x.shape, x.dtype, 40)
        self.vector_add(x, other, 0.3)
        self.vector_add(other, x, -2.0)
        coef = random((2 * x.shape[-1],), x.dtype, 41)
        self.weighted(x, coef, other)
        self.weighted(other, coef, x)


@pytest.fixture
def check(device, assert_close):
    return Check(device, assert_close)


@pytest.mark.parametrize("length", LENGTHS)
def test_row_lengths(check, dtype, length):
    check.everything(random((5 if length <= 4096 else 2, length), dtype, length))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("divisor", [1, 2, 7])
@pytest.mark.parametrize("biases", list(itertools.product([False, True], repeat=2)))
def test_forms_divisors_and_biases(check, dtype, form, divisor, biases):
    """DeepSpeed's grid, and each bias without the other."""
    if form == "post_norm" and (divisor != 1 or biases[1]):
        pytest.skip("refused: test_bad_inputs_name_the_argument has it")
    for shape in [(1, 1, 512), (2, 3, 132)]:
        check.layer(random(shape, dtype, 1), form, divisor, biases)


@pytest.mark.parametrize("hidden", [16, 64])
@pytest.mark.parametrize("c", [1, 4])
def test_weighted_like_a_mixture_of_experts(check, dtype, hidden, c):
    shape = (c, hidden * c, hidden)
    check.weighted(random(shape, dtype, 1), random(2 * hidden, dtype, 2), random(shape, dtype, 3))


@pytest.mark.parametrize("length", [8, 34, 520])
def test_misaligned_and_padded_rows(check, dtype, length):
    for number, x in enumerate(row_cases.layouts(length, dtype)):
        if check.all_layouts or number == 1:
            check.everything(x)


@pytest.mark.parametrize("begin", row_cases.OFFSETS)
@pytest.mark.parametrize("length", [8, 33, 1024])
def test_columns_offset_by_some_elements(check, dtype, begin, length):
    """coef's second half is also misaligned if the length is odd."""
    x, other = random((5, length), dtype, 1), random((5, length), dtype, 2)
    coef = random(begin + 2 * length, dtype, 3)[begin:]
    check.weighted(x, coef, other)
    bias = random(begin + length, dtype, 4)[begin:]
    found = check.call("residual_add", x, other, None, bias, form="post_norm")
    check.terms(found, [x.double(), other.double(), bias.double()], x)


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(check, dtype, shape):
    x = torch.empty(shape, dtype=dtype)
    bias = x.new_ones(shape[-1])
    assert check.call("residual_add", x, x, x, bias, bias).shape == shape
    assert check.call("vector_add", x, x).shape == shape
    assert check.call("moe_res_matmul", x, torch.cat([bias, bias]), x).shape == shape


def test_elements_behind_whole_vectors(check, dtype):
    """DeepSpeed's kernels skip elements beyond the last whole vector of 16 bytes, or read past the
    end."""
    for length in range(1, 40, 1 if check.all_layouts else 2):
        check.everything(random((1, length), dtype, length))
        check.vector_add(random((length,), dtype, 1), random((length,), dtype, 2), 0.5)


def test_in_place(check, device, dtype):
    def fresh():
        return [random((9, 100), dtype, seed) for seed in range(3)]

    coef = random(200, dtype, 9)
    calls = [
        ("residual_add", lambda t: t, {"divisor": 2.0}, (0, 1, 2)),
        ("vector_add", lambda t: t[:2], {"gamma": 0.5}, (0, 1)),
        ("moe_res_matmul", lambda t: (t[0], coef, t[1]), {}, (0, 1)),
    ]
    for name, arguments, keywords, places in calls:
        wanted = check.call(name, *arguments(fresh()), **keywords)
        for place in places:
            made = fresh()
            out = made[place]
            assert on(device, op(name))(*arguments(made), **keywords, out=out) is out
            assert torch.equal(out, wanted)


def test_special_values(check, dtype):
    """Infinities and NaN follow the rules of arithmetic, and disturb no neighbour."""
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([inf, -inf, nan, 0.0, -0.0, 1.0, 2.0, 3.0], dtype=dtype)
    one = torch.ones_like(special)
    found = check.call("vector_add", special, one, gamma=2.0)
    torch.testing.assert_close(found, special + 2, rtol=0, atol=0, equal_nan=True)
    found = check.call("residual_add", one, special, -special, divisor=2.0)
    assert found.isnan().tolist() == [True] * 3 + [False] * 5 and found[3:].tolist() == [1] * 5
    found = check.call("moe_res_matmul", special, torch.cat([one, one]), one)
    torch.testing.assert_close(found, special + 1, rtol=0, atol=0, equal_nan=True)


def test_sums_of_16_bit_numbers_are_rounded_once(check):
    """In float16 60000 + 60000 is infinite, although half of it is not."""
    x = torch.full((3, 8), 60000.0, dtype=torch.float16)
    assert check.call("residual_add", x * 0, x, x, divisor=4.0).tolist() == [[30000] * 8] * 3
    assert check.call("vector_add", x, -x, gamma=2.0).tolist() == [[-60000] * 8] * 3
    coef = torch.tensor([2.0] * 8 + [-1.0] * 8, dtype=torch.float16)
    assert check.call("moe_res_matmul", x, coef, x).tolist() == [[60000] * 8] * 3


def test_float64_is_for_the_cpu(device, reference):
    x, other, attention = (random((40, 1003), torch.float64, seed) for seed in range(3))
    bias = random(1003, torch.float64, 5)
    calls = [("residual_add", (x, other, attention, bias, bias), {"form": "parallel"})]
    calls += [("vector_add", (x, other), {"gamma": 0.3})]
    calls += [("moe_res_matmul", (x, torch.cat([bias, bias]), other), {})]
    for name, args, keywords in calls:
        if device != "cpu":
            with pytest.raises(opdock.OpdockError, match="float64"):
                on(device, op(name))(*args, **keywords)
            continue
        found, wanted = op(name)(*args, **keywords), getattr(reference, name)(*args, **keywords)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


def bad_inputs():
    x, bias, coef = torch.ones(4, 8), torch.ones(8), torch.ones(16)
    across, post = torch.ones(8, 4).t(), {"form": "post_norm"}
    add = "residual_add"
    return [
        ("hidden", add, (x.long(), x, x), {}),
        ("hidden", add, (across, x, x), {}),
        ("hidden", add, (torch.ones(()), x, x), {}),
        ("residual", add, (x, x[:3], x), {}),
        ("residual", add, (x, x.half(), x), {}),
        ("residual", add, (x, bias, x), {}),
        ("attention", add, (x, x), {}),
        ("attention", add, (x, x), {"form": "parallel"}),
        ("attention", add, (x, x, across), {}),
        ("attention", add, (x, x, x), post),
        ("attention_bias", add, (x, x, None, bias, bias), post),
        ("divisor", add, (x, x), {**post, "divisor": 2.0}),
        ("bias", add, (x, x, x, bias[:7]), {}),
        ("bias", add, (x, x, x, torch.ones(16)[::2]), {}),
        ("attention_bias", add, (x, x, x, bias, bias.half()), {}),
        ("form", add, (x, x, x), {"form": "gptj"}),
        ("divisor", add, (x, x, x), {"divisor": 0.0}),
        ("divisor", add, (x, x, x), {"divisor": float("inf")}),
        ("divisor", add, (x, x, x), {"divisor": float("nan")}),
        ("b", "vector_add", (x, x[:3]), {}),
        ("b", "vector_add", (x, across), {}),
        ("a", "vector_add", (across, x), {}),
        ("coef", "moe_res_matmul", (x, bias, x), {}),
        ("coef", "moe_res_matmul", (x, coef.half(), x), {}),
        ("coef", "moe_res_matmul", (x, torch.ones(2, 8), x), {}),
        ("output", "moe_res_matmul", (x, coef, x[:3]), {}),
    ]


@pytest.mark.parametrize("number", range(26))
def test_bad_inputs_name_the_argument(device, number):
    name, which, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, op(which)), name, *args, **keywords)


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(cuda):
    x, other = (random((64, 1024), torch.float16, seed).to(cuda) for seed in range(2))
    add = op("vector_add")
    assert torch.equal(row_cases.on_another_stream(lambda y: add(y, other), x), add(x, other))
    assert torch.equal(row_cases.in_a_graph(lambda y: add(y, other), x), add(x, other))
