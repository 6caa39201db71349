# SPDX-License-Identifier: Apache-2.0
"""Runs pytest as one Meson test and writes its cases where tests/run.py counts them.

    run_pytest.py NAME PYTEST_ARGS…

NAME is the Meson test's name. A run in which every case was skipped is a success."""

import gc
import os
import sys

import pytest


class CpuTime:
    """Records for each case the CPU time of this process and of children that have ended, including
    fixtures."""

    def __init__(self):
        self.begin = 0.0

    @staticmethod
    def used():
        return sum(os.times()[:4])

    def pytest_runtest_logstart(self):
        self.begin = self.used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item):
        result = yield
        item.user_properties.append(("cpu", f"{self.used() - self.begin:.2f}"))
        return result


class GarbageCollection:
    """Leaves the modules and tests that collecting them has loaded to the end of the process: there
    are some 200,000 objects, torch's for the most part, and nothing frees them earlier."""

    def pytest_sessionstart(self):
        gc.disable()

    def pytest_collection_finish(self):
        gc.freeze()
        gc.enable()


name, arguments = sys.argv[1], sys.argv[2:]
# JAX would take three quarters of the GPU's memory, which other tests of the process need.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Plugins of pytest that happen to be installed take a second to import, in each process.
os.environ.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
results = os.environ.get("OPDOCK_TEST_RESULTS")
if results:
    arguments += [f"--junitxml={results}/{name}.xml"]
options = ["-q", "-p", "no:cacheprovider", "-rs", *arguments]
sys.exit(pytest.main(options, plugins=[CpuTime(), GarbageCollection()]))
