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

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for row_cases

collect_ignore_glob = [] if torch else ["*/test_*.py"]


def covered(item, ways):
    """What a case shows: each value of a parameter, and with ways=2 each two values of two
    parameters together. On a software GPU the kernels for both 16-bit dtypes, which are instances
    of one template, are one there."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    values = {name: repr(value) for name, value in given.items() if name != "device"}
    shown = {(value,) for value in values.items()}
    if os.environ.get("OPDOCK_SOFTGPU") and "dtype" in values:
        dtype = given["dtype"]
        dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if isinstance(dtype, torch.dtype):
            values["dtype"] = f"{dtype.itemsize} bytes"
    return shown | (set(itertools.combinations(sorted(values.items()), 2)) if ways == 2 else set())


def fewest(items, ways):
    """Of the cases of one test on one device some that show all that all of them show."""
    cases = [(item, covered(item, ways)) for item in items]
    random.Random(items[0].nodeid).shuffle(cases)  # ties: not always the first value
    missing = set().union(*(shown for _, shown in cases))
    taken = set()
    while missing:
        item, shown = max(cases, key=lambda case: len(case[1] & missing))
        taken.add(item)
        missing -= shown
    return taken or set(items)


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
    """Each two values of two parameters together, or with OPDOCK_TEST_WAYS=1 each value; all
    combinations if OPDOCK_TEST_NIGHTLY is set. OPDOCK_TEST_SAMPLE="MOST SEED [PLUGIN…]": of these
    MOST of each plugin's tests, but all of the plugins that are named."""
    taken = set(items)
    if "OPDOCK_TEST_NIGHTLY" not in os.environ:
        tests = defaultdict(list)
        for item in items:
            device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
            tests[item.nodeid.split("[")[0], device].append(item)
        ways = int(os.environ.get("OPDOCK_TEST_WAYS", 2))
        taken = set().union(*(fewest(cases, ways) for cases in tests.values()))
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
