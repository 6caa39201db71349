# SPDX-License-Identifier: Apache-2.0
"""Tests on-demand building for a software GPU: the real run-time compiler compiles a plugin that
has no image for it; the result is selected, cached and executed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, SOFTMAX, make_folder, needs_hiprtc

CALL = """
    x = torch.randn(9, 200)
    device = "rocm" if "gfx" in os.environ["OPDOCK_SOFTGPU"] else "cuda"
    show(wrong=wrong(on(device, softmax)(x), x))
"""
# GPUs that no image of sparse() runs on, but that NVRTC 12 and 13, or hipRTC, can compile for.
UNCOVERED = [{"arch": "sm_86"}]
UNCOVERED_AMD = [{"arch": "gfx908"}]


@pytest.fixture
def fresh():
    """Returns a fresh folder for a cache and a code folder."""
    folder = make_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def chained(soft, fresh, sparse):
    """Returns soft() with the plugins of sparse(), and with an empty cache and code folder."""

    def run(program=CALL, gpus=UNCOVERED, variables=(), **settings):
        variables = {
            "OPDOCK_PLUGIN_PATH": str(sparse),
            "OPDOCK_CACHE_DIR": str(fresh / "cache"),
            **dict(variables),
        }
        return soft(program, gpus=gpus, variables=variables, code=fresh / "code", **settings)

    return run


@pytest.mark.parametrize(
    ("gpus", "arch"), [(UNCOVERED, "sm_86"), (UNCOVERED_AMD, "gfx908")], ids=["cuda", "rocm"]
)
def test_an_image_is_compiled_cached_and_executed(chained, fresh, gpus, arch):
    if arch.startswith("gfx"):
        needs_hiprtc()
    first = chained(gpus=gpus)
    assert first.shown == {"wrong": 0} and first.findings == []
    (load,) = first.events("load")
    assert load["arch"].startswith(arch) and load["result"] == 0
    assert "compiling softmax" in first.stderr
    # The loaded image is the compiled one: its digest leads to the source.
    entry = json.loads((fresh / "code" / f"{load['sha256']}.json").read_text())
    source = json.loads((fresh / "code" / f"source-{entry['source']}.json").read_text())
    assert entry["arch"].startswith(arch) and "softmax.cuh" in source["headers"]
    assert len(first.events("launch")) == 1

    again = chained(gpus=gpus)
    assert again.shown == {"wrong": 0} and "compiling" not in again.stderr
    assert [load["sha256"] for load in again.events("load")] == [load["sha256"]]


def test_a_damaged_image_in_the_cache_is_compiled_anew(chained, fresh):
    chained()
    entries = [p for p in (fresh / "cache").rglob("*") if p.is_file() and p.stat().st_size > 4096]
    assert entries
    for path in entries:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    done = chained()
    assert done.shown == {"wrong": 0} and "compiling softmax" in done.stderr


def test_switched_off_there_is_no_result(chained):
    done = chained(
        'show(error=error(on("cuda", softmax), torch.ones(2, 3)))',
        variables={"OPDOCK_JIT": "never"},
    )
    assert done.shown["error"].startswith("IncompatibleError"), done.shown
    assert "arch-mismatch" in done.shown["error"]
    assert done.events("launch") == []


@pytest.mark.parametrize("fallback", ["warn", "silent"])
def test_the_reference_needs_a_torch_that_has_the_device(chained, fallback):
    """The last step computes with torch, which has no software GPU: the error states this, and
    nothing is silently computed on the CPU."""
    done = chained(
        'show(error=error(on("cuda", softmax), torch.ones(2, 3)))',
        variables={"OPDOCK_JIT": "never", "OPDOCK_FALLBACK": fallback},
    )
    assert done.shown["error"], done.shown
    assert "does not reach cuda:0" in done.shown["error"]
    assert done.events("launch") == []


def test_a_driver_that_refuses_the_newest_toolkits_images(chained):
    """A CUDA 12 driver takes no cubin of NVRTC 13: the older compiler is used, or the message asks
    for it."""
    # The first look-up is for the namespace package, without which the second one would raise.
    if importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvrtc"):
        done = chained(cuda=12090)
        assert done.shown == {"wrong": 0} and done.findings == []
        return
    done = chained('show(error=error(on("cuda", softmax), torch.ones(2, 3)))', cuda=12090)
    if not done.shown["error"]:
        pytest.skip("NVRTC of CUDA 12 is here, but not as a wheel")
    assert "jit-driver" in done.shown["error"], done.shown
    assert "pip install nvidia-cuda-nvrtc-cu12" in done.shown["error"]
    assert done.events("launch") == []


@pytest.fixture(scope="session")
def least():
    """Returns a folder with softmax built only for sm_90 and later, and the folder of its
    source."""
    folder = make_folder()
    source = folder / "source" / "softmax"
    shutil.copytree(SOFTMAX, source)
    toml = source / "plugin.toml"
    toml.write_text(toml.read_text() + '\n[build]\nleast-cuda-arch = "9.0"\n')
    tools = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    command = BUILD / "core" / "cli" / "opdock"
    done = subprocess.run(
        [command, "build", "--debug", "--json", "--archs=8.0;9.0", source],
        env={**os.environ, "PATH": tools, "OPDOCK_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    place = folder / "plugins"
    place.mkdir()
    for plugin in (Path(json.loads(done.stdout)["path"]), BUILD / "plugins" / "norm.so"):
        shutil.copy(plugin, place)
    yield place, source
    shutil.rmtree(folder)


def test_below_the_least_architecture_nothing_is_compiled(chained, least):
    """The build left out the image for sm_80, which would run on sm_86, and the source is not
    compiled for sm_86 either."""
    import opdock

    place, _ = least
    report = opdock.inspect(str(place / "softmax.so"))
    assert report["cuda_archs"] == ["sm_90"] and report["note"]["least"] == {"cuda": "9.0"}
    variables = {"OPDOCK_PLUGIN_PATH": str(place)}
    done = chained('show(error=error(on("cuda", softmax), torch.ones(2, 3)))', variables=variables)
    assert "arch-below-least" in done.shown["error"], done.shown
    assert "found sm_86, wanted sm_90 or later" in done.shown["error"]
    assert "compiling" not in done.stderr and done.events("load") == []
    words = ["build", "--jit", "--json", "--archs=8.6", "--plugin-path", place / "softmax.so"]
    ahead = subprocess.run([BUILD / "core/cli/opdock", *words], capture_output=True, text=True)
    assert json.loads(ahead.stdout)["images"] == [], ahead.stdout
    later = chained(gpus=[{"arch": "sm_100"}], variables=variables)
    assert later.shown == {"wrong": 0} and "compiling softmax" in later.stderr


def test_below_the_least_architecture_nothing_is_built(chained, least, fresh):
    place, source = least
    tools = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    variables = {
        "OPDOCK_PLUGIN_PATH": f"{source}:{place / 'norm.so'}",
        "OPDOCK_BUILD": "auto",
        "PATH": tools,
    }
    done = chained('show(error=error(on("cuda", softmax), torch.ones(2, 3)))', variables=variables)
    assert "arch-below-least" in done.shown["error"], done.shown
    assert "building" not in done.stderr and "built" not in done.stderr
    # The plugin still serves the CPU, as if there were no such GPU.
    done = chained("show(wrong=wrong(softmax(x := torch.randn(3, 5)), x))", variables=variables)
    assert done.shown == {"wrong": 0} and "built softmax" in done.stderr
