# SPDX-License-Identifier: Apache-2.0
"""Runs pytest as one Meson test and leaves its cases where tests/run.py counts them.

    run_pytest.py NAME PYTEST_ARGS…

NAME is the Meson test's name. A run in which every case was skipped is a success.
"""

import os
import sys

import pytest

name, arguments = sys.argv[1], sys.argv[2:]
# JAX would take three quarters of the GPU's memory, which other tests of the process need.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
results = os.environ.get("OPDOCK_TEST_RESULTS")
if results:
    arguments += [f"--junitxml={results}/{name}.xml"]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-rs", *arguments]))
