# SPDX-License-Identifier: Apache-2.0
"""Inputs and the oracle for the tests of attention_forward and attention_backward."""

import os

import pytest
import torch
from row_cases import random

from opdock._author.on_device import is_soft


def only_by_night(device, dtype, size, plain=False):
    """Skips a case that needs another kernel on a software GPU, where compiling one takes longer
    than all that it computes. By day the gradients run there in float32 for heads of up to 64
    elements, on sm_90 also for those of more than 128, and in float16, the grid's 16-bit dtype of
    the day there. plain: the call does not use tensor cores."""
    if device == "cpu" or not is_soft() or "OPDOCK_TEST_NIGHTLY" in os.environ:
        return
    small, on_cuda = size <= 64, device == "cuda"
    if dtype == torch.float32 and (small or (size > 128 and on_cuda)):
        return
    if dtype == torch.float16 and on_cuda and (small or (size <= 128 and not plain)):
        return
    pytest.skip("needs kernels that are compiled for software GPUs by night")


def tensors(shape, dtype, seed=0):
    """Returns q, k and v for (B, S, L, H, KV, D)."""
    batch, queries, keys, heads, kv_heads, size = shape
    q = random((batch, queries, heads, size), dtype, seed, 1.0)
    return q, *(random((batch, keys, kv_heads, size), dtype, seed + i, 1.0) for i in (1, 2))


def by_columns(k):
    """Returns k, [B, L, KV, D], with the tokens adjacent in memory: [B, KV, D, L]."""
    return k.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def oracle(q, k, v, lengths=None, added=None, slopes=None, scale=None, causal=False, window=0):
    """Computes attention and the logarithms of its sums in float64, with all scores at once, so
    that torch differentiates it. added: broadcasts to [B, H, S, L]."""
    batch, queries, heads, size = q.shape
    keys = k.shape[1]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    length = torch.full((batch,), keys) if lengths is None else lengths.long()
    distance = torch.arange(keys) - (length[:, None] - queries + torch.arange(queries))[..., None]
    seen = (torch.arange(keys) < length[:, None, None]).expand_as(distance)
    if causal:
        seen = seen & (distance <= 0)
    if window:
        seen = seen & (distance > -window)
    distance, seen = distance[:, None], seen[:, None]
    scores = q @ k.mT * (size**-0.5 if scale is None else scale)
    if added is not None:
        scores = scores + added.double()
    if slopes is not None:
        scores = scores + slopes.double()[:, None, None] * distance
    scores = scores.masked_fill(~seen, -float("inf"))
    some = (scores > -float("inf")).any(-1, keepdim=True)
    scores = torch.where(some, scores, 0.0)
    result = (torch.softmax(scores, -1) * some) @ v
    lse = torch.where(some[..., 0], torch.logsumexp(scores, -1), -float("inf"))
    return result.transpose(1, 2), lse
