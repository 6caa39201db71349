# SPDX-License-Identifier: Apache-2.0
"""Chooses few of a test's cases that together show each two values of two parameters.

conftest.py files hand their collected items to `chosen`."""

import itertools
import os
import random
from collections import defaultdict

try:
    import torch
except ImportError:
    torch = None


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
    """Some of the cases of one test on one device that show all that all of them show."""
    cases = [(item, covered(item, ways)) for item in items]
    random.Random(items[0].nodeid).shuffle(cases)  # ties: not always the first value
    missing = set().union(*(shown for _, shown in cases))
    taken = set()
    while missing:
        item, shown = max(cases, key=lambda case: len(case[1] & missing))
        taken.add(item)
        missing -= shown
    return taken or set(items)


def chosen(items):
    """The set of the items that run: each two values of two parameters together, or each value with
    OPDOCK_TEST_WAYS=1 of tests that are not marked "pairs"; all of them if OPDOCK_TEST_NIGHTLY is
    set."""
    if "OPDOCK_TEST_NIGHTLY" in os.environ:
        return set(items)
    tests = defaultdict(list)
    for item in items:
        device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
        tests[item.nodeid.split("[")[0], device].append(item)
    ways = int(os.environ.get("OPDOCK_TEST_WAYS", 2))
    return set().union(
        *(
            fewest(cases, 2 if cases[0].get_closest_marker("pairs") else ways)
            for cases in tests.values()
        )
    )
