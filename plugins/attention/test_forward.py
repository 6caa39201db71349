# SPDX-License-Identifier: Apache-2.0
"""Tests attention_forward on every device: attention's result, and the logarithms of the sums of
exponentials against float64."""

import sys
from pathlib import Path

import pytest
import row_cases
import torch

import opdock
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attention_cases import by_columns, oracle, tensors

# (B, S, L, H, KV, D): of every kernel, with keys in one part and in several, and prompts.
SHAPES = [
    (2, 1, 77, 8, 2, 64),
    (2, 1, 700, 3, 1, 128),
    (1, 3, 600, 2, 2, 200),
    (1, 70, 72, 2, 1, 40),
    (1, 33, 33, 2, 2, 128),
    (1, 2, 9, 3, 1, 33),
]


def op():
    return opdock.load("attention/attention_forward")


def check(device, q, k, v, options, **others):
    """Compares with attention, bit by bit, and the logarithms with the oracle; others: only for
    the oracle."""
    result, lse = on(device, op())(q, k, v, **options)
    assert torch.equal(result, on(device, opdock.load("attention/attention"))(q, k, v, **options))
    wanted = oracle(q, k.nan_to_num(), v.nan_to_num(), **(others or options))[1]
    assert (lse.dtype, lse.shape) == (torch.float32, wanted.shape)
    assert torch.equal(lse.isneginf(), wanted.isneginf())
    torch.testing.assert_close(lse.double(), wanted, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("causal", [{}, {"causal": True}, {"causal": True, "window": 7}])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(device, dtype, shape, causal):
    q, k, v = tensors(shape, dtype)
    check(device, q, k, v, causal)
    if shape[2] % 8 == 0:
        check(device, q, by_columns(k), v, causal)


@pytest.mark.parametrize("queries", [1, 40])
def test_what_is_not_seen_does_not_count(device, dtype, queries):
    q, k, v = tensors((3, queries, 50, 2, 1, 64), dtype)
    lengths = torch.tensor([0, 50, 5], dtype=torch.int32)
    k[0], k[2, 5:] = float("nan"), float("nan")
    mask = torch.zeros(1, 1, 1, 50)
    mask[..., 3:20] = -float("inf")
    options = {"lengths": lengths, "causal": True}
    check(device, q, k, v, options | {"mask": mask}, **options, added=mask)


def test_wrong_lengths(device, dtype):
    q, k, v = tensors((2, 1, 5, 2, 1, 8), dtype)
    lengths = torch.tensor([6, 3], dtype=torch.int32)
    if device == "cpu":
        row_cases.assert_refused(op(), "lengths", q, k, v, lengths=lengths)
        return
    lse = on(device, op())(q, k, v, lengths=lengths)[1]
    assert lse[0].isnan().all() and lse[1].isfinite().all()


def test_dtype_of_the_logarithms(device):
    q, k, v = tensors((1, 3, 5, 2, 1, 8), torch.float64 if device == "cpu" else torch.float32)
    row_cases.assert_refused(on(device, op()), "dtype", q, k, v, dtype="float16")
    if device != "cpu":
        row_cases.assert_refused(on(device, op()), "dtype", q, k, v, dtype="float64")
        return
    wanted = oracle(q, k, v)[1]
    found = op()(q, k, v, dtype="float64")[1]
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)
    assert op()(q, k, v)[1].dtype == torch.float32
