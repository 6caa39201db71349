# SPDX-License-Identifier: Apache-2.0
"""Tests the binding's biases, activations and sums on DeepSpeed's grids, against float64."""

import itertools

import pytest
import torch
from inference_cases import DTYPES, NONE, assert_close, each_dtype, exact, gelu, random

import opdock
from opdock.compat.deepspeed import inference

__all__ = ["random"]
GRID = list(itertools.product((1, 2), (1, 128, 255), (512, 1232, 4096)))
grid = pytest.mark.parametrize("shape", GRID, ids=str)


def call(stem, suffix, *arguments):
    return getattr(inference, f"{stem}_{suffix}")(*arguments)


@each_dtype
@grid
def test_biases_are_added_in_place(shape, suffix, random):
    x, bias = random(shape, suffix), random(shape[-1:], suffix)
    total = exact(x) + exact(bias)
    wanted = {"bias_add": total, "bias_relu": total.clamp(min=0), "bias_gelu": gelu(total)}
    for stem, expected in wanted.items():
        given = x.clone()
        assert call(stem, suffix, given, bias) is given
        assert_close(given, expected, suffix, activated=total if stem == "bias_gelu" else None)


@each_dtype
@grid
def test_gated_activations(shape, suffix, random):
    x, bias = random((*shape[:2], 2 * shape[2]), suffix), random((2 * shape[2],), suffix)
    before = x.clone()
    hidden, gate = (exact(x) + exact(bias)).chunk(2, -1)
    silu = gate / (1 + torch.exp(-gate))
    for found, activated in (
        (inference.bias_geglu(x, bias), gelu(gate, "none")),
        (inference.gated_activation(x, bias, 3), gelu(gate, "none")),
        (inference.gated_activation(x, bias, 4), silu),
    ):
        assert_close(found, hidden * activated, suffix, activated=hidden * gate)
    assert torch.equal(x, before)


def test_an_activation_that_is_not_gated_is_refused(random):
    x, bias = random((1, 2, 8)), random((8,))
    with pytest.raises(opdock.InvalidArgumentError, match="found 1, wanted 3 .GATED_GELU. or 4"):
        inference.gated_activation(x, bias, 1)


@each_dtype
@pytest.mark.parametrize("mp_size", [1, 2])
@pytest.mark.parametrize("shape", [s for s in GRID if s[1] != 128 or s[2] == 1232], ids=str)
def test_residual_add_bias(shape, suffix, mp_size, random):
    hidden, residual, attention = (random(shape, suffix) for _ in range(3))
    final, other = (random(shape[-1:], suffix) for _ in range(2))
    h, r, a, b, c = (exact(t) for t in (hidden, residual, attention, final, other))
    for after, add_bias, preln in itertools.product((True, False), repeat=3):
        if not after:
            wanted = h + a + (r + b + (c if add_bias else 0)) / mp_size
        else:
            wanted = (r + a + b + c) / mp_size + h if preln else r + h + b
        given = residual.clone()
        found = call(
            "residual_add_bias",
            suffix,
            *(hidden, given, attention, other, final, mp_size, after, add_bias, preln),
        )
        assert found is given
        # The terms are larger than the sum: the bound includes one rounding of a term in float32.
        assert_close(given, wanted, suffix, 2)


def test_residual_add_bias_without_biases(random):
    """None, which DeepSpeed's own module does not accept, counts as zeros."""
    hidden, residual, attention = (random((2, 3, 8)) for _ in range(3))
    wanted = exact(hidden) + exact(residual) + exact(attention)
    inference.residual_add_bias_fp32(hidden, residual, attention, None, None, 1, True, False, True)
    assert_close(residual, wanted, "fp32")


@each_dtype
def test_bias_residual(suffix, random):
    """The function adds; DeepSpeed's returns its input unchanged, so its MoE layer loses the
    residual."""
    x, residual, bias = (
        random((2, 5, 64), suffix),
        random((2, 5, 64), suffix),
        random((64,), suffix),
    )
    for given, added in ((bias, exact(bias)), (NONE, 0), (None, 0)):
        out = x.clone()
        assert call("bias_residual", suffix, out, residual, given) is out
        assert_close(out, exact(x) + exact(residual) + added, suffix)


