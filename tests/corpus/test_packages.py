# SPDX-License-Identifier: Apache-2.0
"""Tests twelve small wheels: no decided verdict differs from what the dynamic loader does."""

import json
import os
import stat
import zipfile
from pathlib import Path

import packages
import pytest
import run
from wheel import unpack

HERE = Path(__file__).parent
COMMAND = os.environ["OPDOCK_COMMAND"]


@pytest.fixture(scope="module")
def cache():
    """Returns the folder with the twelve wheels; skips if no package index can be reached."""
    folder = Path(os.environ["OPDOCK_CORPUS_CACHE"])
    errors = {}
    wanted = packages.read_list(HERE / "packages_small.txt")
    for package in wanted:
        try:
            packages.fetch(package, folder, timeout=120)
        except RuntimeError as error:
            errors[str(package)] = str(error)
            if len(errors) == 1 and not any(folder.glob("*/*.whl")):
                pytest.skip(f"no package can be fetched: {error}")
    assert not errors
    return folder


def run_small(cache, tmp_path, command):
    """Runs the script; returns (exit status, results of all files, the record's lines)."""
    results, record = tmp_path / "results", tmp_path / "record"
    status = run.main(
        [
            "--packages",
            str(HERE / "packages_small.txt"),
            "--cache",
            str(cache),
            "--opdock",
            command,
            "--results",
            str(results),
            "--record",
            str(record),
        ]
    )
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return status, lines, [json.loads(line) for line in record.read_text().splitlines()]


def test_no_decided_verdict_differs(cache, tmp_path):
    status, results, record = run_small(cache, tmp_path, COMMAND)
    assert [r for r in results if r["agreement"] in ("disagree", "no-answer")] == []
    assert [r for r in results if r["member"]["agreement"] in ("disagree", "no-answer")] == []
    absent = {r["file"] for r in results if r["member"]["agreement"] == "absent"}
    assert {name for name in absent if not name.endswith((".a", ".pyd"))} == set()
    assert [r for r in results if r.get("same_cause") is False] == []
    assert [r for r in results if r.get("differences")] == []
    assert status == 0
    assert record[0]["packages"] == 12
    assert record[0]["files"] == len(results) > 30


def test_a_wrong_verdict_is_seen(cache, tmp_path):
    """Uses a command that calls every file usable."""
    command = tmp_path / "always-usable"
    command.write_text(
        f'#!/bin/sh\n"{COMMAND}" "$@" | python3 -c "\n'
        "import json, sys\nreport = json.load(sys.stdin)\n"
        "report.update(verdict='usable', reasons=[])\nprint(json.dumps(report))\"\n"
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    status, results, record = run_small(cache, tmp_path, str(command))
    assert status == 1
    wrong = [r for r in results if r["agreement"] == "disagree"]
    assert any("aarch64" in r["package"] for r in wrong)
    assert len(wrong) == record[0]["disagree"]


@pytest.mark.parametrize("name", ["../out.so", "a/../../out.so", "/out.so"])
def test_a_wheel_stays_in_its_folder(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr(name, b"\x7fELF")
    with pytest.raises(ValueError, match="outside"):
        unpack(tmp_path / "a.whl", tmp_path / "in")
    assert not (tmp_path / "out.so").exists()
