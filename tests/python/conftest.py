# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the package's tests; tests/python/meson.build sets where plugins are found."""

import atexit
import functools
import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # has tree_plugins
from programs import Programs


def _has(module):
    return importlib.util.find_spec(module) is not None


# Defines child(work), which forks a child that does `work` and returns its status; SIGALRM ends a
# child that hangs.
FORKED_CHILD = """\
import os, signal
def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            os._exit(0 if work() else 1)
        except BaseException as error:
            print(error, flush=True)
            os._exit(2)
    return os.waitpid(pid, 0)[1]
"""


@functools.cache
def torch_programs():
    """Returns a server of programs that have imported torch, which takes longer than the rest of a
    test. No program has used it yet: torch has no threads, and Opdock is not loaded."""
    made = Programs("import numpy, torch", dict(os.environ))
    atexit.register(made.close)
    return made


requires_torch = pytest.mark.skipif(not _has("torch"), reason="torch is not installed")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU")
    config.addinivalue_line("markers", "wheel: builds and installs a wheel (slow)")


@pytest.fixture
def ops():
    import opdock

    return opdock.ops


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def cuda(torch):
    """Returns torch, if it can use a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU, or a torch without CUDA")
    # On a machine with two GPUs, the second one was current after a test of another library's
    # arrays.
    torch.cuda.set_device(0)
    return torch
