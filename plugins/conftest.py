# SPDX-License-Identifier: Apache-2.0
"""What the tests of these plugins share: the fixtures of opdock.testing, and row_cases."""

import functools
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

from opdock import testing
from opdock.testing import *  # noqa: F403 (pytest finds the fixtures here)

sys.path.insert(0, str(Path(__file__).resolve().parent))  # row_cases, and the next line's
import pairwise

collect_ignore_glob = [] if torch else ["*/test_*.py"]


def pytest_configure(config):
    testing.pytest_configure(config)
    config.addinivalue_line("markers", "own_kernels: calls no op that is a formula")
    config.addinivalue_line("markers", "pairs: runs for pairs of values on software GPUs too")


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


@functools.cache
def has_formulas(plugin):
    """Returns whether ops of the plugin in this folder are formulas."""
    return "\nformula = " in (plugin / "plugin.toml").read_text()


def is_daily(item):
    """Returns whether a case is for every day. On a software GPU a formula has a kernel for each
    dtype, whose compilation takes longer than all that the kernel computes; so each kind of GPU
    has one floating-point dtype. tests/formula tests such kernels in every way."""
    on_gpu = "OPDOCK_SOFTGPU" in os.environ and "OPDOCK_TEST_NIGHTLY" not in os.environ
    if not on_gpu or item.get_closest_marker("own_kernels") or not has_formulas(item.path.parent):
        return True
    one = {"cuda": "float32", "rocm": "bfloat16"}
    values = item.callspec.params if hasattr(item, "callspec") else {}
    dtypes = [str(value).removeprefix("torch.") for value in values.values()]
    return not {*dtypes} & ({"float16", "bfloat16", "float32"} - {one.get(values.get("device"))})


def pytest_collection_modifyitems(items):
    """Runs the cases for every day that pairwise.py chooses. OPDOCK_TEST_SAMPLE="MOST SEED
    [PLUGIN:MOST…]": at most MOST of these for each plugin, another number for those named."""
    taken = pairwise.chosen([item for item in items if is_daily(item)])
    if "OPDOCK_TEST_SAMPLE" in os.environ:
        most, seed, *others = os.environ["OPDOCK_TEST_SAMPLE"].split()
        most_of = dict(other.split(":") for other in others)
        plugins = defaultdict(list)
        for item in items:
            if item in taken:
                plugins[item.path.parent.name].append(item)
        taken = set()
        for plugin, tests in plugins.items():
            taken.update(sample(tests, int(most_of.get(plugin, most)), int(seed)))
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
