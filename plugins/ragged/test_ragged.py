# SPDX-License-Identifier: Apache-2.0
"""Tests the ops of ragged on every device: activations, copies of a batch's rows, and experts."""

import sys
from pathlib import Path

import pytest
import torch

import opdock
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ragged_cases
from ragged_cases import Batch, random

OPS = opdock.ops
# Error of the activations before rounding: of 16-bit elements 1e-5, of float32 a few of its ulps.
ERRORS = {torch.float32: 2e-6, torch.float16: 3e-5, torch.bfloat16: 3e-5}


@pytest.mark.parametrize("columns", [24, 7])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_bias_activation(device, dtype, reference, assert_close, columns, activation, has_bias):
    x = random((2, 5, columns), dtype, 1)
    bias = random((columns,), dtype, 2) if has_bias else None
    wanted = reference.bias_activation(
        x.double(), bias.double() if has_bias else None, activation=activation
    )
    op = on(device, OPS.bias_activation)
    scale = torch.full_like(wanted, 4.0)
    found = op(x, bias, activation=activation)
    assert_close(found, wanted, ERRORS[dtype], scale)
    assert torch.equal(op(x, bias, activation=activation, out=x), found)
    strided = x.transpose(0, 1)
    assert torch.equal(op(strided, None, activation="none"), strided)


