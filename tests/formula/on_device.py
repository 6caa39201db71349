# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder on one device, as one Meson test.

    on_device.py NAME DEVICE [PYTEST_ARGS…]

NAME is the Meson test's name. DEVICE: cpu, or the architecture of a software GPU. The test fails
also if a software GPU left a finding, such as an access outside of a tensor."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from opdock._author import soft

FOLDER = Path(__file__).resolve().parent


def run(name, arguments, env):
    words = [sys.executable, FOLDER.parent / "run_pytest.py", name, *arguments]
    return subprocess.run(list(map(str, words)), env=env).returncode


def main():
    name, device, *arguments = sys.argv[1:]
    # The random formulas are Meson tests of their own: here with --nightly, on the CPU in
    # tests/python.
    arguments = arguments or [FOLDER, f"--ignore={FOLDER / 'test_random_formulas.py'}"]
    if device == "cpu":
        return run(name, arguments, os.environ | {"OPDOCK_TEST_DEVICES": "cpu"})
    drivers = Path(os.environ["OPDOCK_BUILD_DIR"]) / "libexec" / "opdock" / "softgpu"
    kind, _ = soft.kind_of(device)
    with tempfile.TemporaryDirectory() as folder:
        # Code that an earlier run compiled would hide what the compilers say now.
        findings, code = Path(folder) / "findings", Path(folder) / "code"
        code.mkdir()
        settings = {"findings": str(findings), "leaks": True}
        gpus = [{"arch": device}] * 2
        env = soft.environment(os.environ, drivers, code, gpus, folder, **settings) | {
            "OPDOCK_CACHE_DIR": str(Path(folder) / "cache"),
            "OPDOCK_TEST_DEVICES": kind,
        }
        status = run(name, arguments, env)
        if findings.exists():
            print(findings.read_text(), file=sys.stderr)
            return 1
        return status


if __name__ == "__main__":
    sys.exit(main())
