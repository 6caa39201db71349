# SPDX-License-Identifier: Apache-2.0
"""Tests `opdock doctor --deepspeed`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    """By the .pth file of an installation, or by Opdock's sitecustomize.py on PYTHONPATH, where it
    comes before another one."""
    from opdock.compat.deepspeed import _environment, _report

    monkeypatch.setattr(_environment.site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(_environment.site, "ENABLE_USER_SITE", False)
    others = tmp_path / "others"
    others.mkdir()
    (others / "sitecustomize.py").touch()
    ours = os.path.join(_environment.START_FOLDER, "sitecustomize.py")
    for path, hook in (
        ("", None),
        (f"/no/such:{others}:{_environment.START_FOLDER}", None),
        (f"/no/such:{_environment.START_FOLDER}:{others}", ours),
    ):
        monkeypatch.setenv("PYTHONPATH", path)
        assert _report.report()["start_hook"] == hook
        assert ("found no opdock_deepspeed.pth" in _environment.says_without_hook()) == (not hook)
    hook = tmp_path / "opdock_deepspeed.pth"
    hook.touch()
    assert _report.report()["start_hook"] == str(hook) and not _environment.says_without_hook()


def test_the_page_has_all_ops():
    """Its table is made of the lists that the doctor reads."""
    script = Path(__file__).resolve().parents[2] / "docs" / "reference" / "make_deepspeed.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_ops_that_stay_deepspeeds_own_have_a_reason(compat):
    ops = {op["name"]: op for op in compat.report()["ops"]}
    for name in ("cutlass_ops", "dc", "gds", "deepspeed_ccl_comm", "deepspeed_shm_comm"):
        assert not ops[name]["served"]
        assert ops[name]["text"].startswith(f"no plugin of Opdock's has {name}: "), ops[name]
    assert len(ops) == 26
    for version, count in (("0.7.7", 12), ("0.19.8", 25)):
        assert sum(version in op["versions"] for op in ops.values()) == count
    assert ops["sparse_attn"]["versions"] == ["0.7.7"]


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
