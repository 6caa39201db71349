# SPDX-License-Identifier: Apache-2.0
"""Tests what an installation gives to other projects, and that it can be moved and removed."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from conftest import BUILD, SOURCE, installing, run, run_well

EXAMPLE = SOURCE / "examples" / "host"
MESON = [sys.executable, "-m", "mesonbuild.mesonmain"]
# Computed by hand: e^(1, 2, 3) over their sum, and three equal numbers.
RESULT = "0.0900 0.2447 0.6652\n0.3333 0.3333 0.3333\n"


def test_a_moved_tree_starts(prefix, tmp_path):
    """It needs neither LD_LIBRARY_PATH nor the folder that the build was configured for."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(prefix, moved, symlinks=True)
    listed = run(moved / "bin/opdock", "list", "--json", OPDOCK_PLUGIN_PATH=str(BUILD / "plugins"))
    assert "softmax" in [p["name"] for p in json.loads(listed.stdout)["plugins"]], listed.stderr
    lines = run_well("ldd", moved / "bin/opdock").splitlines()
    found = [line for line in lines if "opdock" in line]
    library = next(moved.rglob("libopdock.so.0"))
    assert [Path(line.split()[2]).resolve() for line in found] == [library.resolve()]


def test_pkg_config_knows_where_the_tree_lies(prefix):
    """The staged prefix is not the one that the build was configured for."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    advice = "configure an older build folder once more with -Dpkgconfig.relocatable=true"
    variables = {
        "opdock": ["prefix", "libdir"],
        "opdock-plugin": ["prefix", "pack", "device_dir", "plugin_build", "version_script"],
    }
    for name, wanted in variables.items():
        folder = next(prefix.rglob(f"{name}.pc")).parent

        def ask(*words, name=name, folder=folder):
            return run_well("pkg-config", *words, name, PKG_CONFIG_PATH=folder).split()

        places = [place for one in wanted for place in ask(f"--variable={one}")]
        places += [word[2:] for word in ask("--cflags", "--libs") if word[:2] in ("-I", "-L")]
        assert len(places) > len(wanted)
        for place in places:
            found = Path(place).resolve()
            assert found.is_relative_to(prefix) and found.exists(), (place, advice)


def runs(folder, **more):
    """Both programs compute with the plugin of the build tree."""
    for name in ("softmax_c", "softmax_cpp"):
        assert run_well(folder / name, **more, OPDOCK_PLUGIN_PATH=BUILD / "plugins") == RESULT


def test_cmake_finds_the_library_also_where_it_was_moved_to(prefix, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake (Debian: cmake)")
    build = tmp_path / "build"
    run_well("cmake", "-S", EXAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run_well("cmake", "--build", build)
    runs(build)
    wrong = f"find_package(opdock 99 REQUIRED PATHS {prefix} NO_DEFAULT_PATH)"
    other = tmp_path / "other"
    other.mkdir()
    (other / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(other LANGUAGES C)\n{wrong}\n"
    )
    done = run("cmake", "-S", other, "-B", other / "build")
    assert done.returncode != 0 and "version: 0." in done.stderr


def test_meson_finds_the_library_by_pkg_config(settings, tmp_path):
    run_well(*MESON, "setup", tmp_path / "build", EXAMPLE, "-Dwerror=true", **settings)
    run_well(*MESON, "compile", "-C", tmp_path / "build", **settings)
    runs(tmp_path / "build", **settings)


def test_a_subproject_is_the_library_alone(tmp_path):
    project = tmp_path / "project"
    (project / "subprojects").mkdir(parents=True)
    (project / "subprojects" / "opdock").symlink_to(SOURCE)
    (project / "meson.build").write_text(
        "project('host', 'c', 'cpp')\ndependency('opdock', fallback: 'opdock')\n"
    )
    run_well(*MESON, "setup", tmp_path / "build", project)
    targets = json.loads(run_well(*MESON, "introspect", "--targets", tmp_path / "build"))
    made = {t["name"] for t in targets if t["type"] in ("shared library", "executable")}
    # The installed programs are the library's helpers.
    assert made == {"opdock", "opdock-guard", "opdock-probe"}


def test_uninstall_leaves_nothing(tmp_path):
    stage = tmp_path / "stage"
    with installing():
        run_well(*MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", stage)
        assert next(stage.rglob("libopdock.so.0"))
        run_well("ninja", "-C", BUILD, "uninstall")
    left = [path for path in stage.rglob("*") if not path.is_dir()]
    assert left == []
    assert Path(BUILD / "core/libopdock.so.0").exists()
