# SPDX-License-Identifier: Apache-2.0
"""What the tests of these plugins share: the fixtures of opdock.testing, and row_cases."""

import gc
import itertools
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

sys.path.insert(0, str(Path(__file__).resolve().parent))  # row_cases, and the next line's
import pairwise

collect_ignore_glob = [] if torch else ["*/test_*.py"]


def sample(items, most, seed):
    """`most` of the items, drawn by the seed, but at least one of each test: as many of each test,
    or all of it."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("[")[0]].append(item)
    draw = random.Random(seed)
    for cases in tests.values():
        draw.shuffle(cases)
    rounds = itertools.zip_longest(*tests.values())
    return [item for cases in rounds for item in cases if item is not None][: max(most, len(tests))]


def pytest_collection_modifyitems(items):
    """Runs the cases that pairwise.py chooses. OPDOCK_TEST_SAMPLE="MOST SEED
    [PLUGIN…]": at most MOST of these for each plugin, but all for the plugins that are named."""
    taken = pairwise.chosen(items)
    if "OPDOCK_TEST_SAMPLE" in os.environ:
        most, seed, *whole = os.environ["OPDOCK_TEST_SAMPLE"].split()
        plugins = defaultdict(list)
        for item in items:
            if item in taken:
                plugins[item.path.parent.name].append(item)
        taken = set()
        for plugin, tests in plugins.items():
            taken.update(tests if plugin in whole else sample(tests, int(most), int(seed)))
    items[:] = [item for item in items if item in taken]


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
