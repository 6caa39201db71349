# SPDX-License-Identifier: Apache-2.0
"""The ops of random_ltd in PyTorch: the plugin's fallback."""

import torch


def _check(index, tokens):
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < tokens:
        raise ValueError(
            f"argument 'index': found numbers from {int(index.min())} to {int(index.max())}, "
            f"wanted 0 to {tokens - 1}; pass numbers of tokens"
        )


def _places(tensor, index, batch_first):
    """Returns what selects the tokens of tensor, [B, S, C] or [S, B, C], that an index [B, r]
    chooses, and the index of the result's shape."""
    _check(index, tensor.shape[1 if batch_first else 0])
    index = index.long()
    batch = torch.arange(index.shape[0], device=index.device)[:, None].expand_as(index)
    return (batch, index) if batch_first else (index.t(), batch.t())


def token_sort(index, tokens):
    """Returns the numbers of each row in ascending order."""
    _check(index, tokens)
    return index.sort(-1).values


def token_gather(x, index, *, batch_first=True):
    """Returns the chosen tokens, shape [B, r, C], or [r, B, C] if not batch_first."""
    return x[_places(x, index, batch_first)]


def token_gather_backward(grad, x, index, *, batch_first=True):
    """Returns grad at the chosen tokens, and zeros elsewhere, with the shape of x."""
    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    out[_places(x, index, batch_first)] = grad
    return out


def token_scatter_(all, part, index, *, batch_first=True):
    """Writes the tokens of part over the chosen ones of all."""
    all[_places(all, index, batch_first)] = part
