# SPDX-License-Identifier: Apache-2.0
"""Tests plugins with kernels compiled by nvcc and hipcc: what the files contain and need. Oracles
are the flags that nvcc was given, readelf and nm."""

import re
import sys

import pytest
from conftest import BUILD, run, run_well

import opdock


def shipped(name, compiler):
    path = BUILD / "plugins" / f"{name}.so"
    if not path.exists():
        pytest.skip(f"the build found no {compiler}")
    return path


def needed(path):
    return re.findall(r"NEEDED.*\[(.*)\]", run_well("readelf", "-d", path))


def exported(path):
    return [line.split()[-1] for line in run_well("nm", "-D", "--defined-only", path).splitlines()]


def test_the_report_has_the_architectures_that_nvcc_was_given():
    path = shipped("bias_gelu", "nvcc")
    flags = (BUILD / "plugins" / "bias_gelu.nvcc.args").read_text()
    wanted = set(re.findall(r",code=(\w+)", flags))
    report = opdock.inspect(path)
    assert wanted and set(report["cuda_archs"]) == wanted
    assert [device["device"].split(":")[0] for device in report["devices"]][:2] == ["cpu", "cuda"]
    codes = {reason["code"] for reason in report["reasons"]}
    assert codes <= {"no-driver", "no-gpu", "ptx-only", "arch-mismatch"}, codes


def test_the_runtime_is_inside_and_the_entry_alone_is_seen():
    path = shipped("bias_gelu", "nvcc")
    assert not [name for name in needed(path) if "cuda" in name or "nv" in name]
    assert exported(path) == ["opdock_plugin_v0"]


def test_new_plugins_are_made_so_too(built):
    path = built / "made_nvcc.so"
    if not path.exists():
        pytest.skip("no nvcc")
    assert not [name for name in needed(path) if "cuda" in name]
    assert exported(path) == ["opdock_plugin_v0"]
    assert set(opdock.inspect(path)["cuda_archs"]) == {"sm_80", "sm_90"}


def test_the_hip_plugin_names_its_runtime_and_its_architectures():
    path = shipped("bias_gelu_hip", "hipcc")
    assert [name for name in needed(path) if name.startswith("libamdhip64.so")]
    assert exported(path) == ["opdock_plugin_v0"]
    report = opdock.inspect(path)
    assert report["hip_archs"] and all(arch.startswith("gfx") for arch in report["hip_archs"])
    assert [device["device"].split(":")[0] for device in report["devices"]] == ["rocm"]


def test_loading_it_needs_no_driver():
    """Loads it in a process of its own, without a CUDA driver."""
    path = shipped("bias_gelu", "nvcc")
    program = (
        "import ctypes, sys; entry = ctypes.CDLL(sys.argv[1], mode=2).opdock_plugin_v0; "
        "entry.restype = ctypes.c_void_p; print(bool(entry()))"
    )
    assert run_well(sys.executable, "-c", program, path) == "True\n"


def test_both_come_from_one_source():
    """Both variants have one source, so a change cannot reach only one of them."""
    folders = [BUILD / "share/opdock/plugins-src" / name for name in ("bias_gelu", "bias_gelu_hip")]
    for name in ("bias_gelu.cc", "bias_gelu.h", "gpu.h", "reference.py"):
        assert len({(folder / name).resolve() for folder in folders}) == 1
    assert (folders[0] / "bias_gelu.cu").resolve() == (folders[1] / "bias_gelu.hip").resolve()


def test_without_nvcc_the_plugin_is_left_out_with_a_notice(tmp_path, prefix):
    """The documented rule, from an installation: the other plugins are built anyway."""
    project = tmp_path / "project"
    import shutil

    shutil.copytree(prefix / "share/opdock/plugin-build", project)
    for name in ("bias_gelu", "noop"):
        shutil.copytree(prefix / "share/opdock/plugins-src" / name, project / "plugins" / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cc", "c++", "ar", "ld", "as", "python3", "ninja", "sh", "strip"):
        if path := shutil.which(name):
            (tools / name).symlink_to(path)
    done = run(
        *[sys.executable, "-m", "mesonbuild.mesonmain", "setup", tmp_path / "build", project],
        *[f"-Dopdock-pack={prefix}/bin/opdock-pack", f"-Dinclude-dir={prefix}/include"],
        *[f"-Ddevice-dir={prefix}/share/opdock/device", "-Dcuda=disabled"],
        PATH=tools,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bias_gelu is not built: found no nvcc" in done.stdout
    targets = run_well("ninja", "-C", tmp_path / "build", "-t", "targets", "all")
    assert "plugins/noop.so" in targets and "plugins/bias_gelu.so" not in targets
