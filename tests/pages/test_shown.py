# SPDX-License-Identifier: Apache-2.0
"""Compares output that pages show with what is printed, where it is the same on every machine."""

import json
import os
import re
import shlex
import shutil

import pytest
from blocks import ROOT, all_blocks
from console import BUILD, OPDOCK, run, split
from sources import DEVICE, INCLUDE

BLOCKS = all_blocks()[0]
COMPARED = set()  # (page, first line) of what is compared here
# Page -> (the test that compares other output of it, how the first line of such output begins).
COMPARED_ELSEWHERE = {
    "docs/concepts/build-on-demand.md": ("tests/author/test_page.py", ("$ ls ", "$ python ")),
    "docs/guide/formulas.md": ("tests/author/test_formulas_page.py", "$ opdock "),
    "docs/guide/testing-kernels.md": ("tests/author/test_soft.py", "$ opdock test "),
    "docs/guide/write-a-plugin.md": ("tests/plugins/tutorial.py", "$ ./dev opdock run "),
    "docs/reference/note.md": ("tests/unit/note/note_test.cc", "0000  "),
}


def shown(page, first):
    """Returns the lines after the one that begins so: of a block, or of a command in one. The
    decorated test gets them as its first argument."""
    found = []
    for block in BLOCKS:
        if block.page == page and block.language in ("console", "text", "json"):
            parts = split(block) if block.language == "console" else []
            parts = [(f"$ {command}", lines) for command, lines in parts]
            parts = parts or [(block.first(), block.text.splitlines())]
            found += [(one, lines) for one, lines in parts if one.startswith(first) and lines]
    assert len(found) == 1, f'{page}: found {len(found)} "{first}", wanted one with output'
    COMPARED.add((page, found[0][0]))
    return pytest.mark.parametrize("lines", [found[0][1]], ids=["page"])


def is_like(told, lines):
    """Returns whether the output has the lines; "…" is any text, and white space does not count."""
    wanted = "".join("".join(lines).split())
    pattern = ".*".join(map(re.escape, wanted.split("…")))
    return re.search(pattern, "".join(told.split()))


def files_of(page, folder):
    """Writes the first file of each name that a page has below the folder."""
    for block in reversed(BLOCKS):
        if block.page == page and block.name not in ("", "run"):
            path = folder / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


@pytest.fixture
def folder():
    """Returns an empty folder in the build tree: one below /tmp would not be trusted."""
    path = BUILD / "pages-shown"
    for place in path.parents:
        if place.stat().st_mode & 0o1002 == 0o002:
            pytest.skip(f"everybody can write {place}: plugins below it are refused")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o755)
    return path


def test_the_tests_that_compare_the_rest_exist():
    for page, (test, _) in COMPARED_ELSEWHERE.items():
        folder = (ROOT / test).parent
        readers = (ROOT / test).read_text() + (folder / "meson.build").read_text()
        assert page.rpartition("/")[2] in readers


@shown("docs/concepts/build-on-demand.md", "$ opdock explain triple")
def test_a_source_plugin_is_explained(lines, folder):
    files_of("docs/concepts/build-on-demand.md", folder / ".local/share/opdock/plugins")
    variables = {"HOME": str(folder), "OPDOCK_CACHE_DIR": str(folder), "OPDOCK_PLUGIN_PATH": None}
    told = run(OPDOCK, "explain", "triple", **variables)
    assert is_like(told.stdout.replace(str(folder), "/home/me"), lines), told.stdout + told.stderr


@shown("docs/reference/command.md", "{")
def test_an_error_is_json(lines):
    page = json.loads("\n".join(lines))
    done = run(OPDOCK, "build", "--jobs", "0", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == page["status"] == told["status"]
    assert is_like(told.pop("error"), [page.pop("error")])
    assert told == page


NVCC = """#!/bin/sh
case "$*" in
*--version*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
*--help*)
  for arch in 75 80 86 87 88 89 90 90a 100 103 110 120 121; do
    echo "Allowed values: 'sm_$arch'."
  done ;;
esac
"""


@shown("docs/reference/architectures.md", "$ opdock build --all --archs")
def test_an_unknown_architecture_is_named(lines, folder):
    nvcc = folder / "nvcc"
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    words = [OPDOCK, "build", "--all", "--archs", "8.0;9.0a;99.0"]
    words += ["--plugin-path", ROOT / "plugins" / "bias_gelu"]
    done = run(*words, CUDACXX=str(nvcc), OPDOCK_CACHE_DIR=str(folder))
    assert is_like(done.stdout, lines), done.stdout + done.stderr


GUIDE = "docs/guide/write-a-plugin.md"


@shown(GUIDE, "…/axpy/plugin.toml:13:41: error")
def test_a_misspelt_flag_is_told_with_its_place(lines, folder):
    files_of(GUIDE, folder)
    toml = folder / "plugins" / "axpy" / "plugin.toml"
    last = [block.text for block in BLOCKS if block.name == "plugins/axpy/plugin.toml"][-1]
    toml.write_text(last.replace("deterministic", "determinstic"))
    done = run(BUILD / "core/pack/opdock-pack", "--toml", toml, "--ops-header", folder / "ops.h")
    assert is_like(done.stderr, lines), done.stderr


@shown(GUIDE, "axpy.ops.h: In instantiation of")
def test_a_plan_with_other_parameters_is_told(lines, folder):
    """The plugin is that of the page's second step, whose plan lacks the last parameter."""
    files_of(GUIDE, folder)
    plugin = folder / "plugins" / "axpy"
    toml, code = plugin / "plugin.toml", plugin / "axpy.cc"
    sources = 'sources = ["axpy.cc"]\n'
    toml.write_text(toml.read_text().replace(sources, f'{sources}reference = "reference.py"\n'))
    code.write_text(code.read_text().replace("Tensor, double) {", "Tensor) {"))
    header = folder / "axpy.ops.h"
    done = run(BUILD / "core/pack/opdock-pack", "--toml", toml, "--ops-header", header)
    assert done.returncode == 0, done.stderr
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if "clang" in run(*compiler, "--version").stdout:
        pytest.skip("the page shows the messages of g++")
    words = ["-std=c++20", "-fsyntax-only", "-fno-diagnostics-show-caret"]
    words += [f'-DOPDOCK_OPS_H="{header}"', f"-I{INCLUDE}", f"-I{DEVICE}"]
    done = run(*compiler, *words, code)
    told = done.stderr.replace(f"{folder}/", "").replace("‘", "'").replace("’", "'")
    assert is_like(told, lines), told
