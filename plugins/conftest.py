# SPDX-License-Identifier: Apache-2.0
"""What the tests of these plugins share: the fixtures of opdock.testing, and row_cases."""

import gc
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

try:
    import torch
except ImportError:
    torch = None
else:
    torch.set_num_threads(1)  # the oracles are small, and share the cores with what they test

from opdock.testing import *  # noqa: F403 (pytest finds the fixtures here)
from opdock.testing import pytest_configure  # noqa: F401 (pytest calls it)

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for row_cases

collect_ignore_glob = [] if torch else ["*/test_*.py"]


def pytest_collection_modifyitems(items):
    """OPDOCK_TEST_SAMPLE="MOST SEED": MOST of each plugin's tests, drawn by the seed."""
    if "OPDOCK_TEST_SAMPLE" not in os.environ:
        return
    most, seed = map(int, os.environ["OPDOCK_TEST_SAMPLE"].split())
    plugins = defaultdict(list)
    for item in items:
        plugins[item.path.parent].append(item)
    drawn = set()
    for tests in plugins.values():
        drawn.update(random.Random(seed).sample(tests, min(most, len(tests))))
    items[:] = [item for item in items if item in drawn]


@pytest.fixture
def several_threads():
    """Ops on the CPU share their work among four threads, as torch's; else they have its one."""
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(1)


def pytest_collection_finish():
    # Thousands of tests, which stay: not for the garbage collector to visit again and again.
    gc.freeze()


def pytest_report_header():
    return None if torch else "skipped: the plugins' Python tests need torch"
