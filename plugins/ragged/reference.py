# SPDX-License-Identifier: Apache-2.0
"""The ops of ragged in PyTorch: the oracle of the plugin's tests, and their fallback. Computed in
float64 if the tensors are, else in float32."""

import ctypes
import math

import torch
import torch.nn.functional as F


def _wide(x):
    return x if x.dtype == torch.float64 else x.float()


def _activation(name):
    return {
        "none": lambda x: x,
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
    }[name]


def bias_activation(x, bias=None, *, activation="none"):
    """Returns the activation of x + bias."""
    wide = _wide(x) if bias is None else _wide(x) + _wide(bias)
    return _activation(activation)(wide).to(x.dtype)


def interleaved_gate(x, bias=None, *, activation="silu"):
    """Returns the activation of the even columns of x + bias, times the odd columns."""
    wide = _wide(x) if bias is None else _wide(x) + _wide(bias)
    return (_activation(activation)(wide[..., ::2]) * wide[..., 1::2]).to(x.dtype)


def _places(batch, sequences, token_sequences):
    """Returns [(token, sequence, position in the sequence)] of the tokens that are no padding."""
    of, rows = token_sequences.tolist(), sequences.tolist()
    tokens = range(int(batch[0]))
    return [(t, of[t], rows[of[t]][2] + t - rows[of[t]][0]) for t in tokens]


def ragged_embed(table, ids, batch, sequences, token_sequences, positions=None, *, offset=0):
    """Returns the table's rows for the tokens of a batch, plus those of their positions."""
    out = table.new_zeros(len(ids), table.shape[1])
    for t, _, at in _places(batch, sequences, token_sequences):
        row = _wide(table[ids[t]])
        if positions is not None:
            row = row + _wide(positions[min(max(at + offset, 0), len(positions) - 1)])
        out[t] = row.to(table.dtype)
    return out


def gather_last_tokens(x, batch, sequences):
    """Returns the row of each sequence's last token."""
    out = x.new_zeros(len(sequences), x.shape[1])
    for s, (first, tokens, *_) in enumerate(sequences.tolist()[: int(batch[1])]):
        if tokens > 0:
            out[s] = x[first + tokens - 1]
    return out


def _block(lists, sequence, number):
    """Returns an entry of a sequence's list of blocks: lists is a table, or has addresses."""
    if lists.dtype == torch.int32:
        return int(lists[sequence, number])
    if lists.device.type != "cpu":
        raise ValueError("found addresses on a GPU, wanted a table of blocks; pass int32")
    return ctypes.c_int32.from_address(int(lists[sequence]) + 4 * number).value


def _turned(heads, position, frequencies):
    """Returns heads, [..., D], of which the first elements are rotated."""
    pairs = len(frequencies)
    angle = frequencies * position
    a, b = heads[..., :pairs], heads[..., pairs : 2 * pairs]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin, heads[..., 2 * pairs :]], -1)


