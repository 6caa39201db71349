# SPDX-License-Identifier: Apache-2.0
"""Tests what a formula's text says of the elements that a result depends on."""

import re
from pathlib import Path

import pytest

from opdock._formula_reach import ELEMENT, OTHERS, ROW, reach

OPERATIONS = Path(__file__).resolve().parents[2] / "core" / "formula" / "operations.def"


@pytest.mark.parametrize(
    ("text", "far"),
    [
        ("x * sigmoid(x)", ELEMENT),
        ("return -(x + 1)", ELEMENT),
        ('gelu(x, approximate="tanh") if flag else (x)', ELEMENT),
        ("x  # sum(x)", ELEMENT),
        ('x if mode == "sum(" else -x', ELEMENT),
        ("x - mean(x)", ROW),
        ("x.sum()", ROW),
        ("a, b = chunk(x, 2)\nreturn a * b", ROW),
        ("x + column()", ROW),
        ("x + row()", OTHERS),
        ("x * grouped(scale)", OTHERS),
        ("a_new_function(x)", OTHERS),
    ],
)
def test_reach(text, far):
    assert reach(text) == far


def test_every_operation_is_known():
    pattern = r'^OPDOCK_OPERATION\(\w+, "(\w+)", \d, (\w+)'
    listed = re.findall(pattern, OPERATIONS.read_text(), re.MULTILINE)
    assert len(listed) > 70
    for name, rule in listed:
        assert reach(f"{name}(x)") == (ROW if rule.startswith("kReduce") else ELEMENT), name
