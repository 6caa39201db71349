# SPDX-License-Identifier: Apache-2.0
"""What the tests of these plugins share: the fixtures of opdock.testing, and row_cases."""

import gc
import itertools
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

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


def pairwise(items):
    """Of the cases of one test those that, on each device, have each two values of two parameters together
    at least once, which shows nearly as much as all combinations of three and more."""
    groups = defaultdict(list)
    for item in items:
        indices = dict(item.callspec.indices) if hasattr(item, "callspec") else {}
        groups[indices.pop("device", None)].append(
            (item, set(itertools.combinations(sorted(indices.items()), 2)))
        )
    taken = set()
    for cases in groups.values():
        if all(len(pairs) < 2 for _, pairs in cases):  # two parameters: all combinations are pairs
            taken.update(item for item, _ in cases)
            continue
        random.Random(items[0].nodeid).shuffle(cases)  # ties: not the first value of each parameter
        uncovered = set().union(*(pairs for _, pairs in cases))
        while uncovered:
            item, pairs = max(cases, key=lambda case: len(case[1] & uncovered))
            taken.add(item)
            uncovered -= pairs
    return taken


def sample(items, most, seed):
    """`most` of the items, drawn by the seed: as many of each test, or all of it."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("[")[0]].append(item)
    draw = random.Random(seed)
    for cases in tests.values():
        draw.shuffle(cases)
    rounds = itertools.zip_longest(*tests.values())
    return [item for cases in rounds for item in cases if item is not None][:most]


def pytest_collection_modifyitems(items):
    """Pairs of parameters' values, all combinations if OPDOCK_TEST_NIGHTLY is set. OPDOCK_TEST_SAMPLE="MOST
    SEED [PLUGIN…]": of these MOST of each plugin's tests, but all of the plugins that are named."""
    taken = set(items)
    if "OPDOCK_TEST_NIGHTLY" not in os.environ:
        tests = defaultdict(list)
        for item in items:
            tests[item.nodeid.split("[")[0]].append(item)
        taken = set().union(*map(pairwise, tests.values()))
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


def pytest_collection_finish():
    # Thousands of tests, which stay: not for the garbage collector to visit again and again.
    gc.freeze()


def pytest_report_header():
    return None if torch else "skipped: the plugins' Python tests need torch"