@pytest.mark.parametrize("columns", [16, 520, 7])
@pytest.mark.parametrize("activation", ["gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_interleaved_gate(device, dtype, reference, assert_close, columns, activation, has_bias):
    x = random((3, 2, 2 * columns), dtype, 3)
    bias = random((2 * columns,), dtype, 4) if has_bias else None
    wanted = reference.interleaved_gate(
        x.double(), bias.double() if has_bias else None, activation=activation
    )
    op = on(device, OPS.interleaved_gate)
    scale = torch.full_like(wanted, 8.0)
    assert_close(op(x, bias, activation=activation), wanted, ERRORS[dtype], scale)
    assert_close(op(x[:, 1], bias, activation=activation), wanted[:, 1], ERRORS[dtype], scale[:, 1])


@pytest.mark.parametrize("columns", [16, 5])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("offset", [None, 0, 2, -3])
def test_ragged_embed(device, dtype, reference, columns, ids, offset):
    batch = Batch([(3, 0), (1, 9), (2, 4)], padding=3)
    table, positions = random((20, columns), dtype, 5), random((11, columns), dtype, 6)
    args = (table, batch.ids(20).to(ids), batch.counts, batch.sequences, batch.token_sequences)
    more = () if offset is None else (positions,)
    named = {} if offset is None else {"offset": offset}
    found = on(device, OPS.ragged_embed)(*args, *more, **named)
    assert torch.equal(found, reference.ragged_embed(*args, *more, **named))
    assert (found[-3:] == 0).all()


def test_an_id_that_the_table_lacks(device):
    batch = Batch([(2, 0)], padding=1)
    for wrong in (-1, 4):
        ids = torch.tensor([1, wrong, -1])
        args = (torch.ones(4, 8), ids, batch.counts, batch.sequences, batch.token_sequences)
        if device == "cpu":
            with pytest.raises(opdock.InvalidArgumentError, match=f"'ids': found {wrong} for tok"):
                OPS.ragged_embed(*args)
        else:
            found = on(device, OPS.ragged_embed)(*args)
            assert found[1].isnan().all() and (found[0] == 1).all() and (found[2] == 0).all()


@pytest.mark.parametrize("columns", [24, 3])
def test_gather_last_tokens(device, dtype, reference, columns):
    batch = Batch([(3, 0), (1, 9), (0, 4), (2, 1)], padding=2, spare=2)
    x = random((8, columns + 8), dtype, 7)[:, :columns]
    found = on(device, OPS.gather_last_tokens)(x, batch.counts, batch.sequences)
    assert torch.equal(found, x[[2, 3, 0, 5, 0, 0]] * torch.tensor([1, 1, 0, 1, 0, 0])[:, None])


@pytest.mark.parametrize("tokens, padding", [(1, 0), (13, 3), (300, 0)])
@pytest.mark.parametrize("experts, k", [(16, 1), (8, 2), (300, 3), (2, 2)])
def test_top_k_gating(device, dtype, reference, tokens, padding, experts, k):
    logits = random((tokens + padding, experts), dtype, 8)
    if experts == 8:
        logits = logits.round()  # many are equal
    batch = torch.tensor([tokens, 1], dtype=torch.int32)
    found = on(device, OPS.top_k_gating)(logits, batch, k)
    wanted = reference.top_k_gating(logits, batch, k)
    for i in (0, 2, 3):
        assert found[i].dtype == torch.int32 and torch.equal(found[i], wanted[i]), i
    assert (found[1] - wanted[1]).abs().max() < 2e-6
    assert (found[1][tokens:] == 0).all()


def test_a_logit_that_is_nan(device):
    logits = torch.tensor([[0.0, torch.nan, 1.0], [torch.inf, 0.0, 0.0]])
    batch = torch.tensor([2, 1], dtype=torch.int32)
    counts, scores, assignments, _ = on(device, OPS.top_k_gating)(logits, batch, 2)
    assert assignments.tolist() == [[1, 2], [0, 1]] and counts.tolist() == [1, 2, 1]
    assert scores[0].isnan().all()


@pytest.mark.parametrize("tokens, experts, k", [(13, 64, 1), (37, 8, 2), (5, 300, 3)])
@pytest.mark.parametrize("columns", [48, 5])
@pytest.mark.parametrize("normalize", [False, True])
def test_scatter_and_gather(device, dtype, reference, tokens, experts, k, columns, normalize):
    x = random((tokens + 2, columns), dtype, 9)
    batch = torch.tensor([tokens, 1], dtype=torch.int32)
    gates = reference.top_k_gating(random((tokens + 2, experts), torch.float32, 10), batch, k)
    counts, scores, assignments, offsets = gates
    if k == 3:  # one token lacks one of its experts, the last of its expert's rows
        expert = int(assignments[tokens - 1, 1])
        counts[expert] -= 1
        assignments[tokens - 1, 1] = -1
    wanted = reference.moe_scatter(x, counts, assignments, offsets)
    outs = tuple(torch.full_like(one, 7) for one in wanted)
    found = on(device, OPS.moe_scatter)(x, counts, assignments, offsets, out=outs)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)
    out = random((tokens * k + 2 * k, columns), dtype, 11)
    kept = counts.clone()
    again = on(device, OPS.moe_gather)(out, scores, wanted[2], counts, normalize=normalize)
    sums = reference.moe_gather(out.double(), scores.double(), wanted[2], kept, normalize=normalize)
    assert (counts == 0).all() and (again[tokens:] == 0).all()
    error = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    assert (again.double() - sums).abs().max() < error
    alone = on(device, OPS.moe_gather)(out, scores, wanted[2], normalize=normalize)
    assert torch.equal(alone, again)


def test_bad_inputs_name_the_argument(device):
    batch = Batch([(2, 0)])
    x, table = torch.ones(2, 4), torch.ones(3, 4)
    of = (batch.counts, batch.sequences, batch.token_sequences)
    ids, slots = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int32)
    for name, op, args in [
        ("activation", OPS.bias_activation, (x, None, {"activation": "mish"})),
        ("x", OPS.bias_activation, (x.double(),)),
        ("bias", OPS.bias_activation, (x, torch.ones(3))),
        ("x", OPS.interleaved_gate, (torch.ones(2, 3),)),
        ("ids", OPS.ragged_embed, (table, ids.float(), *of)),
        ("token_sequences", OPS.ragged_embed, (table, ids[:1], *of)),
        ("batch", OPS.ragged_embed, (table, ids, of[0][:1], *of[1:])),
        ("sequences", OPS.ragged_embed, (table, ids, of[0], of[1][:, :3].contiguous(), of[2])),
        ("positions", OPS.ragged_embed, (table, ids, *of, torch.ones(3, 5))),
        ("positions", OPS.ragged_embed, (table, ids, *of, torch.ones(0, 4))),
        ("x", OPS.gather_last_tokens, (x[0], *of[:2])),
        ("k", OPS.top_k_gating, (x, of[0], 5)),
        ("k", OPS.top_k_gating, (x, of[0], 0)),
        ("assignments", OPS.moe_scatter, (x, slots[0], slots.long(), slots)),
        ("offsets", OPS.moe_scatter, (x, slots[0], slots, slots[:1])),
        ("scores", OPS.moe_gather, (x, torch.ones(2, 2), slots)),
        ("slots", OPS.moe_gather, (x, torch.ones(2, 1), slots.long())),
    ]:
        ragged_cases.assert_refused(on(device, op), name, *args)
