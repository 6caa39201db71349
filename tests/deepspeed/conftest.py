# SPDX-License-Identifier: Apache-2.0
"""What the tests of opdock.compat.deepspeed share."""

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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import pairwise  # noqa: E402 (the line above says where it is)
from programs import Programs  # noqa: E402

from opdock.testing import cuda  # noqa: E402, F401 (a fixture; it needs torch)

# A folder of that name, as the tests', is a namespace and has no origin.
spec = importlib.util.find_spec("deepspeed")
has_deepspeed = spec is not None and spec.origin is not None
needs_deepspeed = pytest.mark.skipif(
    not has_deepspeed, reason="DeepSpeed is not installed (tests/requirements-nodeps.txt)"
)


def pytest_collection_modifyitems(items):
    taken = pairwise.chosen(items)
    items[:] = [item for item in items if item in taken]


def devices():
    """Those of OPDOCK_TEST_DEVICES, as of the plugins' tests; without it the CPU, and a GPU if
    there is one. They are counted by NVML: processes that these tests fork can use a GPU."""
    if claimed := os.environ.get("OPDOCK_TEST_DEVICES"):
        return claimed.split(",")
    return ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]


@pytest.fixture(params=devices())
def device(request):
    """Each device of torch's that the inference functions are tested on: "cpu", "cuda"."""
    if request.param != "cpu" and not torch.cuda.is_available():
        pytest.skip(f"OPDOCK_TEST_DEVICES names {request.param!r}, which torch does not have here")
    return request.param


@pytest.fixture
def compat():
    """The module under test; install() is taken back afterwards."""
    from opdock.compat import deepspeed

    yield deepspeed
    deepspeed.uninstall()


@pytest.fixture
def said(monkeypatch):
    """The lines that are said; what was said once before may be said again."""
    from opdock.compat.deepspeed import _say

    lines = []
    monkeypatch.setattr(_say, "_said", set())
    monkeypatch.setattr(_say.sys.stderr, "write", lines.append)
    return lines


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """Makes a CUDA toolkit whose nvcc says that version; nothing else of it works."""
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
    """A server of programs that begin with the prelude, until this process ends."""
    made = Programs(prelude, {**os.environ, **environment})
    atexit.register(made.close)  # waited for, it counts in this process's CPU time
    return made


def run_python(code, *arguments, check=True, prelude="import torch", start=(), **environment):
    """Runs code in a Python of its own; the CompletedProcess, with texts. What begins with the
    prelude is forked from a process that has run it, with the variables `start`; prelude=None: a
    new Python."""
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