@each_dtype
@pytest.mark.parametrize("gamma", [1.0, 0.5, -2.0])
def test_vector_add(suffix, gamma, random):
    a, b = random((2, 7, 130), suffix), random((2, 7, 130), suffix)
    wanted = gamma * exact(a) + exact(b)
    assert inference._vector_add(a, b, gamma) is a
    assert_close(a, wanted, suffix)


@each_dtype
@pytest.mark.parametrize("hidden, c", list(itertools.product((16, 64), (1, 4))))
def test_moe_res_matmul(hidden, c, suffix, random):
    residual, output = (random((c, hidden * c, hidden), suffix) for _ in range(2))
    coef = random((1, 2 * hidden, 1), suffix)
    first, second = exact(coef).flatten().chunk(2)
    wanted = exact(residual) * first + exact(output) * second
    assert inference.moe_res_matmul(residual, coef, output) is output
    assert_close(output, wanted, suffix)


def test_moe_coefficients_of_tokens_are_refused(random):
    """DeepSpeed's MoE layer passes such coefficients, and its kernel reads beyond their end."""
    with pytest.raises(opdock.InvalidArgumentError, match=r"'coef': found shape \(1, 3, 2\)"):
        inference.moe_res_matmul(random((1, 3, 8)), random((1, 3, 2)), random((1, 3, 8)))


@each_dtype
def test_a_tensor_with_gaps_is_copied(suffix, random):
    wide, bias = random((2, 3, 16), suffix), random((8,), suffix)
    before, x = wide.clone(), wide[..., ::2]
    found = call("bias_add", suffix, x, bias)
    assert_close(found, exact(x) + exact(bias), suffix)
    assert torch.equal(wide, before)


@pytest.mark.parametrize("stem", ["bias_add", "bias_relu", "bias_gelu"])
def test_another_dtype_is_refused_by_name(stem, random):
    """DeepSpeed's functions read bfloat16 as float16."""
    for suffix, dtype in DTYPES.items():
        for other in set(DTYPES) - {suffix}:
            with pytest.raises(
                opdock.InvalidArgumentError, match=f"wanted {dtype}; call .*_{other}"
            ):
                call(stem, suffix, random((2, 8), other), random((8,), other))
    with pytest.raises(opdock.InvalidArgumentError, match="'bias': found torch.float32"):
        call(stem, "fp16", random((2, 8), "fp16"), random((8,)))
    with pytest.raises(opdock.InvalidArgumentError, match="'bias': found a list"):
        call(stem, "fp16", random((2, 8), "fp16"), [0.0] * 8)


def test_another_device_is_refused(random):
    """It is refused before anything is read: DeepSpeed's functions read whatever is at the
    address."""
    x, bias = random((2, 8)), random((8,))
    for other in ("meta", "cpu") if x.is_cuda else ("meta",):
        with pytest.raises((opdock.InvalidArgumentError, opdock.ArgumentError), match="bias"):
            inference.bias_add_fp32(x, torch.empty(8, device=other))
        with pytest.raises(
            (opdock.InvalidArgumentError, opdock.ArgumentError), match="x|input|bias"
        ):
            inference.bias_add_fp32(torch.empty(2, 8, device=other), bias)


def test_another_size_is_refused(random):
    """This includes a size that is no multiple of a vector, where DeepSpeed's functions read beyond
    the end."""
    with pytest.raises(opdock.InvalidArgumentError, match=r"found shape \[7\], wanted \[8\]"):
        inference.bias_add_fp32(random((2, 8)), random((7,)))
    x, bias = random((3, 5, 7)), random((7,))
    assert_close(inference.bias_add_fp32(x.clone(), bias), exact(x) + exact(bias), "fp32")
    with pytest.raises(opdock.InvalidArgumentError, match="'a': found strides"):
        inference._vector_add(random((4, 4)).t(), random((4, 4)), 1.0)
    with pytest.raises(opdock.InvalidArgumentError, match="'residual': found strides"):
        inference.residual_add_bias_fp32(
            *(random((4, 4)), random((4, 4)).t(), random((4, 4)), None, None, 1, True, True, True)
        )


def test_parameters_that_learn_are_taken(random):
    """No gradients are recorded, as in DeepSpeed's functions."""
    bias = torch.nn.Parameter(random((8,)))
    found = inference.bias_add_fp32(random((2, 8)), bias)
    assert not found.requires_grad and torch.is_grad_enabled()
