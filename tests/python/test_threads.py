# SPDX-License-Identifier: Apache-2.0
"""Tests which threads CPU ops run on: those of PyTorch's OpenMP where it is loaded, else the
library's."""

import ctypes
import json
import os
import subprocess
import sys

import pytest
from conftest import FORKED_CHILD, requires_torch, torch_programs

PRELUDE = f"""\
import json
{FORKED_CHILD}
def tasks():
    return set(os.listdir("/proc/self/task"))
"""
# The work is large enough for several threads; their number is set, in case the machine has only
# one core.
TORCH = """\
import torch
torch.set_num_threads(4)
x = torch.ones(1, 4096).expand(64, -1)
def works():
    return bool((opdock.ops.softmax(x).numpy() == 1 / 4096).all())  # no region of torch
"""


def run(code):
    """Runs the code in a process of its own; returns what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def counts(code):
    """Returns [threads that the code's two halves add, …]; a line `---` divides the halves.

    One thread's worth of work runs first: the first op asks NVIDIA's driver for the GPUs, which may
    start a thread of its own."""
    first, second = code.split("---")
    return run(
        f"{first}\nopdock.ops.softmax(x[:1, :8])\n"
        f"begun = tasks()\nworks()\nmiddle = tasks()\n{second}\n"
        "print(json.dumps([len(middle - begun), len(tasks() - middle)]))"
    )


@requires_torch
def test_torch_and_opdock_have_the_same_threads():
    assert counts(TORCH + "import opdock\n---\ntorch.softmax(x, -1)") == [3, 0]


@requires_torch
def test_torch_may_come_later():
    code = """\
import numpy, opdock
opdock.ops.softmax(numpy.ones((64, 4096), "float32"))
"""
    assert counts(code + TORCH + "\n---\ntorch.softmax(x, -1)") == [3, 0]


@requires_torch
def test_as_many_as_torch_is_told():
    assert counts(TORCH + "import opdock\ntorch.set_num_threads(1)\n---\nworks()") == [0, 0]


def test_without_torch_the_library_has_its_own():
    code = """\
import numpy, opdock
x = numpy.ones((64, 4096), "float32")
def works():
    return bool((opdock.ops.softmax(x) == 1 / 4096).all())
---
works()
"""
    assert counts(code) == [len(os.sched_getaffinity(0)) - 1, 0]


@requires_torch
@pytest.mark.parametrize("late", [False, True], ids=["opdock used before", "opdock loaded after"])
def test_a_forked_child_uses_none_that_its_parent_had(late):
    used = "torch.softmax(x, -1)\n" if late else "import opdock\nworks()\n"
    child = "def in_child():\n    global opdock\n    import opdock\n    return works()\n"
    code = PRELUDE + TORCH + used + child + "print(json.dumps(child(in_child)))"
    done = torch_programs().run(code, os.environ)
    assert done.returncode == 0 and json.loads(done.stdout) == 0, done.stdout + done.stderr


@pytest.fixture
def four_threads(torch):
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield torch
    torch.set_num_threads(before)


def test_short_work_is_one_chunk_for_each_thread(four_threads, ops):
    """A chunk that another thread takes over would be in the first thread's cache. The grain is
    one."""
    for items, chunks in [(2, 2), (4, 4), (63, 4), (64, 16), (1000, 16)]:
        numbers = ops.py_chunks_(four_threads.zeros(items)).int().unique(return_counts=True)
        begins, sizes = (column.tolist() for column in numbers)
        assert len(begins) == chunks, items
        assert begins == [1 + sum(sizes[:i]) for i in range(chunks)]


def test_fewer_threads_than_were_asked_for_do_all_of_it(four_threads, ops):
    """Inside an OpenMP region there is only one thread."""
    x = four_threads.zeros(2, 50)
    number = ctypes.CDLL(None).omp_get_thread_num
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: ops.py_chunks_(x[number()]))
    ctypes.CDLL(None).GOMP_parallel(work, None, 2, 0)
    assert [x[i].int().unique().tolist() for i in range(2)] == [[1, 14, 27, 40]] * 2
