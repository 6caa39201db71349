# SPDX-License-Identifier: Apache-2.0
"""Fixtures that run programs on software GPUs, each in a process of its own, since a driver reads
its configuration once and a device that failed stays failed."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from opdock._author import soft as software

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import tree_plugins
from programs import Programs

BUILD = Path(os.environ["OPDOCK_BUILD_DIR"])
TOOLS = BUILD / "libexec" / "opdock"
SM_90 = [{"arch": "sm_90"}]
# Both drivers, with warps of 32 and 64 threads. The tests in C++ (gpu.h) run on gfx1030 as well.
ARCHS = ["sm_90", "gfx90a"]

# A plugin with one kernel, which compiles in a hundredth of the time of the tree's plugin.
SOFTMAX = Path(__file__).with_name("softmax")

# Every program below begins with this text.
PROLOGUE = """
import json, os, sys
import torch
import opdock
from opdock.testing import move, on, to_cpu
softmax, layer_norm = opdock.ops.softmax, opdock.ops.layer_norm
device = os.environ["DEVICE"]  # "cuda" or "rocm": the first GPU's
def show(**values):
    print(json.dumps(values), flush=True)
def error(call, *args, **keywords):
    try:
        call(*args, **keywords)
    except Exception as problem:
        return type(problem).__name__ + ": " + str(problem)
def wrong(found, x):  # of softmax: how many elements
    return int(((found.double() - torch.softmax(x.double(), -1)).abs() > 1e-6).sum())
"""


@dataclasses.dataclass
class Done:
    status: int
    shown: dict  # what the program passed to show()
    stderr: str
    findings: list  # their texts
    record: list  # the calls that the driver recorded

    def events(self, name):
        return [line for line in self.record if line["event"] == name]


@pytest.fixture(scope="session")
def code():
    """Returns the code folder of the built plugins. It is kept between runs, so that nothing is
    compiled twice."""
    folder = BUILD / "tests" / "softgpu" / "ops" / "code"
    folder.mkdir(parents=True, exist_ok=True)
    plugins = [BUILD / "plugins" / f"{n}.so" for n in tree_plugins.with_kernels("cuda", "rocm")]
    assert software.fill_code(TOOLS / "opdock-soft-code", plugins, folder)
    return folder


def make_folder():
    """Makes a folder outside /tmp, where other users could write to it."""
    return Path(tempfile.mkdtemp(dir=BUILD / "tests" / "softgpu" / "ops", prefix="chain-"))


@pytest.fixture(scope="session")
def sparse():
    """Returns a folder with a small softmax built only for sm_90 and gfx90a, and the tree's
    norm."""
    folder = make_folder()
    tools = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        [BUILD / "core" / "cli" / "opdock", "build", "--debug", "--json", "--archs=9.0"]
        + ["--hip-archs=gfx90a", SOFTMAX],
        env={**os.environ, "PATH": tools, "OPDOCK_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = Path(json.loads(done.stdout)["path"])
    place = folder / "plugins"
    place.mkdir()
    for plugin in (built, BUILD / "plugins" / "norm.so"):
        shutil.copy(plugin, place)
    yield place
    shutil.rmtree(folder)


@pytest.fixture(params=ARCHS)
def arch(request):
    """Yields each kind of software GPU for which the plugins have images."""
    if request.param.startswith("gfx"):
        needs_hiprtc()
    else:
        needs_nvrtc()
    return request.param


def needs_hiprtc():
    needs_images("hip_archs", "hipRTC")


def needs_nvrtc():
    needs_images("cuda_archs", "NVRTC")


def needs_images(member, compiler):
    import opdock

    if not opdock.inspect(str(BUILD / "plugins" / "softmax.so"))[member]:
        pytest.skip(f"softmax was packed without {compiler}")


@pytest.fixture(scope="session")
def programs(code, tmp_path_factory):
    """Starts the server that runs the programs, with the loader variables that every program
    has."""
    scratch = tmp_path_factory.mktemp("torch")
    env = software.environment(os.environ, TOOLS / "softgpu", code, [], scratch)
    with Programs("import torch; torch.set_num_threads(1)", env) as programs:
        yield programs


@pytest.fixture
def soft(tmp_path, code, programs):
    """Returns soft(program, gpus=…, variables=…, **settings of OPDOCK_SOFTGPU), which runs Python
    text. Variables for the dynamic loader have no effect here, since the server has already
    started."""

    def run(program, gpus=SM_90, variables=(), check=True, code=code, **settings):
        findings, record = tmp_path / "findings", tmp_path / "record"
        for path in (findings, record):
            path.unlink(missing_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=tmp_path))
        settings["findings"] = str(findings)
        env = software.environment(
            os.environ, TOOLS / "softgpu", code, gpus, scratch, **settings
        ) | {
            "DEVICE": software.kind_of(gpus[0]["arch"])[0],
            "OPDOCK_PLUGIN_PATH": str(BUILD / "plugins"),
            "OPDOCK_BUILD": "never",
            "OPDOCK_FALLBACK": "error",
            "OPDOCK_SOFTGPU_RECORD": str(record),
            **dict(variables),
        }
        done = programs.run(PROLOGUE + textwrap.dedent(program), env)
        if check:
            assert done.returncode == 0, done.stderr
        shown = {}
        for line in done.stdout.splitlines():
            shown.update(json.loads(line))

        def lines(path):
            return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []

        texts = [line["finding"] for line in lines(findings)]
        return Done(done.returncode, shown, done.stderr, texts, lines(record))

    return run
