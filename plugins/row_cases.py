# SPDX-License-Identifier: Apache-2.0
"""Shared helpers for the tests of ops along the last dimension: input tensors, checks that hold for
any result, and runs on streams, in graphs and on huge tensors. The test files supply the oracle and
the tolerance.

Tensors are on the CPU, where the oracle is computed; opdock.testing.on() moves them to the
device."""

import os
import re
from pathlib import Path

import pytest
import torch

import opdock
from opdock._author.on_device import is_soft
from opdock.testing import on, with_each_choice

# Row lengths that kernels treat differently: values at and around each limit.
LENGTHS = [1, 2, 3, 7, 31, 32, 33, 64, 65, 127, 128, 129, 255, 256, 257, 264, 512, 1000, 1024]
LENGTHS += [1032, 2048, 4096, 8192, 14432, 16384, 32768, 32769, 32776, 65536]
EMPTY_SHAPES = [(0,), (0, 5), (5, 0), (2, 0, 3)]
OFFSETS = (0, 1, 8, 16)  # offsets of a view's first element: aligned to 16 bytes or not
COMPARED_LENGTHS = [127, 384, 1024, 1023, 8192, 131072]  # for assert_no_larger_error()
# Lengths for which kernels make different choices (lanes of a warp, blocks, clusters, reading the
# row again), with and without elements outside of whole vectors.
WAY_LENGTHS = [48, 263, 1000, 2048, 8191, 40000]
HUGE_LENGTHS = [32776, 32777, 256, 3]  # for huge_rows()


def random(shape, dtype, seed=0, deviation=2.0, mean=0.0):
    """Returns normally distributed numbers, drawn in float32; equal seeds give equal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * deviation + mean).to(dtype)


def layouts(length, dtype, deviation=2.0):
    """Yields tensors with rows of this length: misaligned, padded, with gaps, expanded,
    permuted."""
    wide = random((7, length + 24), dtype, 1, deviation)
    for begin in OFFSETS:
        yield wide[:, begin : begin + length]
    yield wide[::2, 8 : 8 + length]
    yield wide[:1, :length].expand(3, length)
    yield random((3, 4, 2, length), dtype, 2, deviation).permute(2, 0, 1, 3)


def tests_layouts_of_formulas(device):
    """Returns whether tests of several layouts call an op that is a formula with each of them. By
    day they do not on a software GPU, for which every layout is another kernel to compile:
    tests/formula tests the layouts."""
    return device == "cpu" or not is_soft() or "OPDOCK_TEST_NIGHTLY" in os.environ


def assert_like(found, x):
    """Asserts that the result has x's dtype and shape."""
    assert (found.dtype, found.shape) == (x.dtype, x.shape)


def assert_float64_is_for_the_cpu(op, reference, device, **tolerances):
    """Asserts that on the CPU float64 is within `tolerances` of the reference, and that a GPU
    refuses it."""
    x = random((5, 1000), torch.float64)
    if device == "cpu":
        torch.testing.assert_close(op(x), reference(x), **tolerances)
    else:
        with pytest.raises(opdock.OpdockError, match="float64"):
            on(device, op)(x)


def has_fma():
    """Returns whether the CPU has FMA instructions; every aarch64 CPU and newer x86-64 ones do."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return not flags or "fma" in flags[1].split()


def assert_no_larger_error(ours, theirs, dtype, length, deviation=1.0, mean=0.0):
    """Asserts on the CPU that the root mean square error of ours(x), for rows of this length, is at
    most that of PyTorch's theirs(x), which in float64 is the oracle. The error of a single element
    may be larger: where half an ulp decides, it depends on the input."""
    if int(os.environ.get("OPDOCK_CPU_LEVEL", 4)) < 3 or not has_fma():
        pytest.skip("without fused multiplication and addition one more product is rounded")
    x = random((max(8, 65536 // length), length), dtype, length, deviation, mean)
    oracle = theirs(x.double())
    found, peers = ((f(x).double() - oracle).square().mean().sqrt().item() for f in (ours, theirs))
    # The error of a 16-bit result is its rounding, which is the same in both except for ties.
    assert found <= peers * 1.005, f"found an error of {found:.4g}, PyTorch's is {peers:.4g}"


def each_way(device, op, *args, **keywords):
    """Returns a (way, result) pair for each way to launch the op on a GPU, including the op's own
    choice."""
    found = with_each_choice(lambda: on(device, op)(*args, **keywords))
    assert len(found) > 1 or device == "cpu", "its own is one of them"
    return found


def assert_refused(op, name, *args, **keywords):
    """Asserts that the call raises an error that names the argument."""
    with pytest.raises(opdock.OpdockError, match=f"'{name}'"):
        op(*args, **keywords)


def on_another_stream(op, x):
    """Returns op(y) on a stream of its own, while the copy y of x is still being made there."""
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10_000_000)
        y = x + 0
        found = op(y)
    torch.cuda.synchronize()
    return found


def in_a_graph(op, x):
    """Returns op(x), captured in a CUDA graph and replayed after x has been given new values."""
    op(x)  # the first call may prepare the op, which is impossible during a capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = op(x)
    x.copy_(random(x.shape, x.dtype, 9))
    graph.replay()
    return found


def huge_rows(length, device, copies):
    """Returns (x, last): bfloat16 rows of more than 2^31 elements, zero except for the last 40
    rows, which are `last`. Skips the test where `copies` tensors of that size do not fit."""
    rows = 2**31 // length + 70
    if torch.cuda.mem_get_info()[0] < (2 * copies + 1) * rows * length:
        pytest.skip(f"needs {4.3 * copies + 2.2:.0f} GB of free GPU memory")
    x = torch.zeros(rows, length, device=device, dtype=torch.bfloat16)
    last = random((40, length), torch.bfloat16, 7).to(device)
    x[-40:] = last
    return x, last
