# SPDX-License-Identifier: Apache-2.0
"""test_gemm.py on software GPUs with warps of 32 and of 64 threads: the plain kernels, compiled by
the real run-time compilers and executed on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdock._author import soft

BUILD = Path(os.environ["OPDOCK_BUILD_DIR"])
TOOLS = BUILD / "libexec" / "opdock"


def run_tests(tmp_path, arch, choice=(), **variables):
    """pytest's process; what the software GPU found; the names of the kernels it launched."""
    findings, record = tmp_path / "findings", tmp_path / "record"
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
    words = [sys.executable, "-m", "pytest", "-q", "-p", "opdock.testing", "-p", "no:cacheprovider"]
    words += [Path(__file__).with_name("test_gemm.py"), *choice]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    found = findings.read_text() if findings.exists() else ""
    lines = [json.loads(x) for x in record.read_text().splitlines()] if record.exists() else []
    launched = {line["function"] for line in lines if line["event"] == "launch"}
    return done, found, launched


@pytest.mark.parametrize("arch", ["sm_90", "gfx90a"])
def test_plain_kernels(tmp_path, arch):
    done, found, launched = run_tests(tmp_path, arch, OPDOCK_GEMM="plain")
    if "jit-no-compiler" in done.stdout:
        pytest.skip(f"no run-time compiler for {arch} is here")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and found == ""
    assert any("multiply_floats" in name for name in launched)
    assert any("multiply_integers" in name for name in launched)
