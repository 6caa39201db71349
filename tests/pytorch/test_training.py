# SPDX-License-Identifier: Apache-2.0
"""Tests that a patched model trains as the plain one: examples/train_gpt, by day a tenth of it."""

import os
import sys
from pathlib import Path

import pytest

from opdock.torch import _choice

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_gpt"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import train_gpt

    yield train_gpt
    del sys.modules["train_gpt"]


def test_the_loss_curve_is_the_plain_models(example, monkeypatch):
    kinds = set()

    def is_faster(swap, x, args, keywords):
        kinds.add(swap.kind)
        return True

    monkeypatch.setattr(_choice, "is_faster", is_faster)
    text = (EXAMPLE / "train_gpt.py").read_bytes()
    steps = 300 if os.environ.get("OPDOCK_TEST_NIGHTLY") else 30
    plain, _ = example.train(text, steps)
    patched, report = example.train(text, steps, patched=True)
    other, _ = example.train(text, steps, seed=2)
    assert kinds == {"layer_norm", "add_layer_norm", "linear_gelu", "cross_entropy", "attention"}
    assert kinds <= set(report.swapped)
    assert plain[-1] < 0.8 * plain[0]  # it has learnt
    difference = example.largest_difference(plain, patched)
    assert difference < 1e-3 * plain[-1]
    assert 10 * difference < example.largest_difference(plain, other)


def test_the_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPDOCK_CACHE_DIR", str(tmp_path))
    _choice.forget()
    picture = tmp_path / "curves.svg"
    monkeypatch.setattr(
        sys, "argv", ["train_gpt.py", "--steps", "3", "--device", "cpu", "--plot", str(picture)]
    )
    assert example.main() == 0
    said = capsys.readouterr().out
    assert "layer_norm" in said and "largest difference: patched" in said
    assert picture.read_text().count("<polyline") == 3
    _choice.forget()
