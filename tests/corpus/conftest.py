# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the two sides: the opdock command of the build, and this machine's loader."""

import os

import pytest
from loader import Loader
from opdock_inspect import Inspector


@pytest.fixture(scope="session")
def loader(tmp_path_factory):
    return Loader(tmp_path_factory.mktemp("loader"))


@pytest.fixture(scope="session")
def inspect():
    return Inspector(os.environ["OPDOCK_COMMAND"])
