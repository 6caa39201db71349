# SPDX-License-Identifier: Apache-2.0
"""Tests opdock-soft-code, which makes a code folder from a plugin's image table."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tree_plugins
from conftest import BUILD, TOOLS

PLUGINS = BUILD / "plugins"
ROOT = Path(__file__).resolve().parents[3]


def soft_code(*words):
    command = [TOOLS / "opdock-soft-code", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def images(plugin):
    """Returns {digest of the image's bytes in the file: (backend, architecture)}, found by opdock
    inspect and hashlib."""
    import opdock

    data = plugin.read_bytes()
    found = {}
    for image in opdock.inspect(str(plugin))["images"]:
        if image["kind"] != "source":
            part = data[image["offset"] :][: image["size"]]
            found[hashlib.sha256(part).hexdigest()] = (image["backend"], image["arch"])
    return found


@pytest.mark.parametrize("name", tree_plugins.with_kernels("cuda", "rocm"))
def test_each_image_leads_to_the_source_that_the_plugin_carries(tmp_path, name):
    done = soft_code(PLUGINS / f"{name}.so", tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = images(PLUGINS / f"{name}.so")
    assert wanted and f": {len(wanted)} images" in done.stdout
    entries = {
        path.stem: json.loads(path.read_text())
        for path in tmp_path.iterdir()
        if not path.name.startswith("source-")
    }
    assert {d: (e["backend"], e["arch"]) for d, e in entries.items()} == wanted
    (digest,) = {entry["source"] for entry in entries.values()}  # all images have the same source
    source = json.loads((tmp_path / f"source-{digest}.json").read_text())
    device = tree_plugins.declared()[name]["device"]
    headers = [Path(header).name for header in device["sources"]]
    assert {*headers, "opdock/device.cuh"} <= set(source["headers"])
    assert all(f'#include "{header}"\n' in source["program"] for header in headers)
    kernels = {kernel.split("<")[0] for kernel in source["kernels"]}
    assert source["options"] == [] and kernels == tree_plugins.functions({"device": device})
    assert len(list(tmp_path.iterdir())) == len(wanted) + 1


def test_again_is_the_same(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    plugins = [PLUGINS / "norm.so", PLUGINS / "softmax.so"]
    assert soft_code(*plugins, first).returncode == 0
    assert soft_code(*reversed(plugins), second).returncode == 0
    assert soft_code(*plugins, second).returncode == 0  # into an existing folder

    def files(folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert files(first) == files(second)


def test_the_digest_is_that_of_what_run_time_compilation_keeps(tmp_path):
    """A plugin's source has one digest, whichever tool writes it, so what is compiled from it is
    shared."""
    code = tmp_path / "code"
    assert soft_code(PLUGINS / "noop.so", code).returncode == 0
    (path,) = code.glob("source-*.json")
    kept = tmp_path / "kept"
    program = (
        "import json, sys, opdock\n"
        "s = json.load(open(sys.argv[1]))\n"
        "opdock.compile(s['program'], headers=s['headers'], kernels=s['kernels'], arch='sm_90',\n"
        "               name=s['program_name']).image\n"
    )
    env = {**os.environ, "OPDOCK_JIT_KEEP": str(kept)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], env=env, capture_output=True, text=True
    )
    if "jit-no-compiler" in done.stderr:
        pytest.skip("no NVRTC here")
    assert done.returncode == 0, done.stderr
    assert (kept / path.name).read_bytes() == path.read_bytes()


def test_what_is_no_plugin_or_carries_no_source(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no plugin")
    for path, word in ((tmp_path / "missing.so", "path-unreadable"), (text, "not")):
        done = soft_code(path, tmp_path / "code")
        assert done.returncode == 1 and str(path) in done.stderr and word in done.stderr
    damaged = tmp_path / "damaged.so"
    data = bytearray((PLUGINS / "noop.so").read_bytes())
    at = data.index(b"OPDKIMG1")
    data[at : at + 8] = b"OPDKIMG9"
    damaged.write_bytes(data)
    done = soft_code(damaged, tmp_path / "code")
    assert done.returncode == 1 and "image-table" in done.stderr
    assert soft_code(PLUGINS / "noop.so").returncode == 2


def packed_with(headers, folder):
    """Packs the plugin noop for sm_90 and gfx90a with these device headers, as Meson does."""
    source = ROOT / "plugins" / "noop"
    pack = [BUILD / "core" / "pack" / "opdock-pack", "--toml", source / "plugin.toml"]
    pack += ["--out-dir", folder, "--include", headers, "--cuda-archs", "9.0"]
    pack += ["--hip-archs", "gfx90a", "--cpu-level", "0" if os.uname().machine != "x86_64" else "1"]
    pack += ["--compile-program", BUILD / "libexec" / "opdock" / "opdock-compile"]
    build = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{ROOT / 'core' / 'include'}"]
    build += ["-o", folder / "noop.so", source / "noop.cc", folder / "note.S"]
    descriptor = ["gcc", "-fPIC", f"-I{ROOT / 'core' / 'include'}", "-c", folder / "entry.c"]
    for command in (pack, [*descriptor, "-o", folder / "entry.o"], [*build, folder / "entry.o"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "noop.so"


def test_the_engines_own_header_is_used_whatever_a_plugin_has_packed(soft, arch, tmp_path):
    """A plugin carries the vocabulary of the Opdock that packed it, including target_soft.cuh; the
    engine that executes the plugin uses its own target_soft.cuh instead."""
    headers = tmp_path / "device"
    shutil.copytree(ROOT / "core" / "device", headers)
    (headers / "opdock" / "target_soft.cuh").write_text("#error packed by another Opdock\n")
    plugin, code = packed_with(headers, tmp_path), tmp_path / "code"
    assert soft_code(plugin, code).returncode == 0
    (source,) = code.glob("source-*.json")
    carried = json.loads(source.read_text())["headers"]
    assert "#error" in carried["opdock/target_soft.cuh"]
    paths = [plugin, PLUGINS / "softmax.so", PLUGINS / "norm.so"]
    done = soft(
        "show(error=error(on(device, opdock.ops.noop_launch), torch.ones(3)))",
        gpus=[{"arch": arch}],
        code=code,
        variables={"OPDOCK_PLUGIN_PATH": ":".join(map(str, paths)), "OPDOCK_JIT": "never"},
    )
    assert done.shown == {"error": None} and done.findings == [], done.stderr
    (launch,) = done.events("launch")
    assert "noop" in launch["function"]
