# SPDX-License-Identifier: Apache-2.0
"""Runs test_gemm.py on software GPUs with warps of 32 and of 64 threads.

The real run-time compilers compile the plain kernels, and the CPU executes them."""

import atexit
import functools
import json
import os
import sys
from pathlib import Path

import pytest

from opdock._author import soft

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from programs import Programs

BUILD = Path(os.environ["OPDOCK_BUILD_DIR"])
TOOLS = BUILD / "libexec" / "opdock"
PYTEST = "import pytest, sys\nsys.exit(pytest.main(sys.argv[1:]))"


@functools.cache
def programs():
    """Returns the server of all programs, which has imported torch and pytest and finds the
    stand-in drivers."""
    env = soft.environment(os.environ, TOOLS / "softgpu", "", [], "")
    made = Programs("import pytest, torch; torch.set_num_threads(1)", env)
    atexit.register(made.close)
    return made


def run_on(tmp_path, arch, text, *arguments, **variables):
    """Returns the finished Python program, what the software GPU found, and the names of the
    kernels that it launched."""
    findings, record = tmp_path / "findings", tmp_path / "record"
    for path in (findings, record):
        path.unlink(missing_ok=True)
    code = BUILD / "tests" / "gemm" / "code"
    code.mkdir(exist_ok=True)
    settings = {"findings": str(findings), "leaks": True}
    env = soft.environment(
        os.environ, TOOLS / "softgpu", code, [{"arch": arch}], tmp_path, **settings
    ) | {
        "OPDOCK_SOFTGPU_RECORD": str(record),
        "OPDOCK_TEST_DEVICES": soft.kind_of(arch)[0],
        "OPDOCK_BUILD": "never",
        "OPDOCK_FALLBACK": "error",
        **variables,
    }
    done = programs().run(text, env, *arguments)
    if "jit-no-compiler" in done.stdout + done.stderr:
        pytest.skip(f"no run-time compiler for {arch} is here")
    found = findings.read_text() if findings.exists() else ""
    lines = [json.loads(x) for x in record.read_text().splitlines()] if record.exists() else []
    launched = {line["function"] for line in lines if line["event"] == "launch"}
    return done, found, launched


def run_tests(tmp_path, arch, choice=(), **variables):
    words = ["-q", "-p", "opdock.testing", "-p", "no:cacheprovider"]
    words += [Path(__file__).with_name("test_gemm.py"), *choice]
    return run_on(tmp_path, arch, PYTEST, *words, **variables)


# Arrays on a software GPU, and the stream that ops on them get (tests/softgpu/ops/test_devices.py).
SIDE = """
import os, sys, threading, types, torch, opdock
from opdock._author import driver
from opdock._author.device_array import DeviceArray, allocate_like, to_gpu
gpu = driver.gpu(os.environ["OPDOCK_TEST_DEVICES"])
stream = gpu.stream()
cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
cupy.ndarray, cupy.cuda = type("ndarray", (DeviceArray,), {}), cuda
cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=stream)
sys.modules |= {"cupy": cupy, "cupy.cuda": cuda}
a, b, d = torch.randn(33, 64), torch.randn(64, 48), torch.zeros(33, 48)
there = [to_gpu(a, gpu), to_gpu(b, gpu), to_gpu(d, gpu)]
gpu.synchronize()
for array in there:
    array.__class__ = cupy.ndarray
def multiply():
    opdock.ops.test_gemm(*there)
def check():
    gpu.synchronize(stream)
    assert (there[2].to_host() - a.double() @ b.double()).abs().max() < 1e-4
"""
CAPTURE = """
multiply()
check()
graph = gpu.capture(stream, multiply)
for seed in (1, 2):
    a = torch.randn(33, 64, generator=torch.Generator().manual_seed(seed))
    gpu.to_device(there[0].address, a.data_ptr(), a.nbytes, stream)
    gpu.launch_graph(graph, stream)
    check()
"""


@pytest.mark.parametrize("arch", ["sm_90", "gfx90a"])
def test_plain_kernels(tmp_path, arch):
    done, found, launched = run_tests(tmp_path, arch, OPDOCK_GEMM="plain")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and found == ""
    assert any("multiply_floats" in name for name in launched)
    assert any("multiply_integers" in name for name in launched)


@pytest.mark.parametrize("arch", ["sm_90", "gfx90a"])
def test_a_captured_product_runs_when_its_graph_does(tmp_path, arch):
    done, found, _ = run_on(tmp_path, arch, SIDE + CAPTURE, OPDOCK_GEMM="plain")
    assert done.returncode == 0 and found == "", done.stderr + found
