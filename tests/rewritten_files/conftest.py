# SPDX-License-Identifier: Apache-2.0
"""Fixtures with plugins to rewrite, and the checks that must hold afterwards."""

import atexit
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opdock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from programs import Programs

BUILD = Path(os.environ["OPDOCK_BUILD_DIR"])
SOURCE = Path(__file__).resolve().parents[2]
SOFTMAX = BUILD / "plugins" / "softmax.so"

# Compares with the definition, in NumPy. No build and no reference may replace the plugin.
CALL_SOFTMAX = """
import numpy, opdock
x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
power = numpy.exp(x.astype(float) - x.max(1, keepdims=True))
wanted = power / power.sum(1, keepdims=True)
assert numpy.allclose(opdock.ops.softmax(x), wanted, rtol=1e-6)
"""
CALL_TWICE = """
import numpy, opdock
assert opdock.ops.twice(numpy.array([21], dtype=numpy.float32)).tolist() == [42]
"""
LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1], mode=2).opdock_plugin_v0"


@functools.cache
def programs():
    """Returns the server of the programs that load and call a plugin: there are two hundred, and
    importing NumPy takes longer than what they do."""
    made = Programs("import ctypes, numpy", os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    atexit.register(made.close)
    return made


def python(text, *arguments, **settings):
    """Runs a program in a process of its own; returns the CompletedProcess."""
    return programs().run(text, os.environ | settings, *arguments)


def python_well(text, *arguments, **settings):
    done = python(text, *arguments, **settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def run(*command, **more):
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=100, **more)


def run_well(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def codes(report):
    """Returns the reasons' codes that concern the file, independent of the machine's GPUs."""
    return [reason["code"] for reason in report["reasons"] if reason["stage"] != "device"]


def images(report):
    return [(image["arch"], image["kind"], image["size"]) for image in report["images"]]


def check(path, call, original, wanted=()):
    """Checks that the verdict, which covers the images' digests, and the list of images are as
    before, that the loader loads the file, and that its op computes the right result."""
    report = opdock.inspect(path)
    assert (report["verdict"], codes(report)) == ("usable", list(wanted)), report["reasons"]
    assert images(report) == images(opdock.inspect(original))
    python_well(LOAD, path)
    settings = {
        "OPDOCK_PLUGIN_PATH": str(path),
        "OPDOCK_BUILD": "never",
        "OPDOCK_FALLBACK": "error",
        "OPDOCK_CACHE_DIR": str(path.parent / "cache"),
    }
    python_well(call, **settings)


@pytest.fixture(scope="session")
def twice(tmp_path_factory):
    """twice(name, assembly, *link arguments): the path of a plugin in C with a source image, made
    here from a note as docs/reference/note.md has it, without Opdock's own rules."""
    folder = tmp_path_factory.mktemp("twice")

    def make(name, assembly="", *arguments):
        note, path = folder / f"{name}.S", folder / f"{name}.so"
        run_well(
            *(sys.executable, SOURCE / "tests/cases/make_note.py", note, "--name", "twice"),
            *("--image", "a kernel", "--device", "cuda"),
        )
        with note.open("a") as more:
            more.write(assembly)
        body = "((float*)results[0].as.tensor->data)[0] = 2 * ((float*)args[0].as.tensor->data)[0]"
        run_well(
            *("cc", "-shared", "-fPIC", f"-I{SOURCE}/core/include", '-DNAME="twice"'),
            *(f"-DIN_RUN={body}", SOURCE / "tests/cases/case_plugin.c", note, "-o", path),
            *arguments,
        )
        return path

    return make
