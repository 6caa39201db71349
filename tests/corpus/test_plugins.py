# SPDX-License-Identifier: Apache-2.0
"""Tests the same defects in real plugins: none that the loader refuses is usable, none that loads
is rejected."""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from box import Box
from made_case import Unmade
from made_known import KNOWN
from made_search import CASES as SEARCH
from made_symbols import CASES as SYMBOLS
from made_tls import CASES as TLS
from made_versions import CASES as VERSIONS

TOP = Path(__file__).resolve().parents[2]
CASES = {**SYMBOLS, **TLS, **VERSIONS, **SEARCH}
# A host process has already loaded libm, libstdc++ and libopdock; the process asked here has not.
IN_THE_HOST = {"symbol-of-a-plugin-host", "without-default-folders", "runpath-shadows-libm"}
# Stages whose reasons the loader does not have: they concern the note and the entry function.
OWN_STAGES = {"note", "abi"}


@functools.cache
def plugin_objects():
    """Returns what makes a library a plugin, a note and an entry function, compiled once for all
    cases; and the folder in which it lives."""
    kept = tempfile.TemporaryDirectory()
    folder = Path(kept.name)
    note, maker = folder / "note.S", TOP / "tests/cases/make_note.py"
    subprocess.run([sys.executable, maker, note, "--name", "made"], check=True)
    objects = [folder / "plugin.o", folder / "note.o"]
    words = ["cc", "-c", "-fPIC", "-O1", "-w", f"-I{TOP / 'core/include'}", '-DNAME="made"']
    for source, made in zip([TOP / "tests/cases/case_plugin.c", note], objects, strict=True):
        subprocess.run([*words, source, "-o", made], check=True)
    return objects, kept


class PluginBox(Box):
    """Makes a.so, the library under test, a plugin with a note and an entry function."""

    def lib(self, name, code="", *words, **how):
        plugin = plugin_objects()[0] if name == "a.so" else []
        return super().lib(name, code, *words, *plugin, **how)


@pytest.mark.parametrize("case", CASES)
def test_usable_plugins_are_those_that_load(case, tmp_path, loader, inspect):
    if case in IN_THE_HOST:
        pytest.skip("the host has what the loader's plain program lacks")
    (tmp_path / "box" / "cwd").mkdir(parents=True)
    try:
        path = CASES[case](PluginBox(tmp_path / "box"))
    except Unmade as error:
        pytest.skip(str(error))
    answer = loader.ask(path, tmp_path / "box" / "cwd", python=False)
    report = inspect(path, tmp_path / "box" / "cwd")
    if report["name"] != "made" or {r["stage"] for r in report["reasons"]} & OWN_STAGES:
        pytest.skip("the case leaves no whole plugin")
    words = (
        f"loader {answer.outcome} {answer.text} | opdock {report['verdict']} {report['reasons']}"
    )
    if KNOWN.get(case) == "wrong":
        assert report["verdict"] == "rejected", words
    elif answer.loads:
        assert report["verdict"] in ("usable", KNOWN.get(case)), words
    else:
        assert report["verdict"] != "usable", words
