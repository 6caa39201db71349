# SPDX-License-Identifier: Apache-2.0
"""Tests copies between host memory and a GPU: stream order, several threads, driver failures and
forked children. tests/softgpu/ops/convert_copy_test.cc tests them on streams that are held back."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch

import opdock
from opdock._author.on_device import is_soft
from opdock.testing import move

to_device, to_host = opdock.ops.copy_to_device, opdock.ops.copy_to_host
BUFFER = 2 << 20  # size of a pinned buffer
POOLED = 8  # number of buffers that may wait for streams


@pytest.fixture
def gpu(device):
    """Returns the device if it is a GPU, also a software GPU driven by opdock._author.driver."""
    if device == "cpu":
        pytest.skip("only copies to and from a GPU are staged")
    return device


def in_a_thread(work):
    """Runs work() on a thread; returns a function that waits for it, and fails if it failed."""
    failed = []

    def run():
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join(120)
        assert not thread.is_alive() and failed == []

    return join


def test_in_the_streams_order(gpu):
    """An op between two copies sees the numbers of the first one."""
    first, second = torch.arange(600.0).view(200, 3), -torch.arange(600.0).view(200, 3)
    x = move(torch.zeros(200, 3), gpu)
    to_device(x, first)
    pieces = opdock.ops.split_rows(x, [150, 50])
    to_device(x, second)
    found, later = torch.zeros(150, 3, dtype=torch.float64), torch.zeros(200, 3)
    to_host(later, x)
    to_host(found, pieces[0])
    assert torch.equal(found.float(), first[:150]) and torch.equal(later, second)


def test_threads(gpu):
    """Each thread makes copies of several buffers, to the GPU and back."""

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for dtype in (torch.uint8, torch.int64):
            x = torch.randint(0, 256, (BUFFER + 1000 * seed,), generator=generator).to(torch.uint8)
            there = move(torch.zeros(1, dtype=dtype).repeat(2000), gpu)
            to_device(there, x[:2000])
            whole = move(torch.zeros_like(x), gpu)
            to_device(whole, x)
            found, back = torch.zeros(2000, dtype=torch.float32), torch.zeros_like(x)
            to_host(found, there)
            to_host(back, whole)
            assert torch.equal(found, x[:2000].float()) and torch.equal(back, x)

    for join in [in_a_thread(lambda seed=seed: work(seed)) for seed in range(4)]:
        join()


# ---- in separate processes, as a driver reads its configuration once

PROLOGUE = """
import os, sys
import torch
import opdock
from opdock.testing import move
torch.set_num_threads(1)  # others would be missed by a forked child
device = sys.argv[1]
to_device, to_host = opdock.ops.copy_to_device, opdock.ops.copy_to_host
x = torch.arange(700_000, dtype=torch.int32)
def round_trip():
    there, back = move(torch.zeros(len(x)), device), torch.zeros(len(x), dtype=torch.int64)
    to_device(there, x)
    to_host(back, there)
    assert torch.equal(back, x.long())
def error(call):
    try:
        call()
    except opdock.OpdockError as error:
        return type(error).__name__ + ": " + str(error)
"""


@pytest.fixture
def program(gpu, tmp_path):
    """Returns program(text, failures=…), which runs a Python program on a software GPU with these
    failures. It returns the program's output, and the sizes of the pinned memory that it allocated
    and freed."""
    if not is_soft():
        pytest.skip("a program of its own sets up a software GPU")

    def run(text, failures=()):
        settings = json.loads(os.environ["OPDOCK_SOFTGPU"])
        settings |= {"failures": list(failures), "findings": str(tmp_path / "findings")}
        record = {"OPDOCK_SOFTGPU_RECORD": str(tmp_path / "record")}
        done = subprocess.run(
            [sys.executable, "-c", PROLOGUE + text, gpu],
            env={**os.environ, "OPDOCK_SOFTGPU": json.dumps(settings), **record},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "findings").exists(), done.stderr
        events = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
        pinned = [event for event in events if event.get("device") == -1]
        sizes = [[x["bytes"] for x in pinned if x["event"] == e] for e in ("allocate", "free")]
        return done.stdout, *sizes

    return run


def name(gpu, cuda, hip):
    return cuda if gpu == "cuda" else hip


def test_buffers_are_used_again_and_freed_at_exit(program):
    out, taken, given_back = program("for _ in range(9): round_trip()\nprint('done')")
    assert out == "done\n"
    assert 1 < len(taken) <= POOLED + 2 and set(taken) == {BUFFER} and given_back == taken


def test_a_forked_child_leaves_the_buffers_alone(program, gpu):
    """The child ends as any process does, copies on the CPU, and is refused the GPU."""
    frees = [
        name(gpu, "cuMemFreeHost", "hipHostFree"),
        name(gpu, "cuEventDestroy_v2", "hipEventDestroy"),
    ]
    crashes = [{"function": function, "crash": True} for function in frees]
    out, _, _ = program(
        """
