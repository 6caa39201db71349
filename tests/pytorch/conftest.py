# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of torch.ops.opdock; tests/python/meson.build says where plugins are."""

import atexit
import functools
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # has tree_plugins
from programs import Programs

pytest.importorskip("torch", reason="torch is not installed")


@functools.cache
def programs(prelude, path):
    """Returns a server of programs that begin with the prelude, whose imports take longer than the
    rest of a test. path: PYTHONPATH."""
    made = Programs(prelude, {**os.environ, "PYTHONPATH": path})
    atexit.register(made.close)  # waits for it, so that its CPU time counts as this process's
    return made


def run_python(code, *arguments, prelude="import torch", **environment):
    """Runs code in a process that is forked from one that has run the prelude. It must succeed."""
    environment = {**os.environ, **environment}
    path = environment.get("PYTHONPATH", "")
    done = programs(prelude, path).run(code, environment, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session", autouse=True)
def inductor_without_vectors():
    """Inductor compiles three programs, for two seconds each, to learn which vectors its code may
    have. Which code it makes around an operator is the same without vectors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list)
        yield


@pytest.fixture
def ops():
    import torch

    import opdock.torch  # noqa: F401  (registers the operators)

    return torch.ops.opdock


@pytest.fixture(params=["recorded in C++", "recorded in Python"])
def recorder(request):
    """Has calls recorded for autograd by the library for this torch, and then by Python."""
    from opdock import _opdock
    from opdock.torch import _recorder

    in_cpp = request.param == "recorded in C++"
    if in_cpp and _recorder.problem() is not None:
        pytest.skip(_recorder.problem())
    _opdock.torch_use_recorder(in_cpp)
    yield in_cpp
    _opdock.torch_use_recorder(True)
