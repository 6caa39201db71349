# SPDX-License-Identifier: Apache-2.0
"""Tests the binding on a GPU's streams: which sequence is whose, and what a token waits for."""

import contextlib

import pytest
import torch
from attention_cases import Case, Oracle

from opdock.compat.deepspeed import inference
from opdock.compat.deepspeed.inference import arenas

LAYERS = 2
CASES = {
    "plain": Case("fp16", size=64),
    "rotary": Case("fp16", size=64, rotary_dim=64, half=True),
    "grouped": Case("fp16", size=64, key_heads=2),
    "float32": Case("fp32"),
}


@pytest.fixture(autouse=True)
def fresh(cuda):
    """Allocates two layers of two rows, for 64 tokens, in any stream; releases the memory
    afterwards."""
    inference.release_workspace()
    inference.allocate_workspace_fp32(256, 4, 10, 2, LAYERS, 1, False, 0, 64, 1)
    yield
    torch.cuda.synchronize()
    inference.release_workspace()


def new_stream():
    """Returns a stream without a sequence. torch has few streams and reuses them in rotation."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        inference.release_workspace()
    return stream


def drawn(shape, suffix, seed):
    """Returns normally distributed numbers on the GPU, drawn on the CPU."""
    dtype = torch.float32 if suffix == "fp32" else torch.float16
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).cuda()


def step(case, qkv):
    """Returns the outputs of all layers."""
    return [case.call(qkv, layer=i, layers=LAYERS)[0] for i in range(LAYERS)]


def check(oracles, found, qkv):
    for oracle, out in zip(oracles, found, strict=True):
        oracle.check(out, qkv)


@contextlib.contextmanager
def no_waiting():
    """Makes torch raise an error where it would wait for the device, as when it copies from
    there."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_two_streams_have_sequences_of_their_own():
    """One thread uses both streams alternately, token by token, with different lengths."""
    case = CASES["rotary"]
    streams = [new_stream() for _ in range(2)]
    oracles = [[Oracle(case) for _ in range(LAYERS)] for _ in streams]
    lengths = ((5, 1, 1, 1), (9, 1, 1, 1))
    for turn in range(4):
        for i, stream in enumerate(streams):
            qkv = drawn((2, lengths[i][turn], case.width), case.suffix, 10 * turn + i)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found = step(case, qkv)
            stream.synchronize()
            check(oracles[i], found, qkv)
    used = []
    for stream in streams:
        with torch.cuda.stream(stream):
            used.append(arenas.shared.arena(torch.device("cuda")))
    assert used[0] is not used[1]
    assert [arena.tokens for arena in used] == [9, 13]
    held = [{cache.both.data_ptr() for cache in arena.caches.values()} for arena in used]
    assert len(held[0] | held[1]) == 2 * LAYERS


@pytest.mark.parametrize("name", CASES)
def test_a_token_does_not_wait_for_the_device(name):
    """From the second token after a prompt on: the first one may make tables and load kernels."""
    case = CASES[name]
    oracles = [Oracle(case) for _ in range(LAYERS)]
    for seed, length in enumerate((7, 1, 1, 1)):
        qkv = drawn((2, length, case.width), case.suffix, seed)
        torch.cuda.synchronize()
        with no_waiting() if seed > 1 else contextlib.nullcontext():
            found = step(case, qkv)
        check(oracles, found, qkv)


@pytest.mark.parametrize("name", CASES)
def test_a_token_can_be_captured(name):
    """The token is captured as a CUDA graph, which rules out any call that waits for the device,
    including waits that torch does not see. A replay computes the same position of the sequence
    with new numbers."""
    case = CASES[name]
    stream = new_stream()
    oracles = [Oracle(case) for _ in range(LAYERS)]
    for seed, length in enumerate((7, 1)):
        qkv = drawn((2, length, case.width), case.suffix, seed)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = step(case, qkv)
        stream.synchronize()
        check(oracles, found, qkv)
    qkv = torch.zeros_like(qkv)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = step(case, qkv)
    before = [(oracle.keys, oracle.values) for oracle in oracles]
    for seed in (8, 9):
        qkv.copy_(drawn(qkv.shape, case.suffix, seed))
        graph.replay()
        torch.cuda.synchronize()
        for oracle, kept in zip(oracles, before, strict=True):
            oracle.keys, oracle.values = kept
        check(oracles, found, qkv)
