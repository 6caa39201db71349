# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of torch.ops.opdock; tests/python/meson.build says where plugins are."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # has tree_plugins

pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def ops():
    import torch

    import opdock.torch  # noqa: F401  (registers the operators)

    return torch.ops.opdock
