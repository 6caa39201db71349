# SPDX-License-Identifier: Apache-2.0
"""What the tests of these plugins share: the fixtures of opdock.testing, and row_cases."""

import sys
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


def pytest_report_header():
    return None if torch else "skipped: the plugins' Python tests need torch"
