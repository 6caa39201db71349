# SPDX-License-Identifier: Apache-2.0
"""Tests builders with .cu files: nvcc's images and, translated, hipcc's. No GPU is needed."""

import pytest

import opdock

KERNEL = """
#include <cuda_runtime.h>
#include "launch.h"
__global__ void add_one(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
int launch(float* x, int n) {
  add_one<<<(n + 255) / 256, 256>>>(x, n);
  return static_cast<int>(cudaGetLastError());
}
"""
MODULE = """
#include <Python.h>
#include "launch.h"
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "gpu", nullptr, -1};
PyMODINIT_FUNC JOIN(PyInit_, TORCH_EXTENSION_NAME)() {
  PyObject* made = PyModule_Create(&module);
  PyModule_AddIntConstant(made, "has_launch", launch != nullptr);
  return made;
}
"""


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "kernel.cu").write_text(KERNEL)
    (tmp_path / "module.cpp").write_text(MODULE)
    (tmp_path / "launch.h").write_text("#pragma once\nint launch(float* x, int n);\n")
    return tmp_path


def builder(base, folder, rocm):
    class Add(base):
        def absolute_name(self):
            return "no_such_package.add_op"

        def sources(self):
            return [str(folder / "module.cpp"), str(folder / "kernel.cu")]

        def include_paths(self):
            return [str(folder)]

        @staticmethod
        def is_rocm_pytorch():
            return rocm

    return Add("add_op")


def needs_way(name):
    for way in opdock.doctor()["ways"]:
        if way["name"] == name and way["verdict"] == "not ready":
            pytest.skip(f"{name}: {way['needs'] or way['reasons'][0]['text']}")


def architectures(module):
    report = opdock.inspect(module.__file__)
    return report["verdict"], {(image["arch"], image["kind"]) for image in report["images"]}


def test_nvcc_for_90a(compat, sources, monkeypatch):
    """DeepSpeed's builder fails with TORCH_CUDA_ARCH_LIST=9.0a."""
    needs_way("building with nvcc")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a 8.0+PTX")
    monkeypatch.setenv("DS_SKIP_CUDA_CHECK", "1")
    module = builder(compat.CUDAOpBuilder, sources, False).load()
    assert module.has_launch == 1
    verdict, found = architectures(module)
    wanted = {("sm_80", "cubin"), ("compute_80", "ptx"), ("sm_90a", "cubin")}
    assert verdict == "usable" and found == wanted


def test_a_torch_without_cuda_is_said_before_anything_is_compiled(compat, sources, monkeypatch):
    import torch

    needs_way("building with nvcc")
    monkeypatch.setattr(torch.version, "cuda", None)
    made = builder(compat.CUDAOpBuilder, sources, False)
    assert made.is_compatible() is False
    assert "found a torch without CUDA" in made.error_log


def test_hipcc_on_a_translation(compat, sources, monkeypatch):
    needs_way("building with hipcc")
    pytest.importorskip(
        "torch.utils.hipify.hipify_python", reason="this torch has no hipify, which translates"
    )
    before = {path.name: path.read_bytes() for path in sources.iterdir()}
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "gfx90a")
    module = builder(compat.CUDAOpBuilder, sources, True).load()
    assert module.has_launch == 1
    assert architectures(module) == ("usable", {("gfx90a", "code-object")})
    assert {path.name: path.read_bytes() for path in sources.iterdir()} == before


def test_hipify_extension_translates_copies(compat, sources, tmp_path, monkeypatch):
    """DeepSpeed's translates in place. A torch for CUDA, and a served op, have nothing to do."""
    programs, project = tmp_path / "programs", tmp_path / "project"
    for folder in (programs, project):
        folder.mkdir()
    (programs / "hipify-perl").write_text('#!/bin/sh\nsed s/cuda/hip/g "$1"\n')
    (programs / "hipify-perl").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.chdir(project)
    before = {path.name: path.read_bytes() for path in sources.iterdir() if path.is_file()}
    assert builder(compat.CUDAOpBuilder, sources, False).hipify_extension() == {}
    assert not any(project.iterdir())
    made = builder(compat.CUDAOpBuilder, sources, True).hipify_extension()
    assert list(made) == [str(sources / name) for name in ("module.cpp", "kernel.cu")]
    for path in made.values():
        assert path.startswith(str(project / "build" / "hipify" / "add_op")), path
    with open(made[str(sources / "kernel.cu")]) as file:
        assert file.name.endswith("kernel.hip") and "hipGetLastError" in file.read()
    after = {path.name: path.read_bytes() for path in sources.iterdir() if path.is_file()}
    assert after == before
    monkeypatch.setattr(compat.FusedAdamBuilder, "is_rocm_pytorch", staticmethod(lambda: True))
    assert compat.FusedAdamBuilder().hipify_extension() == {}
    with pytest.raises(opdock.NotFoundError, match="no_such"):
        builder(compat.CUDAOpBuilder, sources / "no_such", True).hipify_extension()


def test_hipify_perl_is_preferred(sources, tmp_path, monkeypatch):
    from opdock.compat.deepspeed._hipify import translate

    programs = tmp_path / "programs"
    programs.mkdir()
    perl = programs / "hipify-perl"
    perl.write_text('#!/bin/sh\nsed s/cuda/hip/g "$1"\n')
    perl.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    names = ["kernel.cu", "launch.h", "notes.txt"]
    (sources / "notes.txt").write_text("cuda\n")
    made = translate(str(sources), names, [])
    assert made == {"kernel.cu": "kernel.hip", "launch.h": "launch.h", "notes.txt": "notes.txt"}
    assert "hipGetLastError" in (sources / "kernel.hip").read_text()
    assert (sources / "notes.txt").read_text() == "cuda\n"
