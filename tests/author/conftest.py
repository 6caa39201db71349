# SPDX-License-Identifier: Apache-2.0
"""Fixtures for what a plugin's author uses: the command, the installed files, the compilers."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from warm_python import WarmPython

BUILD = Path(os.environ["OPDOCK_BUILD_DIR"])
SOURCE = Path(__file__).resolve().parents[2]

COMMAND = BUILD / "core" / "cli" / "opdock"


def clean_environment(**more):
    """Returns this process's environment without the build tree's libraries and settings."""
    mine = ("OPDOCK_", "LD_LIBRARY_PATH", "MESON", "MALLOC_PERTURB_", "TORCH_CUDA_ARCH_LIST")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    clean["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), clean.get("PATH", "")])
    return clean | {name: str(value) for name, value in more.items()}


def run(*command, cwd=None, **more):
    """Runs a command; returns the finished process, with its output as text."""
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=cwd, env=clean_environment(**more), capture_output=True, text=True, timeout=500
    )


def run_well(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def needs_private_build():
    """Skips where everybody can write a folder above the build's, since everything below it is
    refused."""
    for place in BUILD.parents:
        if place.stat().st_mode & 0o1002 == 0o002:
            pytest.skip(f"everybody can write {place}: caches and plugins below it are refused")


@contextlib.contextmanager
def installing():
    """Lets one test at a time install from the build folder, because `ninja uninstall` finds what
    the last one installed there; test_wheel.py takes the same lock."""
    with (BUILD / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def cache():
    """Returns an empty cache in the build tree: one below /tmp would be refused."""
    folder = BUILD / "author-cache"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def python():
    """Returns the path of a Python whose processes have torch and pytest, for the software GPU
    too."""
    drivers = BUILD / "libexec" / "opdock" / "softgpu"
    prelude = "import importlib.util, pytest\nif importlib.util.find_spec('torch'): import torch"
    with WarmPython(prelude, ["", str(drivers)]) as program:
        yield program


@pytest.fixture(scope="session")
def quick_compiler(tmp_path_factory):
    """Returns the path of a C++ compiler that does not optimise formulas' code for CPUs, which then
    compiles in a quarter of the time. Opdock's own plugins have it optimised."""
    path = tmp_path_factory.mktemp("compiler") / "quick-c++"
    path.write_text(
        '#!/bin/sh\ncase "$*" in *.formulas.cc*) set -- "$@" -O0 ;; esac\n'
        f'exec {os.environ.get("CXX", "c++")} "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def opdock(cache, python, tmp_path):
    """Returns opdock(*arguments, **variables), which runs the command in a fresh folder."""

    def call(*arguments, **variables):
        variables.setdefault("OPDOCK_CACHE_DIR", cache)
        variables.setdefault("OPDOCK_PYTHON", python)
        return run(COMMAND, *arguments, cwd=tmp_path, **variables)

    return call


@pytest.fixture(scope="session")
def built():
    """Builds the three kinds of new plugins with the wrapper project. Returns the folder with the
    *.so files that could be built, and the kinds by folder name."""
    folder = BUILD / "author-test"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCE / "core/pack/plugin-build", folder)
    plugins = folder / "plugins"
    plugins.mkdir()
    for name in ("meson.build", "opdock-plugin.map"):
        shutil.copy(SOURCE / "plugins" / name, plugins)
    for kind in ("cpu", "device", "nvcc"):
        run_well(COMMAND, "new", f"made_{kind}", "--kind", kind, "--in", plugins)
    settings = {
        "opdock-pack": BUILD / "core/pack/opdock-pack",
        "include-dir": SOURCE / "core/include",
        "device-dir": SOURCE / "core/device",
        "cuda-archs": "8.0;9.0",
        "werror": "true",
    }
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    words = [f"-D{name}={value}" for name, value in settings.items()]
    run_well(*meson, "setup", folder / "build", folder, *words)
    run_well(*meson, "compile", "-C", folder / "build")
    return folder / "build" / "plugins"


@pytest.fixture(scope="session")
def prefix():
    """Returns the prefix of a staged `meson install` of this build."""
    folder = BUILD / "author-stage"
    shutil.rmtree(folder, ignore_errors=True)
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    tags = ["--tags", "runtime,devel"]
    with installing():
        run_well(*meson, "install", "-C", BUILD, "--no-rebuild", "--destdir", folder, *tags)
    return next(folder.rglob("include/opdock/plugin.h")).parents[2]


@pytest.fixture(scope="session")
def settings(prefix, tmp_path_factory):
    """Returns settings with which pkg-config finds the staged prefix, which is not at the place
    that it was configured for."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    script = tmp_path_factory.mktemp("settings") / "pkg-config"
    real = shutil.which("pkg-config")
    script.write_text(f'#!/bin/sh\nexec {real} --define-variable=prefix={prefix} "$@"\n')
    script.chmod(0o755)
    folder = next(prefix.rglob("opdock-plugin.pc")).parent
    library = next(prefix.rglob("libopdock.so.0")).parent
    return {"PKG_CONFIG": script, "PKG_CONFIG_PATH": folder, "LD_LIBRARY_PATH": library}
