# SPDX-License-Identifier: Apache-2.0
"""Tests opdock build --all and --jit: builds every plugin that is found, ahead of time, for any
architectures."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from conftest import COMMAND, PLUGINS
from test_build import SOURCE, TOML, needs_tools

SOFTGPU = os.environ["OPDOCK_SOFTGPU_DIR"]

NVCC = """#!/bin/sh
case "$*" in
*--version*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
*--help*) echo "Allowed values: 'sm_75','sm_80','sm_90','sm_120'." ;;
*--dryrun*) ;;
*) touch "$0.compiled"; exit 1 ;;
esac
"""


@pytest.fixture
def world(tmp_path, opdock):
    """Returns an object with add(name, source, device), which makes a source plugin, and
    build(*arguments, **variables) -> Result."""
    (tmp_path / "home/.cache/opdock").mkdir(mode=0o700, parents=True)
    places = tmp_path / "places"
    places.mkdir()
    assert opdock("trust", tmp_path).status == 0

    class World:
        path = places

        @staticmethod
        def add(name, source=None, device="cpu", text=SOURCE):
            folder = places / name
            folder.mkdir()
            toml = TOML.replace("doubled", name).replace('["cpu"]', f'["{device}"]')
            if source:
                toml = toml.replace(f'["{name}.c"]', f'["{name}.c", "{source}"]')
                (folder / source).write_text("int nothing;\n")
            (folder / "plugin.toml").write_text(toml)
            (folder / f"{name}.c").write_text(text.replace("doubled", name))
            return folder

        @staticmethod
        def tool(name, text):
            program = tmp_path / "tools" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(text)
            program.chmod(0o700)
            return program

        @staticmethod
        def build(*arguments, **variables):
            return opdock("build", *arguments, "--plugin-path", places, **variables)

        @staticmethod
        def entries():
            folder = tmp_path / "home/.cache/opdock/v1/plugin"
            return sorted(path.name for path in folder.glob("*/*/*/*.so"))

    return World


def gpus(*archs, cuda=13000):
    config = {"cuda": cuda, "gpus": [{"arch": arch} for arch in archs]}
    return {"LD_LIBRARY_PATH": SOFTGPU, "OPDOCK_SOFTGPU": json.dumps(config)}


def outcomes(report):
    return {one["plugin"]: one["outcome"] for one in report["plugins"]}


def codes(reasons):
    return [reason["code"] for reason in reasons]


@needs_tools
def test_all_builds_everything_once_and_tells_each(world):
    world.add("one")
    world.add("two")
    first = world.build("--all")
    assert first.status == 0, first.out + first.err
    assert "one was built in" in first.out and "two was built in" in first.out
    assert first.out.endswith("2 built, 0 there already, 0 left out, 0 failed\n")
    assert world.entries() == ["one.so", "two.so"]
    again = world.build("--all", "--json")
    assert outcomes(again.json) == {"one": "cached", "two": "cached"}
    assert again.status == 0 and again.json["reasons"] == []


@needs_tools
def test_all_goes_on_behind_one_that_fails(world):
    world.add("broken", text=SOURCE + "int f(void) { return nothing; }\n")
    world.add("good")
    result = world.build("--all", "--json")
    assert result.status == 1
    assert outcomes(result.json) == {"broken": "failed", "good": "built"}
    assert codes(result.json["plugins"][0]["reasons"]) == ["build-failed"]
    assert world.entries() == ["good.so"]


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (["--archs", "8.0;90"], "arch-list-invalid", '"90"'),
        (["--hip-archs", "90a"], "arch-list-invalid", '"90a"'),
        (["--archs", "8.0;8.9;10.0+PTX"], "build-arch", "8.9, 10.0+PTX in --archs"),
        (["--archs", "native"], "build-arch", "no visible NVIDIA GPU"),
    ],
)
def test_all_starts_nothing_for_a_list_that_cannot_be(world, words, code, found):
    world.add("good")
    world.add("kernels", "kernels.cu", "cuda")
    nvcc = world.tool("nvcc", NVCC)
    result = world.build("--all", *words, "--json", CUDACXX=str(nvcc))
    assert result.status == 1
    assert result.json["plugins"] == []
    assert codes(result.json["reasons"]) == [code]
    assert found in result.json["reasons"][0]["found"]
    assert world.entries() == [] and not nvcc.with_suffix(".compiled").exists()
    text = world.build("--all", *words, CUDACXX=str(nvcc))
    assert text.status == 1 and text.out.endswith("nothing was built\n")


def test_a_list_is_read_also_where_no_device_counts_for_it(world):
    """A misspelt option is reported, though a plugin for the CPU takes no architectures."""
    result = world.build(world.add("good"), "--archs", "eight", "--json")
    assert result.status == 1 and codes(result.json["reasons"]) == ["arch-list-invalid"]


@needs_tools
def test_all_leaves_out_what_nobody_asked_for(world):
    world.add("good")
    world.add("amd", "amd.hip", "rocm")
    world.add("off")
    nothing = {"HIPCXX": "/nowhere/hipcc", "OPDOCK_PLUGINS_DISABLE": "off"}
    result = world.build("--all", "--json", **nothing)
    assert result.status == 0
    assert outcomes(result.json) == {"amd": "skipped", "good": "built", "off": "skipped"}
    reasons = {one["plugin"]: codes(one["reasons"]) for one in result.json["plugins"]}
    assert reasons == {"amd": ["build-no-hipcc"], "good": [], "off": ["deselected"]}
    text = world.build("--all", **nothing)
    assert "amd was left out" in text.out and "build-no-hipcc" in text.out
    assert "0 built, 1 there already, 2 left out, 0 failed" in text.out
    asked = world.build("--all", "--hip-archs", "gfx90a", "--json", **nothing)
    assert asked.status == 1 and outcomes(asked.json)["amd"] == "failed"


def test_all_builds_nothing_that_others_could_have_written(opdock, world):
    """The plugin is in a place that nobody named; the plugins that come with Opdock are found
    too."""
    place = world.path.parent / "home/.local/share/opdock/plugins"
    shutil.copytree(world.add("good"), place / "good")
    (place / "good").chmod(0o777)
    shutil.rmtree(world.path.parent / "home/.config")  # revokes the trust
    result = opdock("build", "--all", "--json", PATH="")
    plugins = {one["plugin"]: one for one in result.json["plugins"]}
    assert result.status == 1 and {"good", "noop", "softmax"} <= set(plugins)
    assert plugins["good"]["outcome"] == "failed"
    assert codes(plugins["good"]["reasons"])[0] == "untrusted-writable"


def test_all_without_any(world):
    result = world.build("--all")
    assert result.status == 1 and "no source plugin was found" in result.out


def test_the_visible_gpus_decide_unless_a_list_does(world):
    folder = world.add("kernels", "kernels.cu", "cuda")
    nvcc = {"CUDACXX": str(world.tool("nvcc", NVCC))}
    for words, variables, wanted in [
        ([], gpus("sm_90", "sm_80"), "8.0;9.0"),
        ([], {}, "default"),
        ([], {"TORCH_CUDA_ARCH_LIST": "7.5"}, "7.5"),
        (["--archs", "native"], gpus("sm_90"), "9.0+PTX"),
        (["--archs", "12.0 8.0"], {"TORCH_CUDA_ARCH_LIST": "7.5"}, "8.0;12.0"),
        (["--archs", "all-major"], {}, "all-major"),
    ]:
        report = world.build(folder, *words, "--json", **nvcc, **variables, MESON="/nowhere").json
        assert report["cuda_archs"] == wanted, words


def from_least(world, name, least, devices="cuda"):
    """Makes a source plugin for GPUs from that architecture on."""
    folder = world.add(name, f"{name}.cu", devices)
    toml = folder / "plugin.toml"
    toml.write_text(toml.read_text() + f'[build]\nleast-cuda-arch = "{least}"\n')
    return folder


def test_a_list_below_one_plugins_least_architecture_is_for_the_others(world):
    from_least(world, "later", "9.0")
    world.add("kernels", "kernels.cu", "cuda")
    nvcc = world.tool("nvcc", NVCC)
    words = {"CUDACXX": str(nvcc), "MESON": "/nowhere"}
    result = world.build("--all", "--archs", "8.0", "--json", **words)
    plugins = {one["plugin"]: one for one in result.json["plugins"]}
    assert result.status == 1 and result.json["reasons"] == []
    assert codes(plugins["later"]["reasons"]) == ["arch-below-least"]
    assert plugins["later"]["reasons"][0]["found"] == '--archs = "8.0"'
    assert codes(plugins["kernels"]["reasons"]) == ["build-no-meson"]  # it was begun


def test_what_is_below_the_least_architecture_is_left_out(world):
    folder = from_least(world, "later", "9.0")
    nvcc = {"CUDACXX": str(world.tool("nvcc", NVCC)), "MESON": "/nowhere"}
    for words, variables, wanted in [
        (["--archs", "7.5+PTX;8.0;9.0;12.0"], {}, "9.0;12.0"),
        (["--archs", "all;8.0"], {}, "all"),
        ([], gpus("sm_80", "sm_90"), "9.0"),
        ([], gpus("sm_80"), "default"),
    ]:
        report = world.build(folder, *words, "--json", **nvcc, **variables).json
        assert report["cuda_archs"] == wanted, words
        assert "arch-uncovered" not in codes(report["reasons"])


@needs_tools
def test_a_toolkit_that_the_driver_refuses(world):
    """It is not built for the GPU of this machine; for others it is tried, with a warning."""
    folder = world.add("kernels", "kernels.cu", "cuda")
    nvcc = world.tool("nvcc", NVCC)
    old = {"CUDACXX": str(nvcc), **gpus("sm_90", cuda=12040)}
    result = world.build(folder, "--json", **old)
    assert result.status == 1 and codes(result.json["reasons"]) == ["toolkit-driver"]
    assert "12.4" in result.json["reasons"][0]["found"]
    assert not nvcc.with_suffix(".compiled").exists()
    result = world.build(folder, "--archs", "9.0", "--json", **old)
    assert "toolkit-driver" not in codes(result.json["reasons"])
    log = pathlib.Path(result.json["log"]).read_text()
    assert "opdock: warning: toolkit-driver: found a driver for CUDA 12.4" in log


@needs_tools
def test_a_first_use_on_the_gpu_is_refused_for_its_driver_and_on_the_cpu_is_not(opdock, world):
    folder = world.add("kernels", "kernels.cu", "cuda")
    toml = (folder / "plugin.toml").read_text()
    (folder / "plugin.toml").write_text(toml.replace('["cuda"]', '["cpu", "cuda"]'))
    nvcc = world.tool("nvcc", NVCC)
    old = {"CUDACXX": str(nvcc), **gpus("sm_90", cuda=12040)}
    words = ["run", "kernels", "--arg", "x=ones(2)", "--plugin-path", world.path, "--device"]
    on_gpu = opdock(*words, "cuda:0", **old)
    assert on_gpu.status == 1 and "toolkit-driver: found a driver for CUDA 12.4" in on_gpu.err
    assert not nvcc.with_suffix(".compiled").exists()
    on_cpu = opdock(*words, "cpu", **old)
    assert on_cpu.status == 1 and "toolkit-driver" not in on_cpu.err
    assert nvcc.with_suffix(".compiled").exists()  # it was begun


@pytest.mark.parametrize(
    ("cuda", "outcome"),
    [("'12.8'", ["toolkit-torch"]), ("None", ["toolkit-torch"]), ("'13.0'", [])],
)
@needs_tools
def test_a_toolkit_of_another_cuda_than_the_torch_that_is_linked(tmp_path, world, cuda, outcome):
    folder = world.add("kernels", "kernels.cu", "cuda")
    site = tmp_path / "env/lib/python3.11/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch-2.9.0.dist-info").mkdir()
    (site / "torch/version.py").write_text(f"cuda: Optional[str] = {cuda}\n")
    tools = {"CUDACXX": str(world.tool("nvcc", NVCC)), "VIRTUAL_ENV": str(tmp_path / "env")}
    words = [folder, "--archs", "9.0", "--json"]
    # Torch is not linked.
    assert "toolkit-torch" not in codes(world.build(*words, **tools).json["reasons"])
    toml = (folder / "plugin.toml").read_text()
    (folder / "plugin.toml").write_text(toml + '\n[requires]\ntorch = ">=2.9"\n')
    found = codes(world.build(*words, **tools).json["reasons"])
    assert [code for code in found if code == "toolkit-torch"] == outcome


@needs_tools
def test_device_source_is_compiled_by_the_nvrtc_that_is_found_here(opdock, world):
    """Meson and opdock-pack are started with another PATH than this process has."""
    folder = world.add("kernels", device="cuda")
    device = '\n[device]\nsources = ["kernels.cuh"]\nkernels = ["nothing"]\n'
    (folder / "plugin.toml").write_text((folder / "plugin.toml").read_text() + device)
    (folder / "kernels.cuh").write_text('extern "C" __global__ void nothing() {}\n')
    result = world.build(folder, "--archs", "8.0;9.0+PTX", "--json")
    assert result.status == 0, result.out
    if "jit-no-compiler" in codes(result.json["warnings"]):
        pytest.skip("found no NVRTC")
    images = opdock("inspect", result.json["path"], "--json").json["images"]
    archs = {image["arch"] for image in images if image["kind"] != "source"}
    assert archs == {"sm_80", "sm_90", "compute_90"}
    refused = world.build(folder, "--archs", "99.0", "--json")
    assert codes(refused.json["reasons"]) == ["build-arch"]
    assert "NVRTC" in refused.json["reasons"][0]["wanted"]


def test_ctrl_c_stops_all_that_is_left(tmp_path, world):
    world.add("one")
    world.add("two")
    reached = tmp_path / "reached"
    for name, body in {
        "c++": "echo 1.0",
        "cc": "echo 1.0",
        "ninja": "exit 1",
        "meson": f"echo >> {reached}; sleep 94",
    }.items():
        world.tool(name, f"#!/bin/sh\n{body}\n")
    environment = {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "tools")}
    environment |= {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
    with subprocess.Popen(
        [COMMAND, "build", "--all", "--json", "--plugin-path", str(world.path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        for _ in range(400):
            if reached.exists():
                break
            time.sleep(0.025)
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=20)
    assert command.returncode == 130
    assert [codes(one["reasons"]) for one in json.loads(out)["plugins"]] == [["cancelled"]] * 2
    assert len(reached.read_text().split("\n")) == 2  # one line: the second build was not begun


@pytest.mark.parametrize(
    "words",
    [
        ["--all", "."],
        ["--all", "--jit"],
        ["--jit", "."],
        ["--jit", "--debug"],
        ["--jit", "--archs", "nine"],
        ["--jit", "--archs", "99.0"],
        ["--jit"],  # no GPU is visible
        ["--jit", "--archs", "native"],
    ],
)
def test_what_cannot_be_meant(world, words):
    result = world.build(*words)
    assert result.status == 2 and result.err.startswith("opdock: ") and result.out == ""
    if words == ["--jit", "--archs", "99.0"] and "no NVRTC" in result.err:
        pytest.skip("found no NVRTC to ask what it knows")


@pytest.fixture
def binary(world):
    """Returns a place with one binary plugin that carries device source."""
    shutil.copy(PLUGINS / "noop.so", world.path)
    return world


def test_jit_compiles_for_the_list_and_for_the_visible_gpus(binary):
    first = binary.build("--jit", "--jobs", "2", "--archs", "8.0;9.0a", "--json")
    images = first.json["images"]
    if any("jit-no-compiler" in codes(image["reasons"]) for image in images):
        pytest.skip("found no NVRTC")
    assert first.status == 0
    assert {image["arch"]: image["outcome"] for image in images} == {
        "sm_80": "compiled",
        "sm_90a": "compiled",
    }
    seen = binary.build("--jit", "--json", **gpus("sm_90", "sm_86"))
    assert {image["arch"]: image["outcome"] for image in seen.json["images"]} == {
        "sm_90a": "cached",
        "sm_86": "compiled",
    }
    text = binary.build("--jit", "--archs", "8.0")
    assert text.status == 0 and "noop 1.0.0 for sm_80" in text.out.replace("0.1.0", "1.0.0")
    assert "1 there already" in text.out
    both = binary.build("--jit", "--archs", "all-major", "--json")
    assert both.status == 0 and len(both.json["images"]) > 3


def test_jit_without_a_compiler_or_a_plugin(world):
    result = world.build("--jit", "--archs", "8.0")
    assert result.status == 1 and "no plugin here carries source" in result.out
