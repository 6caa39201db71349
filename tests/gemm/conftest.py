# SPDX-License-Identifier: Apache-2.0
"""Fixtures that the tests of matrix products share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins"))
import pairwise

torch = pytest.importorskip("torch", reason="torch is not installed")
torch.set_num_threads(1)  # the oracles are small

from opdock.testing import *  # noqa: E402, F403 (pytest finds the fixtures here)
from opdock.testing import pytest_configure  # noqa: E402, F401 (pytest calls it)


def pytest_collection_modifyitems(items):
    taken = pairwise.chosen(items)
    items[:] = [item for item in items if item in taken]
