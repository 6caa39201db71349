# SPDX-License-Identifier: Apache-2.0
"""Tests opdock install, and the next step that `opdock build` names."""

import os
import re
import shlex
import shutil

import pytest
from conftest import CASES
from test_build import SOURCE, TOML, needs_tools


@pytest.fixture
def place(tmp_path, opdock):
    """Returns the user's plugin folder; the test's own folders are trusted."""
    (tmp_path / "home/.cache/opdock").mkdir(mode=0o700, parents=True)
    assert opdock("trust", tmp_path).status == 0
    return tmp_path / "home/.local/share/opdock/plugins"


def names(place):
    return sorted(os.listdir(place))


def test_a_plugin_is_installed_under_its_name_and_found(opdock, place):
    result = opdock("install", CASES / "good_b.so", "--json")
    assert result.status == 0, result.err + result.out
    name = result.json["name"]
    assert result.json["path"] == str(place / f"{name}.so")
    assert result.json["replaced"] is None and result.json["found"] is True
    assert names(place) == [f"{name}.so"]
    listed = opdock("list", "--json").json["plugins"]
    assert [one["usable"] for one in listed if one["path"] == str(place / f"{name}.so")] == [True]
    assert (place / f"{name}.so").stat().st_mode & 0o022 == 0


def test_a_newer_one_takes_its_place_by_rename(opdock, place):
    assert opdock("install", CASES / "good.so").status == 0
    with open(place / "good.so", "rb") as old:
        before = old.read()
        result = opdock("install", CASES / "good_v2.so")
        assert result.status == 0 and "good 2.0 was installed in the place of 1.0" in result.out
        old.seek(0)
        assert old.read() == before  # a process that has it open keeps the old file
        assert os.fstat(old.fileno()).st_nlink == 0
    assert names(place) == ["good.so"]
    assert (place / "good.so").read_bytes() == (CASES / "good_v2.so").read_bytes()


def test_what_to_do_without_a_home_is_said(opdock, place):
    result = opdock("install", CASES / "good.so", HOME="")
    assert result.status == 2 and "found no home folder" in result.err and "set HOME" in result.err


@pytest.mark.parametrize("case", ["note_major", "text"])
def test_what_this_machine_rejects_is_not_installed(opdock, place, folder, case):
    assert opdock("install", CASES / "good.so").status == 0
    result = opdock("install", folder / f"{case}.so")
    assert result.status == 1 and "was not installed" in result.out
    assert ("abi-major" if case == "note_major" else "not-elf") in result.out
    report = opdock("install", folder / f"{case}.so", "--json").json
    assert report["path"] is None and report["reasons"]
    assert names(place) == ["good.so"]


def test_another_file_in_its_place_stays(opdock, place):
    place.mkdir(parents=True)
    (place / "good.so").write_text("mine")
    result = opdock("install", CASES / "good.so")
    assert result.status == 2 and "holds no plugin" in result.err
    assert (place / "good.so").read_text() == "mine" and names(place) == ["good.so"]
    shutil.copy(CASES / "note_major.so", place / "good.so")
    assert opdock("install", CASES / "good.so").status == 2


def test_force_replaces_another_file_and_installs_what_is_rejected(opdock, place):
    place.mkdir(parents=True)
    (place / "good.so").write_text("mine")
    assert opdock("install", "--force", CASES / "good.so").status == 0
    assert (place / "good.so").read_bytes() == (CASES / "good.so").read_bytes()
    result = opdock("install", "--force", CASES / "note_major.so")
    assert result.status == 0 and "abi-major" in result.out
    assert names(place) == ["good.so", "note_major.so"]


def test_what_is_no_plugin_is_not_installed_by_force_either(opdock, place, folder):
    result = opdock("install", "--force", folder / "text.so")
    assert result.status == 1 and "was not installed" in result.out and names(place) == []


def test_another_folder_to_install_to(opdock, place, tmp_path):
    result = opdock("install", CASES / "good.so", "--to", "other/plugins")
    assert result.status == 0 and "by --plugin-path" in result.out
    assert names(tmp_path / "other/plugins") == ["good.so"] and not place.exists()
    run = opdock("list", "good", "--plugin-path", tmp_path / "other/plugins", "--json")
    assert run.json["plugins"][0]["usable"] is True


def test_uninstall_removes_what_install_put_there(opdock, place, tmp_path):
    assert opdock("install", CASES / "good.so").status == 0
    result = opdock("uninstall", "good", OPDOCK_ADD_PLUGIN_PATH=str(CASES / "good_v2.so"))
    assert result.status == 0 and "good 1.0 was removed" in result.out, result.err
    assert f"Another one is found: {CASES / 'good_v2.so'}" in result.out
    assert names(place) == []
    again = opdock("uninstall", "good", "--json")
    assert again.status == 1 and "good.so" not in again.out and "`opdock install`" in again.err
    # It removes only plugins of that name, and only from that folder.
    (place / "mine.so").write_text("mine")
    assert opdock("uninstall", "mine").status == 2 and names(place) == ["mine.so"]
    (place.parent / "good.so").write_bytes((CASES / "good.so").read_bytes())
    assert opdock("uninstall", "../good").status == 1 and (place.parent / "good.so").exists()


def test_a_link_is_followed(opdock, place, tmp_path):
    (tmp_path / "link.so").symlink_to(CASES / "good.so")
    assert opdock("install", tmp_path / "link.so").status == 0
    assert not (place / "good.so").is_symlink()


def test_a_folder_that_cannot_be_written_is_named(opdock, place):
    place.parent.mkdir(parents=True)
    place.write_text("a file")
    result = opdock("install", CASES / "good.so")
    assert result.status == 1 and str(place) in result.err


def test_where_the_search_looks_elsewhere_that_is_said(opdock, place, folder):
    result = opdock("install", CASES / "good.so", OPDOCK_PLUGIN_PATH=str(folder))
    assert result.status == 0 and "OPDOCK_PLUGIN_PATH" in result.out
    assert (
        opdock("install", CASES / "good.so", "--json", OPDOCK_PLUGIN_PATH=str(folder)).json["found"]
        is False
    )
    assert names(place) == ["good.so"]


@pytest.fixture
def source(place, tmp_path):
    folder = tmp_path / "doubled"
    folder.mkdir()
    (folder / "plugin.toml").write_text(TOML)
    (folder / "doubled.c").write_text(SOURCE)
    return folder


@needs_tools
def test_build_says_how_to_use_the_plugin_and_that_holds(opdock, source):
    assert opdock("run", "doubled", "--arg", "x=[1]").status == 1
    built = opdock("build", source)
    assert built.status == 0, built.out + built.err
    way = re.search(r"^Next: opdock (install .+), or (--plugin-path .+) with each", built.out, re.M)
    assert opdock("run", "doubled", "--arg", "x=[1]", *shlex.split(way.group(2))).status == 0
    installed = opdock(*shlex.split(way.group(1)))
    assert installed.status == 0, installed.out + installed.err
    assert opdock("run", "doubled", "--arg", "x=[1]").status == 0
    assert "Next:" not in opdock("build", source).out


@needs_tools
def test_a_source_that_does_not_build_is_not_installed(opdock, source, place):
    (source / "doubled.c").write_text("int f(void) { return nothing; }\n")
    result = opdock("install", source)
    assert result.status == 1 and "build-failed" in result.out
    assert not place.exists()
