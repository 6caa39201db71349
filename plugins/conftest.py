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


#: For each kind of software GPU the 16-bit dtype that it has every day, and the other one.
SIXTEEN_BITS = {"cuda": ("float16", "bfloat16"), "rocm": ("bfloat16", "float16")}


def values_of(item):
    """Returns the values of a case's parameters by name."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def dtypes_of(item):
    """Returns the values of a case's parameters as texts; dtypes have their plain names."""
    return {str(value).removeprefix("torch.") for value in values_of(item).values()}


def daily(items):
    """Returns the cases for every day. Compiling a kernel for a software GPU takes longer than all
    that it computes. A formula has a kernel for each dtype, so each kind of GPU has one
    floating-point dtype; tests/formula tests such kernels in every way. A plugin's own kernels for
    the two 16-bit dtypes are instances of one template, so each kind of GPU has one of these two
    where a test has both, but for conversions from one dtype to another."""
    if "OPDOCK_SOFTGPU" not in os.environ or "OPDOCK_TEST_NIGHTLY" in os.environ:
        return items
    shown = defaultdict(set)
    for item in items:
        shown[item.nodeid.split("[")[0]] |= dtypes_of(item)

    def is_daily(item):
        device, dtypes = values_of(item).get("device"), dtypes_of(item)
        if has_formulas(item.path.parent) and not item.get_closest_marker("own_kernels"):
            one = {"cuda": "float32", "rocm": "bfloat16"}
            return not dtypes & ({"float16", "bfloat16", "float32"} - {one.get(device)})
        kept, other = SIXTEEN_BITS.get(device, (None, None))
        converts = sum(isinstance(value, torch.dtype) for value in values_of(item).values()) > 1
        return other not in dtypes or kept not in shown[item.nodeid.split("[")[0]] or converts

    return [item for item in items if is_daily(item)]


def pytest_collection_modifyitems(items):
    """Runs the cases for every day that pairwise.py chooses. OPDOCK_TEST_SAMPLE="MOST SEED
    [PLUGIN:MOST…]": at most MOST of these for each plugin, another number for those named."""
    taken = pairwise.chosen(daily(items))
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