round_trip()
there = move(torch.zeros(len(x)), device)
if (child := os.fork()) == 0:
    here = torch.zeros(len(x))
    to_device(here, x)
    assert torch.equal(here, x.float())
    print(error(lambda: to_device(there, x)))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
round_trip()
print("the parent goes on", flush=True)
os._exit(0)  # its own end would free them
""",
        crashes,
    )
    refused, parent = out.splitlines()
    assert "DeviceError" in refused and parent == "the parent goes on"


def test_failures_of_the_driver_are_told_and_leave_nothing_behind(program, gpu):
    """Each failure strikes once: an allocation, an event, a copy, and the wait for its
    completion."""
    calls = [
        name(gpu, "cuMemHostAlloc", "hipHostMalloc"),
        name(gpu, "cuEventCreate", "hipEventCreateWithFlags"),
        name(gpu, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"),
        name(gpu, "cuEventRecord", "hipEventRecord"),
        name(gpu, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"),
        name(gpu, "cuEventSynchronize", "hipEventSynchronize"),
    ]
    failures = [{"function": call, "call": 1, "error": 2} for call in calls]
    out, taken, given_back = program("for _ in range(7): print(error(round_trip))", failures)
    lines = out.splitlines()
    for call, line in zip(calls, lines, strict=False):
        assert f"{call}: " in line and line.startswith("OutOfMemoryError"), out
        assert "(2); free pinned host memory" in line
    assert lines[len(calls) :] == ["None"] and sorted(taken) == sorted(given_back)


def test_a_context_that_is_not_the_primary_one(program, gpu):
    """A primary context whose state the driver does not report is treated as not current: each call
    allocates its own buffers."""
    if gpu != "cuda":
        pytest.skip("HIP has no contexts")
    failures = [{"function": "cuDevicePrimaryCtxGetState", "error": 801}]
    out, taken, given_back = program("for _ in range(5): print(error(round_trip))", failures)
    assert out == "None\n" * 5
    assert len(taken) == 5 * 4 and len(given_back) == len(taken)  # two buffers in each direction


# ---- on a GPU that torch reaches


@pytest.mark.gpu
def test_on_torchs_streams(cuda):
    src = torch.arange(3 * BUFFER // 4, dtype=torch.int32)
    dst, back = torch.zeros(len(src), device=cuda), torch.zeros(len(src), dtype=torch.float64)
    to_device(dst, src)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        dst += 1  # runs before the copy overwrites dst
        to_device(dst, src)
        kept = src.clone()
        src.zero_()
        doubled = dst * 2
        to_host(back, doubled)  # waits for all of the above
    assert stream.query() and torch.equal(back, kept.double() * 2)


@pytest.mark.gpu
def test_a_small_copy_does_not_wait(cuda):
    src, dst = torch.ones(1000), torch.zeros(1000, device=cuda)
    for _ in range(POOLED):
        to_device(dst, src)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        to_device(dst, src)
    assert not stream.query()
    stream.synchronize()


@pytest.mark.gpu
def test_a_capture_is_refused(cuda):
    src, dst = torch.ones(1000), torch.zeros(1000, device=cuda)
    to_device(dst, src)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = dst + 1
        for op, args in ((to_device, (dst, src)), (to_host, (src, dst))):
            with pytest.raises(opdock.UnsupportedError, match="captured.*capture-safe"):
                op(*args)
    graph.replay()
    assert bool((y == 2).all())


@pytest.mark.gpu
def test_more_than_2_to_the_31_bytes(cuda):
    if torch.cuda.mem_get_info()[0] < 5e9:
        pytest.skip("needs 5 GB of free GPU memory")
    src = torch.arange(2**31 + 5, dtype=torch.uint8)
    dst, back = torch.empty(len(src), dtype=torch.uint8, device=cuda), torch.empty_like(src)
    to_device(dst, src)
    to_host(back, dst)
    assert torch.equal(back, src)
