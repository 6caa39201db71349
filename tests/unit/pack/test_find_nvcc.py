# SPDX-License-Identifier: Apache-2.0
"""Tests where this tree's own build looks for nvcc. The machine's /usr/local counts too, so each
tested place comes before it, or only wheels are searched."""

import importlib.util
import os

import pytest

spec = importlib.util.spec_from_file_location("find_nvcc", os.environ["OPDOCK_FIND_NVCC"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Returns place(name, …), which creates executables and files in the test's folder."""
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(module, "toolkits", lambda: [])

    def make(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o700)
        return str(tmp_path / names[0])

    return make


WHOLE = ["include/cccl/nv/target", "include/cuda_runtime.h", "lib/libcudart_static.a"]


def test_the_order(place, tmp_path, monkeypatch):
    site = tmp_path / "site"
    wheel = place("site/nvidia/cu13/bin/nvcc", *[f"site/nvidia/cu13/{name}" for name in WHOLE])
    assert module.find_nvcc([site]) == wheel
    in_path = place("bin/nvcc")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert module.find_nvcc([site]) == in_path
    monkeypatch.undo()
    toolkit = place("home/bin/nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert module.find_nvcc([site]) == toolkit
    given = place("mine/nvcc")
    monkeypatch.setenv("CUDACXX", given)
    assert module.find_nvcc([site]) == given
    monkeypatch.setenv("CUDACXX", str(tmp_path / "absent"))
    assert module.find_nvcc([site]) is None


@pytest.mark.parametrize("missing", WHOLE)
def test_wheels_that_lack_a_part_are_not_used_and_named(place, tmp_path, capsys, missing):
    files = [f"site/nvidia/cu13/{name}" for name in WHOLE if name != missing]
    place("site/nvidia/cu13/bin/nvcc", *files)
    assert module.find_nvcc([tmp_path / "site"]) is None
    assert "cu13/bin/nvcc is not used" in capsys.readouterr().err


def test_the_newest_of_several(place, tmp_path):
    for version in ("cu9", "cu13", "cu101"):
        place(f"site/nvidia/{version}/bin/nvcc")
        place(*[f"site/nvidia/{version}/{name}" for name in WHOLE])
    assert module.find_nvcc([tmp_path / "site"]).endswith("cu101/bin/nvcc")
