# SPDX-License-Identifier: Apache-2.0
"""opdock-soft-code: from a plugin's image table to a code folder."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
from conftest import BUILD, TOOLS

PLUGINS = BUILD / "plugins"


def soft_code(*words):
    command = [TOOLS / "opdock-soft-code", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def images(plugin):
    """{digest of the image's bytes in the file: its backend and architecture}, by opdock inspect
    and hashlib."""
    import opdock

    data = plugin.read_bytes()
    found = {}
    for image in opdock.inspect(str(plugin))["images"]:
        if image["kind"] != "source":
            part = data[image["offset"] :][: image["size"]]
            found[hashlib.sha256(part).hexdigest()] = (image["backend"], image["arch"])
    return found


@pytest.mark.parametrize("name", ["noop", "norm", "softmax"])
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
    (digest,) = {entry["source"] for entry in entries.values()}  # one source for all of them
    source = json.loads((tmp_path / f"source-{digest}.json").read_text())
    assert f"{name}.cuh" in source["headers"] and "opdock/device.cuh" in source["headers"]
    assert f'#include "{name}.cuh"\n' in source["program"]
    assert source["options"] == [] and source["kernels"]
    assert len(list(tmp_path.iterdir())) == len(wanted) + 1


def test_again_is_the_same(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    plugins = [PLUGINS / "norm.so", PLUGINS / "softmax.so"]
    assert soft_code(*plugins, first).returncode == 0
    assert soft_code(*reversed(plugins), second).returncode == 0
    assert soft_code(*plugins, second).returncode == 0  # over what is there

    def files(folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert files(first) == files(second)


def test_the_digest_is_that_of_what_run_time_compilation_keeps(tmp_path):
    """A plugin's source has one digest, whoever writes it: what is compiled of it is shared."""
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
