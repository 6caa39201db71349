# SPDX-License-Identifier: Apache-2.0
"""Tests opdock build: a source plugin, ahead of time."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from conftest import COMMAND

TOML = """
name = "doubled"
version = "0.1.0"
license = "Apache-2.0"
sources = ["doubled.c"]

[[op]]
schema = "doubled(Tensor x) -> ()"
doc = "Does nothing."
devices = ["cpu"]
dtypes = ["float32"]
"""

SOURCE = """
#include <opdock/plugin.h>
opdock_status opdock_doubled_plan(const opdock_call* call, const opdock_value* args, uint32_t n,
                                  opdock_plan* plan) {
  (void)call, (void)args, (void)n, (void)plan;
  return OPDOCK_OK;
}
opdock_status opdock_doubled_run(const opdock_call* call, const opdock_value* args, uint32_t n,
                                 opdock_value* outputs, uint32_t m) {
  (void)call, (void)args, (void)n, (void)outputs, (void)m;
  return OPDOCK_OK;
}
"""

needs_tools = pytest.mark.skipif(
    not (shutil.which("meson") and shutil.which("ninja") and shutil.which("c++")),
    reason="meson, ninja or a compiler was not found",
)


@pytest.fixture
def plugin(tmp_path, opdock):
    """Returns a source plugin of one C file; the test's folder is trusted, as the cache is in
    it."""
    (tmp_path / "home/.cache/opdock").mkdir(mode=0o700, parents=True)
    assert opdock("trust", tmp_path).status == 0
    folder = tmp_path / "doubled"
    folder.mkdir()
    (folder / "plugin.toml").write_text(TOML)
    (folder / "doubled.c").write_text(SOURCE)
    return folder


@needs_tools
def test_build_makes_a_plugin_once(opdock, plugin):
    first = opdock("build", plugin)
    assert first.status == 0, first.out + first.err
    assert "doubled was built in" in first.out and "doubled.so" in first.out
    assert "opdock: building doubled" in first.err
    again = opdock("build", plugin / "plugin.toml", "--json")
    report = again.json
    assert report["built"] is False and report["reasons"] == []
    assert report["plugin"] == "doubled" and report["folder"] == str(plugin)
    assert pathlib.Path(report["log"]).read_text().count("meson setup") == 1
    inspected = opdock("inspect", report["path"], "--json")
    assert inspected.status == 0 and inspected.json["ops"] == ["doubled"]
    assert "is there already" in opdock("build", plugin).out
    # Its code is imported into another cache only if its maker is trusted.
    archive, other = plugin.parent / "all.tar", plugin.parent / "other"
    other.mkdir(mode=0o700)
    assert opdock("cache", "export", archive).status == 0
    refused = opdock("cache", "import", archive, OPDOCK_CACHE_DIR=str(other))
    assert refused.status == 1 and "cache-untrusted" in refused.err and "--trust" in refused.err
    taken = opdock("cache", "import", "--trust", archive, "--json", OPDOCK_CACHE_DIR=str(other))
    assert taken.status == 0 and taken.json["imported"] == 1


@needs_tools
def test_build_takes_a_name_and_puts_a_copy_where_it_is_wanted(opdock, plugin, tmp_path):
    found = {"OPDOCK_PLUGIN_PATH": str(tmp_path)}
    assert not (tmp_path / "home/doubled").exists()
    (tmp_path / "out").mkdir()
    built = opdock("build", plugin, "--out", "out")
    assert built.status == 0 and f"copied to {tmp_path}/out/doubled.so" in built.out, built.out
    assert f"--plugin-path {tmp_path}/out/doubled.so with each" in built.out
    plugin.rename(tmp_path / "elsewhere")  # so that the name is no path
    report = opdock("build", "doubled", "--out", "mine.so", "--json", **found).json
    assert report["copy"] == str(tmp_path / "mine.so")
    copies = [tmp_path / "out/doubled.so", tmp_path / "mine.so"]
    assert all(copy.read_bytes() == pathlib.Path(report["path"]).read_bytes() for copy in copies)
    every = opdock("build", "--all", "--out", "all", "--plugin-path", tmp_path)
    assert every.status == 0 and sorted(os.listdir(tmp_path / "all")) == ["doubled.so"]
    failed = opdock("build", "doubled", "--out", "mine.so/x", **found)
    assert failed.status == 1 and "--out: cannot write" in failed.err


@needs_tools
def test_build_shows_the_error_and_remembers_it(opdock, plugin):
    source = plugin / "doubled.c"
    source.write_text(SOURCE + "int f(void) { return nothing; }\n")
    line = source.read_text().count("\n")
    first = opdock("build", plugin)
    assert first.status == 1
    assert f"{source}:{line}:22: error: 'nothing' undeclared" in first.out
    assert "build-failed" in first.out and "\\x0a" not in first.out
    second = opdock("build", plugin, "--json")
    assert [reason["code"] for reason in second.json["reasons"]] == [
        "build-remembered",
        "build-failed",
    ]
    assert pathlib.Path(second.json["log"]).exists()
    source.write_text(SOURCE)
    assert opdock("build", plugin).status == 0


def test_build_without_a_compiler_says_what_is_missing(opdock, plugin):
    result = opdock("build", plugin, "--json", PATH="")
    assert result.status == 1
    codes = [reason["code"] for reason in result.json["reasons"]]
    assert {"build-no-compiler", "build-no-meson", "build-no-ninja"} <= set(codes)


@pytest.mark.parametrize(
    "words", [[], ["absent"], ["--jobs", "few", "."], ["--timeout", "-1", "."]]
)
def test_build_refuses_what_cannot_be_meant(opdock, words):
    assert opdock("build", *words).status == 2


def test_build_names_the_line_of_a_bad_declaration(opdock, plugin):
    (plugin / "plugin.toml").write_text(TOML.replace('license = "Apache-2.0"\n', ""))
    result = opdock("build", plugin)
    assert result.status == 1 and result.err == ""
    assert f'  {plugin}/plugin.toml:1:1: no "license", wanted a text' in result.out


def test_ctrl_c_stops_the_build_and_all_it_started(tmp_path, plugin):
    tools = tmp_path / "tools"
    tools.mkdir()
    reached = tmp_path / "reached"
    for name, body in {
        "c++": "echo 1.0",
        "cc": "echo 1.0",
        "ninja": "exit 1",
        "meson": f"setsid sleep 93 & touch {reached}; sleep 94",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o700)
    environment = {"HOME": str(tmp_path / "home"), "PATH": str(tools)}
    environment |= {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
    with subprocess.Popen(
        [COMMAND, "build", str(plugin)], env=environment, stdout=subprocess.PIPE, text=True
    ) as command:
        for _ in range(400):
            if reached.exists():
                break
            time.sleep(0.025)
        assert reached.exists()
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=20)
    assert command.returncode == 130 and "cancelled" in out
    for process in pathlib.Path("/proc").glob("[0-9]*/environ"):
        # Processes that end meanwhile, and those of other users, which are none of the command's.
        with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
            assert str(tmp_path).encode() not in process.read_bytes(), process
    assert list((tmp_path / "home/.cache/opdock/v1/tmp").iterdir()) == []
