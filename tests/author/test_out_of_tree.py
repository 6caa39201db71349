# SPDX-License-Identifier: Apache-2.0
"""Builds the example outside of Opdock's tree with CMake and Meson against a staged install."""

import os
import shutil
import sys

import pytest
from conftest import SOURCE, run_well

EXAMPLE = SOURCE / "examples" / "out-of-tree"

CALL = """
import numpy, opdock
x = numpy.array([-2.0, 0.5, numpy.nan], numpy.float32)
assert numpy.array_equal(opdock.ops.clamp_min(x, 0.0), [0.0, 0.5, numpy.nan], equal_nan=True)
try:
    opdock.ops.clamp_min(x[::2], 0.0)
except opdock.UnsupportedError as error:
    assert "'x'" in str(error)
else:
    raise SystemExit("strides were not refused")
"""


def check(plugin, settings):
    symbols = run_well("nm", "-D", "--defined-only", plugin).split()
    assert symbols[2:] == ["opdock_plugin_v0"]
    assert (
        "opdock" not in run_well("readelf", "-d", plugin).split("NEEDED", 1)[1].split("SONAME")[0]
    )
    run_well(sys.executable, "-c", CALL, OPDOCK_PLUGIN_PATH=plugin)


@pytest.fixture(scope="module")
def by_cmake(settings, tmp_path_factory):
    """Returns the folders of a copy of the example and of its build by CMake."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake (Debian: cmake)")
    folder = tmp_path_factory.mktemp("cmake")
    source, build = folder / "source", folder / "build"
    shutil.copytree(EXAMPLE, source)
    run_well("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", **settings)
    run_well("cmake", "--build", build, **settings)
    return source, build


def test_cmake(by_cmake, settings):
    check(by_cmake[1] / "clamp_min.so", settings)


def test_cmake_packs_again_what_has_changed(by_cmake, settings):
    source, build = by_cmake
    toml = source / "plugin.toml"
    toml.write_text(toml.read_text().replace("1.0.0", "1.0.1"))
    os.utime(toml, (4e9, 4e9))
    run_well("cmake", "--build", build, **settings)
    program = "import opdock, sys; print(opdock.inspect(sys.argv[1])['version'])"
    assert run_well(sys.executable, "-c", program, build / "clamp_min.so") == "1.0.1\n"


def test_meson(settings, tmp_path):
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    build = tmp_path / "build"
    run_well(*meson, "setup", build, EXAMPLE, "-Dwerror=true", **settings)
    run_well(*meson, "compile", "-C", build, **settings)
    check(build / "clamp_min.so", settings)
    # It is installed where the host looks: the plugindir of opdock-plugin.pc.
    run_well(*meson, "install", "-C", build, "--destdir", tmp_path / "stage", **settings)
    installed = next((tmp_path / "stage").rglob("clamp_min.so"))
    assert installed.parent.parts[-2:] == ("opdock", "plugins")
