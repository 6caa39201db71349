# SPDX-License-Identifier: Apache-2.0
"""Tests append_blocks, build_atoms and attention_by_atoms on every device: keys and values that lie
in blocks."""

import sys
from pathlib import Path

import pytest
import torch

import opdock
from opdock.testing import on

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ragged_cases
from ragged_cases import Batch, addresses, random

OPS = opdock.ops
# The largest error of one rounding of numbers below 8, and of attention.
ROUNDING = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
SEQUENCES = [(5, 0), (1, 11), (1, 7), (3, 6)]  # prompts, and a block that is full, or just begun


def packed(batch, heads, kv, size, dtype):
    """Returns q, k and v as parts of one tensor."""
    qkv = random((batch.rows, (heads + 2 * kv) * size), dtype, 1)
    return qkv.split([heads * size, kv * size, kv * size], 1)


def frequencies(rotated, theta=10000.0):
    return theta ** (-torch.arange(0, rotated, 2).float() / rotated)


@pytest.mark.parametrize("heads, kv, size", [(4, 4, 16), (6, 2, 80), (3, 1, 6)])
@pytest.mark.parametrize("rotated", [None, 1, 0.5])
@pytest.mark.parametrize("by_address", [False, True])
def test_append_blocks(device, dtype, reference, heads, kv, size, rotated, by_address):
    batch = Batch(SEQUENCES, padding=2, spare=1)
    q, k, v = packed(batch, heads, kv, size, dtype)
    cache = random((11, 4, 2, kv, size), dtype, 2)
    wanted_q, wanted = q.double(), cache.double()
    table = batch.table(4, 11)
    of = (batch.counts, batch.sequences, batch.token_sequences)
    more, wide = (), ()
    if rotated:
        angles = frequencies(int(size * rotated) // 2 * 2)
        more, wide = (q, angles), (wanted_q, angles.double())
    lists, alive = addresses(table, device) if by_address else (table, None)
    on(device, OPS.append_blocks)(k, v, cache, *of, lists, *more)
    reference.append_blocks(k.double(), v.double(), wanted, *of, table, *wide)
    error = ROUNDING[dtype]
    assert (cache.double() - wanted).abs().max() <= error
    assert (q.double() - wanted_q).abs().max() <= error
    assert torch.equal(q[batch.tokens :].double(), wanted_q[batch.tokens :])
    del alive


def test_late_positions(device):
    """Angles are those that float32 gives, as in models' own code, also where they are large."""
    batch = Batch([(2, 100_000)])
    q, k, v = packed(batch, 2, 2, 64, torch.float32)
    cache, table = torch.zeros(2, 65536, 2, 2, 64), torch.tensor([[1, 0]], dtype=torch.int32)
    angles = frequencies(64)
    wanted = torch.cat([q, k], 1).view(2, 4, 64).double()
    turns = (torch.tensor([[100_000.0], [100_001.0]]) * angles).double()[:, None]
    a, b = wanted.chunk(2, -1)
    wanted = torch.cat(
        [a * turns.cos() - b * turns.sin(), b * turns.cos() + a * turns.sin()], -1
    ).view(2, -1)
    on(device, OPS.append_blocks)(
        k, v, cache, batch.counts, batch.sequences, batch.token_sequences, table, q, angles
    )
    first = 100_000 - 65536
    keys = cache[0, first : first + 2, 0].reshape(2, -1)
    assert (torch.cat([q, keys], 1) - wanted).abs().max() < 2e-6


def test_a_block_that_the_cache_lacks(device):
    batch = Batch([(2, 3), (1, 0)])
    q, k, v = packed(batch, 1, 1, 8, torch.float32)
    cache = torch.zeros(2, 4, 2, 1, 8)
    for wrong in (-1, 2):
        table = torch.tensor([[0, wrong], [1, 1]], dtype=torch.int32)
        before = q.clone()
        args = (k, v, cache, batch.counts, batch.sequences, batch.token_sequences, table)
        if device == "cpu":
            with pytest.raises(opdock.InvalidArgumentError, match="token 1, position 4 of seq"):
                OPS.append_blocks(*args, q, frequencies(8))
            assert torch.equal(q, before) and (cache == 0).all()
        else:
            turned = q.clone()
            on(device, OPS.append_blocks)(*args, turned, frequencies(8))
            assert turned[1].isnan().all() and not turned[[0, 2]].isnan().any()


def test_build_atoms(reference):
    batch = Batch([(9, 0), (1, 11), (0, 3), (4, 6)], spare=2)
    lists = torch.tensor([2**40 + 8, 2**33 - 4, 5, 2**31, 0, 0])
    found, wanted = (torch.full((9, 8), -7, dtype=torch.int32) for _ in range(2))
    args = (batch.counts, batch.sequences, lists, 4, 8)
    assert OPS.build_atoms(found, *args) == reference.build_atoms(wanted, *args) == 5
    assert torch.equal(found, wanted) and (found[5:] == -7).all()
    with pytest.raises(opdock.InvalidArgumentError, match="found 4 rows, wanted at least 5"):
        OPS.build_atoms(found[:4], *args)


def attention(
    device, reference, batch, heads, kv, size, dtype, block_size, by_address, q_block=4, **named
):
    """Returns (found, wanted in float64). Rows that belong to no sequence are 5."""
    table = batch.table(block_size, 40)
    cache = random((40, block_size, 2, kv, size), dtype, 4)
    k, v = cache[:, :, 0], cache[:, :, 1]
    q = packed(batch, heads, kv, size, dtype)[0]
    lists, alive = addresses(table, device)
    rows = torch.arange(len(table))
    atoms = torch.zeros(30, 8, dtype=torch.int32)
    used = rows if not by_address else lists
    count = OPS.build_atoms(atoms, batch.counts, batch.sequences, used, q_block, block_size).item()
    atoms = atoms[:count].clone()
    more = () if by_address else (table,)
    out = torch.full((batch.rows, heads * size), 5.0, dtype=dtype)
    on(device, OPS.attention_by_atoms)(out, q, k, v, atoms, *more, **named)
    wanted = out.double()
    by_row = atoms.clone()
    OPS.build_atoms(by_row, batch.counts, batch.sequences, rows, q_block, block_size)
    reference.attention_by_atoms(wanted, q.double(), k.double(), v.double(), by_row, table, **named)
    del alive
    return out, wanted


@pytest.mark.parametrize("heads, kv", [(2, 2), (6, 2), (4, 1), (12, 1)])
@pytest.mark.parametrize("size", [64, 112, 256])
@pytest.mark.parametrize("block_size", [4, 16])
def test_attention_by_atoms(device, dtype, reference, heads, kv, size, block_size):
    """Prompts and single tokens together, rows of padding, and atoms of a part of a prompt."""
    batch = Batch([*SEQUENCES, (9, 2), (1, 40)], padding=2)
    found, wanted = attention(device, reference, batch, heads, kv, size, dtype, block_size, True)
    assert (found.double() - wanted).abs().max() <= ROUNDING[dtype]
    assert (found[batch.tokens :] == 5).all()


@pytest.mark.parametrize("heads, kv", [(2, 2), (6, 2)])
@pytest.mark.parametrize("size", [64, 112, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_prompts(device, dtype, reference, heads, kv, size, causal):
    """On NVIDIA's GPUs tensor cores multiply 16-bit elements of long prompts."""
    batch = Batch([(70, 3), (1, 9), (33, 40)], padding=1)
    found, wanted = attention(
        device, reference, batch, heads, kv, size, dtype, 16, True, q_block=64, causal=causal
    )
    assert (found.double() - wanted).abs().max() <= ROUNDING[dtype]
    assert (found[batch.tokens :] == 5).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_options_of_attention(device, reference, causal, scale):
    batch = Batch([(3, 2), (1, 300)])  # more keys than a block of threads has at a time
    found, wanted = attention(
        device, reference, batch, 2, 1, 16, torch.float32, 8, False, causal=causal, scale=scale
    )
    assert (found.double() - wanted).abs().max() <= 2e-6


def test_values_that_are_not_seen(device, reference):
    """Keys and values behind a query's own, NaN as uninitialised memory may be, do not count."""
    table = torch.tensor([[1, 0]], dtype=torch.int32)
    k, v = (random((2, 4, 1, 8), seed=s) for s in (1, 2))
    for x in (k, v):
        x[0, 2:] = torch.nan
        x[0, 1] = torch.inf
    q, out = random((2, 8), seed=3), torch.zeros(2, 8)
    atoms = torch.tensor([[0, 0, 0, 2, 2, 6, 3, 0]], dtype=torch.int32)
    seen = torch.tensor([[0, 0, 0, 1, 1, 4, 3, 0]], dtype=torch.int32)
    wanted = torch.zeros(2, 8)
    on(device, OPS.attention_by_atoms)(out, q, k, v, atoms, table)
    reference.attention_by_atoms(wanted, q, k, v, seen, table)
    assert (out[0] - wanted[0]).abs().max() <= 2e-6


def test_bad_inputs_name_the_argument(device):
    batch = Batch([(2, 0)])
    of = (batch.counts, batch.sequences, batch.token_sequences)
    k, q, cache = torch.ones(2, 16), torch.ones(2, 32), torch.zeros(3, 4, 2, 2, 8)
    table, angles = torch.zeros(1, 2, dtype=torch.int32), torch.ones(4)
    atoms = torch.zeros(1, 8, dtype=torch.int32)
    keys, values = cache[:, :, 0], cache[:, :, 1]
    for name, op, args in [
        ("k", OPS.append_blocks, (k[:, :8], k, cache, *of, table)),
        ("v", OPS.append_blocks, (k, k[:1], cache, *of, table)),
        ("cache", OPS.append_blocks, (k, k, cache[0], *of, table)),
        ("cache", OPS.append_blocks, (k, k, cache.half(), *of, table)),
        ("cache", OPS.append_blocks, (k, k, torch.zeros(1, 4, 2, 1, 258), *of, table)),
        ("block_lists", OPS.append_blocks, (k, k, cache, *of, table.float())),
        ("block_lists", OPS.append_blocks, (k, k, cache, *of, torch.zeros(2).long())),
        ("frequencies", OPS.append_blocks, (k, k, cache, *of, table, q)),
        ("q", OPS.append_blocks, (k, k, cache, *of, table, q[:, :20], angles)),
        ("frequencies", OPS.append_blocks, (k, k, cache, *of, table, q, torch.ones(5))),
        ("q", OPS.attention_by_atoms, (q, q[:1], keys, values, atoms, table)),
        ("k", OPS.attention_by_atoms, (q, q, keys.half(), values, atoms, table)),
        ("k", OPS.attention_by_atoms, (q, q, keys[..., :4], values[..., :4], atoms, table)),
        ("v", OPS.attention_by_atoms, (q, q, keys, values[:2], atoms, table)),
        ("q", OPS.attention_by_atoms, (q[:, :24], q[:, :24], keys, values, atoms, table)),
        ("atoms", OPS.attention_by_atoms, (q, q, keys, values, atoms[:, :7], table)),
        ("block_table", OPS.attention_by_atoms, (q, q, keys, values, atoms, table[0])),
    ]:
        args = [x.clone() if x is q else x for x in args]
        ragged_cases.assert_refused(on(device, op), name, *args)
