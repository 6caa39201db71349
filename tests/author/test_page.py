# SPDX-License-Identifier: Apache-2.0
"""docs/write-a-plugin.md: its commands do what it says, in its order."""

import re

import pytest
from conftest import BUILD, SOURCE

TEXT = (SOURCE / "docs" / "write-a-plugin.md").read_text()


def chapter(title):
    return TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_commands_of_the_template(opdock):
    for place in BUILD.parents:
        if place.stat().st_mode & 0o002:
            pytest.skip(f"everybody can write {place}: a cache below it is refused")
    lines = re.findall(r"^\$ opdock (.*)$", chapter("Start from a template"), re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["new", "test", "bench", "build"]
    for line in lines:
        done = opdock(*line.split())
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_the_kinds_and_fixtures_are_those_there_are():
    from opdock import testing

    text = chapter("Start from a template")
    kinds = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    folders = {path.name for path in (SOURCE / "core/cli/templates").iterdir()}
    assert kinds == folders - {"common"}
    assert [name for name in testing.__all__ if not re.search(rf"`{name}[`(]", text)] == []


def test_the_fragment_and_the_variables_are_those_in_the_tree():
    fragment = re.search(r"```meson\n(.*?)```", chapter("Kernels compiled by nvcc and hipcc"), re.S)
    assert fragment[1] == (SOURCE / "plugins/bias_gelu/meson.build").read_text()
    pc = (BUILD / "meson-private" / "opdock-plugin.pc").read_text()
    for name in re.findall(r"--variable=(\w+)", chapter("In a project of your own")):
        assert re.search(rf"^{name}=", pc, re.MULTILINE), name
