# SPDX-License-Identifier: Apache-2.0
"""Tests that Opdock's verdict on small libraries with one defect each is what the loader then
does."""

import pytest
from made import CASES, compare_case
from made_case import Unmade
from made_known import KNOWN


@pytest.mark.parametrize("case", CASES)
def test_verdict_is_the_loaders(case, tmp_path, loader, inspect):
    try:
        what, words = compare_case(case, tmp_path / "box", loader, inspect)
    except Unmade as error:
        pytest.skip(str(error))
    assert what == KNOWN.get(case, "right"), words


def test_known_cases_exist():
    assert not set(KNOWN) - set(CASES)
