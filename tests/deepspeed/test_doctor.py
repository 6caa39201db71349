# SPDX-License-Identifier: Apache-2.0
"""Tests `opdock doctor --deepspeed`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run_python

COMMAND = Path(os.environ.get("OPDOCK_BUILD_DIR", ".")) / "core" / "cli" / "opdock"


def opdock(*arguments, **environment):
    if not COMMAND.is_file():
        pytest.skip(f"found no {COMMAND}: OPDOCK_BUILD_DIR names no build")
    return subprocess.run(
        [COMMAND, "doctor", "--deepspeed", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OPDOCK_PYTHON": sys.executable, **environment},
        check=False,
    )


def test_a_line_for_each_op(compat):
    done = opdock(MAX_JOBS="2", TORCH_EXTENSIONS_DIR="/tmp/torch_extensions")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name, builder in compat.ALL_OPS.items():
        begin = f"{'yes' if builder.verdict().serves else 'no ':<4} {name} "
        assert any(line.startswith(begin) for line in lines), name
    assert "MAX_JOBS=2: how many compilers run at once" in lines
    ignored = "TORCH_EXTENSIONS_DIR=/tmp/torch_extensions: no effect: "
    assert any(line.startswith(ignored) for line in lines)


def test_it_says_whether_pythons_start_reads_the_variable(compat, monkeypatch, tmp_path):
    """The program itself prints it too, once: the variable would have no effect in its children."""
    from opdock.compat.deepspeed import _environment, _report

    monkeypatch.setattr(_environment.site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(_environment.site, "ENABLE_USER_SITE", False)
    found = _report.report()
    assert found["start_hook"] is None
    assert "found no opdock_deepspeed.pth" in _environment.says_without_hook()
    hook = tmp_path / "opdock_deepspeed.pth"
    hook.touch()
    assert _report.report()["start_hook"] == str(hook) and not _environment.says_without_hook()
    program = "import site; site.getsitepackages = lambda: [{!r}]; import opdock"
    for folder, count in ((tmp_path / "none", 1), (tmp_path, 0)):
        code = program.format(str(folder))
        said = run_python(code, prelude=None, OPDOCK_DEEPSPEED="1", PYTHONNOUSERSITE="1").stderr
        assert said.count("in no process that they start") == count, said


def test_as_one_object(compat):
    found = json.loads(opdock("--json", OPDOCK_DEEPSPEED="1").stdout)
    assert found["installed"] is True
    assert {op["name"] for op in found["ops"]} == set(compat.ALL_OPS)
    assert found["versions"]["torch"]


def test_where_no_plugin_serves(tmp_path):
    done = opdock("--json", "--plugin-path", str(tmp_path), OPDOCK_BUILD="never")
    ops = {op["name"]: op for op in json.loads(done.stdout)["ops"]}
    assert not ops["fused_adam"]["served"] and "adam_" in ops["fused_adam"]["text"]
    assert ops["utils"]["served"]  # torch provides it
