# SPDX-License-Identifier: Apache-2.0
"""Tests the binding's norms on DeepSpeed's grid, against float64."""

import itertools
import math
import os

import pytest
import torch
from conftest import devices
from inference_cases import assert_close, each_dtype, exact, layer_norm, random, rms_norm

import opdock
from opdock.compat.deepspeed import inference

__all__ = ["random"]
LENGTHS = (384, 512, 768, 1024, 2048, 8192, 14432)
# One processor takes seconds for the largest two; it has them with --nightly.
MOST = 1 << (24 if devices() == ["cpu"] and "OPDOCK_TEST_NIGHTLY" not in os.environ else 40)
GRID = [
    shape for shape in itertools.product((1, 32), (1, 128), LENGTHS) if math.prod(shape) <= MOST
]
EPS = 1e-5


def sampled(tensor):
    """Returns all rows if there are few, otherwise 64 of them, because float64 takes long."""
    flat = tensor.reshape(-1, tensor.shape[-1])
    return flat if len(flat) <= 128 else flat[torch.linspace(0, len(flat) - 1, 64).long()]


def rounded_sum(*terms):
    """Returns the sum in float32, rounded to the terms' dtype as the functions' docstrings state;
    in float64."""
    return exact(sum(term.float() for term in terms).to(terms[0].dtype))


@each_dtype
@pytest.mark.parametrize("shape", GRID, ids=str)
def test_on_deepspeeds_grid(shape, suffix, random):
    x, residual = (random((1, *shape[1:]), suffix).repeat(shape[0], 1, 1) for _ in range(2))
    x += torch.arange(shape[0], dtype=x.dtype, device=x.device)[:, None, None] / 16
    bias, gamma, beta = (random(shape[-1:], suffix) for _ in range(3))
    rows, others = sampled(x), sampled(residual)
    assert_close(
        sampled(inference.layer_norm(x, gamma, beta, EPS)), layer_norm(rows, gamma, beta), suffix, 2
    )
    assert_close(sampled(inference.rms_norm(x, gamma, EPS)), rms_norm(rows, gamma), suffix, 2)
    total = rounded_sum(rows, others, bias)
    wanted = layer_norm(total, gamma, beta)
    found = inference._layer_norm_residual(x, bias, residual, gamma, beta, EPS)
    assert_close(sampled(found), wanted, suffix, 2)
    stored, kept = inference.layer_norm_residual_store_pre_ln_res(
        x, bias, residual, gamma, beta, EPS
    )
    assert torch.equal(stored, found)
    exact_sum = exact(rows) + exact(others) + exact(bias)
    assert_close(sampled(kept), exact_sum, suffix, 2)
    total = rounded_sum(rows, others)
    found, kept = inference.pre_rms_norm(x, residual, gamma, EPS)
    assert_close(sampled(found), rms_norm(total, gamma), suffix, 2)
    assert_close(sampled(kept), exact(rows) + exact(others), suffix)


@each_dtype
def test_the_sum_is_not_rounded_much(suffix, random):
    """Compared with the norm of the exact sum there is one more rounding, that of the sum."""
    x, residual = (random((4, 9, 768), suffix) for _ in range(2))
    bias, gamma = (random((768,), suffix) for _ in range(2))
    beta = torch.zeros_like(gamma)
    wanted = layer_norm(exact(x) + exact(residual) + exact(bias), gamma, beta)
    found = inference._layer_norm_residual(x, bias, residual, gamma, beta, EPS)
    assert_close(found, wanted, suffix, 5)


@each_dtype
def test_without_a_bias(suffix, random):
    x, residual = (random((4, 9, 768), suffix) for _ in range(2))
    gamma, beta = (random((768,), suffix) for _ in range(2))
    wanted = layer_norm(rounded_sum(x, residual), gamma, beta)
    found = inference._layer_norm_residual(x, None, residual, gamma, beta, EPS)
    assert_close(found, wanted, suffix, 2)
    stored, total = inference.layer_norm_residual_store(x, None, residual, gamma, beta, EPS)
    assert torch.equal(stored, found) and torch.equal(total, x + residual)


@each_dtype
def test_both_names_of_the_version(suffix, random):
    x, residual = (random((2, 3, 64), suffix) for _ in range(2))
    bias, gamma, beta = (random((64,), suffix) for _ in range(3))
    old = inference.layer_norm_residual_store(x, bias, residual, gamma, beta, EPS)
    new = inference.layer_norm_residual_store_pre_ln_res(x, bias, residual, gamma, beta, EPS)
    assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))
    named = getattr(inference, f"layer_norm_{suffix}")(x, gamma, beta, EPS)
    assert torch.equal(named, inference.layer_norm(x, gamma, beta, EPS))


def test_rows_of_two_dimensions_and_any_length(random):
    """Uses lengths that are no multiple of DeepSpeed's vectors, and rms_norm of a matrix."""
    for length in (1, 3, 7, 1001):
        x, gamma, beta = random((5, length)), random((length,)), random((length,))
        assert_close(inference.rms_norm(x, gamma, EPS), rms_norm(x, gamma), "fp32", 2)
        assert_close(
            inference.layer_norm(x, gamma, beta, EPS), layer_norm(x, gamma, beta), "fp32", 2
        )


def test_the_arguments_stay(random):
    x, residual, bias, gamma = random((2, 3, 8)), random((2, 3, 8)), random((8,)), random((8,))
    before = [t.clone() for t in (x, residual)]
    inference._layer_norm_residual(x, bias, residual, gamma, gamma, EPS)
    inference.pre_rms_norm(x, residual, gamma, EPS)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, residual), strict=True))


def test_wrong_tensors_are_refused(random):
    x, gamma = random((2, 3, 8)), random((8,))
    with pytest.raises(opdock.InvalidArgumentError, match="'gamma': found torch.float16"):
        inference.layer_norm(x, gamma.half(), gamma, EPS)
    with pytest.raises(opdock.InvalidArgumentError, match="float32, float16 or bfloat16"):
        inference.rms_norm(x.double(), gamma.double(), EPS)
    with pytest.raises(opdock.InvalidArgumentError, match="found shape .7., wanted .8."):
        inference.rms_norm(x, gamma[:7], EPS)
    with pytest.raises(opdock.InvalidArgumentError, match="'residual'"):
        inference.pre_rms_norm(x, random((2, 4, 8)), gamma, EPS)
