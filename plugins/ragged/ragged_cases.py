# SPDX-License-Identifier: Apache-2.0
"""Batches of sequences with caches of blocks, for the tests of ragged."""

import pytest
import torch

import opdock
from opdock.testing import move


def random(shape, dtype=torch.float32, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=made, dtype=torch.float64).to(dtype)


def assert_refused(op, name, *args):
    """Checks that the call raises an error that names the argument. A dict has keywords."""
    named = args[-1] if args and isinstance(args[-1], dict) else {}
    args = args[:-1] if named else args
    with pytest.raises((opdock.InvalidArgumentError, opdock.UnsupportedError)) as error:
        op(*args, **named)
    assert f"'{name}'" in str(error.value), error.value


class Batch:
    """Sequences of (tokens in the batch, tokens before it), then padding: `padding` tokens, and
    `spare` rows of sequences."""

    def __init__(self, sequences, padding=0, spare=0):
        self.of = sequences
        lengths = [tokens for tokens, _ in sequences]
        self.tokens = sum(lengths)
        firsts = [sum(lengths[:s]) for s in range(len(sequences))]
        rows = [[first, *of, 7] for first, of in zip(firsts, sequences, strict=True)]
        rows += [[99, 99, 99, 99]] * spare
        owners = [s for s, tokens in enumerate(lengths) for _ in range(tokens)]
        self.counts = torch.tensor([self.tokens, len(sequences)], dtype=torch.int32)
        self.sequences = torch.tensor(rows, dtype=torch.int32).reshape(-1, 4)
        self.token_sequences = torch.tensor([*owners, *[-1] * padding], dtype=torch.int32)
        self.rows = self.tokens + padding  # of a tensor with all tokens

    def ids(self, words):
        ids = torch.arange(self.rows) * 7 % words
        ids[self.tokens :] = -1
        return ids

    def table(self, block_size, blocks):
        """Returns a table of blocks for all tokens of the sequences: other numbers than their
        order, each once, and -1 behind them."""
        needed = [-(-(tokens + seen) // block_size) for tokens, seen in self.of]
        numbers = torch.randperm(blocks, generator=torch.Generator().manual_seed(3)).tolist()
        table = torch.full((len(self.sequences), max(needed) + 1), -1, dtype=torch.int32)
        for s, count in enumerate(needed):
            table[s, :count] = torch.tensor([numbers.pop() for _ in range(count)])
        return table


def addresses(table, device):
    """Returns (addresses of copies of the table's rows on the device, what keeps them alive)."""
    rows = [move(row.clone(), device) for row in table]
    found = [row.address if hasattr(row, "address") else row.data_ptr() for row in rows]
    return torch.tensor(found, dtype=torch.int64), rows
