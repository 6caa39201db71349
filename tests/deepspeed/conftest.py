# SPDX-License-Identifier: Apache-2.0
"""Fixtures and helpers that the tests of opdock.compat.deepspeed share."""

import atexit
import functools
import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "plugins")]
import pairwise  # noqa: E402 (the line above says where it is)
from programs import Programs  # noqa: E402
from warm_python import WarmPython  # noqa: E402

from opdock.testing import cuda  # noqa: E402, F401 (a fixture; it needs torch)

# A folder with that name, such as the tests', is found as a namespace package and has no origin.
spec = importlib.util.find_spec("deepspeed")
has_deepspeed = spec is not None and spec.origin is not None
needs_deepspeed = pytest.mark.skipif(
    not has_deepspeed, reason="DeepSpeed is not installed (tests/requirements-nodeps.txt)"
)


def pytest_collection_modifyitems(items):
    taken = pairwise.chosen(items)
    items[:] = [item for item in items if item in taken]


def devices():
    """Returns the devices in OPDOCK_TEST_DEVICES, as in the plugins' tests; without it the CPU, and
    a GPU if there is one. NVML counts the GPUs, so that processes forked by these tests can use a
    GPU."""
    if claimed := os.environ.get("OPDOCK_TEST_DEVICES"):
        return claimed.split(",")
    return ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]


@pytest.fixture(params=devices())
def device(request):
    """Yields each torch device that the inference functions are tested on: "cpu", "cuda"."""
    if request.param != "cpu" and not torch.cuda.is_available():
        pytest.skip(f"OPDOCK_TEST_DEVICES names {request.param!r}, which torch does not have here")
    return request.param


@pytest.fixture
def compat():
    """Yields the module under test; calls uninstall() afterwards."""
    from opdock.compat import deepspeed

    yield deepspeed
    deepspeed.uninstall()


@pytest.fixture
def said(monkeypatch):
    """Returns the list of printed lines. Messages that are printed only once may be printed
    again."""
    from opdock.compat.deepspeed import _say

    lines = []
    monkeypatch.setattr(_say, "_said", set())
    monkeypatch.setattr(_say.sys.stderr, "write", lines.append)
    return lines


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """Makes a CUDA toolkit whose nvcc reports the given version and architectures; nothing else in
    it works."""
    from opdock.compat.deepspeed import _versions

    def make(version, archs=(75, 80, 90)):
        folder = tmp_path / f"cuda-{version}"
        (folder / "bin").mkdir(parents=True)
        nvcc = folder / "bin" / "nvcc"
        listed = "\\n".join(f"compute_{arch}" for arch in archs)
        nvcc.write_text(
            "#!/bin/sh\n"
            'case "$*" in\n'
            f"  *--list-gpu-arch*) printf '{listed}\\n' ;;\n"
            f"  *) echo 'Cuda compilation tools, release {version}, V{version}.1' ;;\n"
            "esac\n"
        )
        nvcc.chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(folder))
        monkeypatch.delenv("CUDACXX", raising=False)
        monkeypatch.delenv("CUDA_PATH", raising=False)
        _versions._tools.cache_clear()
        return folder

    yield make
    _versions._tools.cache_clear()


@functools.cache
def programs(prelude, **environment):
    """Returns a server of programs that begin with the prelude; it lives until this process
    ends."""
    made = Programs(prelude, {**os.environ, **environment})
    # Closing waits for it, so that its CPU time counts as this process's.
    atexit.register(made.close)
    return made


@functools.cache
def warm_python():
    """Returns the path of a Python whose processes have torch, for those that a test starts and
    waits for itself; it is there until this process ends."""
    made = WarmPython("import torch", [os.environ.get("LD_LIBRARY_PATH", "")])
    atexit.register(made.close)
    return str(made.program)


def run_python(code, *arguments, check=True, prelude="import torch", start=(), **environment):
    """Runs code in a Python process of its own; returns the CompletedProcess, with texts. The
    process is forked from one that has run the prelude, with the variables `start`. With
    prelude=None it is a new Python."""
    code, environment = textwrap.dedent(code), {**os.environ, **environment}
    if prelude is None:
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=600,
            env=environment,
            check=False,
        )
    else:
        done = programs(prelude, **dict(start)).run(code, environment, *arguments)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done