def append_blocks(
    k,
    v,
    cache,
    batch,
    sequences,
    token_sequences,
    block_lists,
    q=None,
    frequencies=None,
):
    """Puts the tokens' keys and values into their blocks; rotates q and the keys."""
    kv, size = cache.shape[3:]
    block_size = cache.shape[1]
    for t, s, at in _places(batch, sequences, token_sequences):
        block = cache[_block(block_lists, s, at // block_size), at % block_size]
        key = _wide(k[t]).view(kv, size)
        if frequencies is not None:
            key = _turned(key, at, frequencies)
            q[t] = _turned(_wide(q[t]).view(-1, size), at, frequencies).flatten().to(q.dtype)
        block[0] = key.to(k.dtype)
        block[1] = v[t].view(kv, size)


def top_k_gating(logits, batch, k=1):
    """Returns (tokens of each expert, scores, assignments, offsets) of the k best experts."""
    tokens, experts = int(batch[0]), logits.shape[1]
    wide = _wide(logits)
    scores = torch.zeros(len(logits), k, device=logits.device)
    assignments = torch.full((len(logits), k), -1, dtype=torch.int32, device=logits.device)
    offsets = assignments.clone()
    # Stable: of equal logits the first comes first.
    best = wide.nan_to_num(math.inf, math.inf, -math.inf).sort(
        dim=-1, descending=True, stable=True
    )[1]
    best = best[:, :k]
    scores[:tokens] = wide.softmax(-1).gather(1, best)[:tokens].to(torch.float32)
    assignments[:tokens] = best[:tokens].int()
    counts = [0] * experts
    for t, row in enumerate(assignments.tolist()[:tokens]):
        for j, expert in enumerate(row):
            offsets[t, j] = counts[expert]
            counts[expert] += 1
    return (
        torch.tensor(counts, dtype=torch.int32, device=logits.device),
        scores,
        assignments,
        offsets,
    )


def moe_scatter(x, counts, assignments, offsets):
    """Returns (rows by expert, inclusive sums of counts, the row of each token and expert)."""
    sums = counts.long().cumsum(0)
    before = torch.cat([sums.new_zeros(1), sums[:-1]])
    there = assignments >= 0
    slots = torch.where(there, before[assignments.clamp_min(0).long()] + offsets, -1).int()
    rows = x.new_zeros(assignments.numel(), x.shape[1])
    rows[slots[there].long()] = x.repeat_interleave(assignments.shape[1], 0)[there.flatten()]
    return rows, sums, slots


def moe_gather(x, scores, slots, counts=None, *, normalize=False):
    """Returns the sum of each token's rows, times their scores; sets counts to 0."""
    if normalize:
        total = scores.sum(-1, keepdim=True)
        scores = torch.where(total != 0, scores / total, scores)
    there = (slots >= 0) & (slots < len(x))
    rows = (
        _wide(x)[torch.where(there, slots, 0).long()]
        if len(x)
        else _wide(x).new_zeros(*slots.shape, x.shape[1])
    )
    weights = torch.where(there, scores, 0)[..., None].to(rows.dtype)
    if counts is not None:
        counts.zero_()
    return torch.where(there[..., None], rows * weights, 0).sum(1).to(x.dtype)


def build_atoms(atoms, batch, sequences, block_lists, q_block, kv_block):
    """Writes the atoms of a batch; returns their number."""
    number = 0
    for s, (first, tokens, seen, _) in enumerate(sequences.tolist()[: int(batch[1])]):
        address = torch.tensor([int(block_lists[s])]).view(torch.int32)
        for done in range(0, tokens, q_block):
            queries = min(q_block, tokens - done)
            keys = seen + done + queries
            atoms[number, :2] = address
            atoms[number, 2:] = torch.tensor(
                [first + done, queries, -(-keys // kv_block), keys, seen + done, 0]
            )
            number += 1
    return torch.tensor([number], dtype=torch.int32)


def attention_by_atoms(out, q, k, v, atoms, block_table=None, *, scale=None, causal=True):
    """Writes the attention of each atom's queries to the keys of its sequence."""
    block_size, kv, size = k.shape[1:]
    scale = 1 / math.sqrt(size) if scale is None else scale
    lists = block_table
    if lists is None:
        lists = atoms[:, :2].contiguous().view(torch.int64).flatten()
    for number, (row, _, first, queries, _, keys, position, _) in enumerate(atoms.tolist()):
        if queries == 0:
            continue
        of = number if block_table is None else row
        blocks = [_block(lists, of, i) for i in range(-(-keys // block_size))]
        own_k, own_v = (_wide(x[blocks]).flatten(0, 1)[:keys].transpose(0, 1) for x in (k, v))
        own_q = _wide(q[first : first + queries]).view(queries, kv, -1, size)
        scores = torch.einsum("qhgd,hkd->hgqk", own_q, own_k) * scale
        if causal:
            at = torch.arange(keys, device=q.device)
            hidden = at > position + torch.arange(queries, device=q.device)[:, None]
            scores = scores.masked_fill(hidden, -math.inf)
        found = torch.einsum("hgqk,hkd->qhgd", scores.softmax(-1), own_v)
        out[first : first + queries] = found.reshape(queries, -1).to(out.dtype)
