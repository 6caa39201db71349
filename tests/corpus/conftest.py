# SPDX-License-Identifier: Apache-2.0
"""The two parties: opdock of the build, and the loader of this machine."""

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
