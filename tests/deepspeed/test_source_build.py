# SPDX-License-Identifier: Apache-2.0
"""Tests builders with sources of their own, built by Opdock: cached, locked, and safe from
crashes."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import run_python, warm_python

import opdock

# A module without pybind11, which compiles in half a second.
MODULE = """
#include <Python.h>
#include "value.h"
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)
static PyModuleDef module = {PyModuleDef_HEAD_INIT, TEXT(TORCH_EXTENSION_NAME), nullptr, -1};
PyMODINIT_FUNC JOIN(PyInit_, TORCH_EXTENSION_NAME)(void) {
  PyObject* made = PyModule_Create(&module);
  PyModule_AddIntConstant(made, "value", VALUE + EXTRA);
  return made;
}
"""
BUILDER = """
from opdock.compat.deepspeed import CUDAOpBuilder, OpBuilder

class ValueBuilder(OpBuilder):
    BUILD_VAR = "DS_BUILD_VALUE"
    NAME = "value_op"
    def __init__(self):
        super().__init__(name=self.NAME)
    def absolute_name(self):
        return "no_such_package.value_op"
    def sources(self):
        return ["csrc/value.cpp"]
    def include_paths(self):
        return ["csrc/includes"]
    def cxx_args(self):
        return ["-O1", "-DEXTRA=100"]
"""


@pytest.fixture
def folder(tmp_path):
    """Returns a folder with a builder in value_builder.py, and its sources."""
    (tmp_path / "csrc" / "includes").mkdir(parents=True)
    (tmp_path / "csrc" / "value.cpp").write_text(MODULE)
    (tmp_path / "csrc" / "includes" / "value.h").write_text("#define VALUE 1\n")
    (tmp_path / "value_builder.py").write_text(BUILDER)
    return tmp_path


@pytest.fixture
def cache(tmp_path):
    """Returns the variables of a fresh cache, below a folder that nobody else can write."""
    place = tmp_path / "cache"
    place.mkdir(mode=0o700)
    return {"OPDOCK_CACHE_DIR": str(place)}


def python_path(folder):
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


LOAD = """
    import torch, value_builder
    module = value_builder.ValueBuilder().load(verbose=True)
    print(module.value, module.__file__)
"""


def load(folder, check=True, **environment):
    """Loads the module in a new process; returns (the module's value, its file)."""
    done = run_python(LOAD, check=check, PYTHONPATH=python_path(folder), **environment)
    value, path = done.stdout.split()
    return int(value), path


def test_built_once_and_again_when_a_header_changes(folder, cache):
    first = load(folder, **cache)
    assert first[0] == 101
    os.utime(folder / "csrc" / "value.cpp")  # modification times do not count
    assert load(folder, **cache) == first
    (folder / "csrc" / "includes" / "value.h").write_text("#define VALUE 2\n")
    second = load(folder, **cache)
    assert second[0] == 102 and second[1] != first[1]
    text = (folder / "value_builder.py").read_text()
    (folder / "value_builder.py").write_text(text.replace("EXTRA=100", "EXTRA=200"))
    assert load(folder, **cache)[0] == 202


def test_what_others_have_written_or_cut_is_not_loaded(folder, cache, tmp_path):
    """Between its build and its import the file is checked as a plugin is before it is loaded."""
    _, path = load(folder, **cache)
    code = """
        import os, sys, torch, opdock
        from opdock.compat.deepspeed._build import Built, load
        path, whole = sys.argv[1], open(sys.argv[1], "rb").read()
        def refused():
            try:
                load(Built(path, "value_op", {}))
            except opdock.IncompatibleError as error:
                return error.reasons[0]["code"]
        assert refused() is None
        os.chmod(path, 0o777)
        print(refused())
        os.chmod(path, 0o755)
        with open(path + "2", "wb") as file:
            file.write(whole[: len(whole) // 2])
        path += "2"
        print(refused())
    """
    copy = tmp_path / "value_op.so"
    shutil.copyfile(path, copy)
    done = run_python(code, copy)
    assert done.stdout.split() == ["untrusted-writable", "elf-truncated"]


def test_no_file_beside_the_sources_and_none_left_behind(folder, cache, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    before = sorted(folder.rglob("csrc/**"))
    load(folder, TMPDIR=str(temporary), **cache)
    assert sorted(folder.rglob("csrc/**")) == before
    assert list(temporary.iterdir()) == []


def test_without_a_compiler_what_was_built_is_loaded(folder, cache, tmp_path):
    """DeepSpeed#3011: one environment on nodes with different tools."""
    first = load(folder, **cache)
    bare = tmp_path / "bare"
    bare.mkdir()
    hidden = {"PATH": str(bare), "VIRTUAL_ENV": "", "CONDA_PREFIX": "", **cache}
    assert load(folder, **hidden) == first


def compiler(folder, lines):
    """Makes a C++ compiler that first runs the given shell lines."""
    path = folder / "mycxx"
    real = shutil.which("c++") or shutil.which("g++") or pytest.skip("no C++ compiler in PATH")
    path.write_text(f'#!/bin/sh\n{textwrap.dedent(lines)}\nexec {real} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_after_sigkill_nobody_waits(folder, cache):
    """pytorch#189245: a lock file that stays makes every later load hang."""
    wait, begun = folder / "wait", folder / "begun"
    wait.touch()
    cxx = compiler(
        folder,
        f"""
        case "$*" in *value.cpp*)
          if [ -e {wait} ]; then echo $$ > {begun}.tmp; mv {begun}.tmp {begun}; sleep 600; fi ;;
        esac""",
    )
    environment = {**os.environ, **cache, "CXX": cxx, "PYTHONPATH": python_path(folder)}
    killed = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LOAD)], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not begun.exists():
            assert killed.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    wait.unlink()
    begin = time.monotonic()
    assert load(folder, CXX=cxx, **cache)[0] == 101
    assert time.monotonic() - begin < 100
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{begun.read_text().strip()}"):  # the compiler has ended too
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ranks_that_ask_together_build_once(folder, cache):
    """DeepSpeed#4889: two ranks raced."""
    log = folder / "log"
    cxx = compiler(folder, f'case "$*" in *-c*value.cpp*) echo built >> {log} ;; esac')
    environment = {**os.environ, **cache, "CXX": cxx, "PYTHONPATH": python_path(folder)}
    command = [warm_python(), "-c", textwrap.dedent(LOAD)]
    ranks = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    found = {rank.communicate(timeout=300)[0] for rank in ranks}
    assert [rank.returncode for rank in ranks] == [0] * 4
    assert len(found) == 1 and log.read_text() == "built\n"


def test_a_compilers_error_names_the_users_own_file(folder, cache):
    (folder / "csrc" / "value.cpp").write_text("#error this is wrong\n" + MODULE)
    code = """
        import opdock, time, torch, value_builder
        for _ in range(2):
            begin = time.monotonic()
            try:
                value_builder.ValueBuilder().load()
            except opdock.IncompatibleError as error:
                print(str(error).replace("\\n", " "), [r["code"] for r in error.reasons])
    """
    done = run_python(code, PYTHONPATH=python_path(folder), **cache)
    first, second = done.stdout.splitlines()
    source = str(folder / "csrc" / "value.cpp")
    assert source + ":1" in first and "this is wrong" in first and "build.log" not in first[:20]
    assert "build-remembered" in second and source + ":1" in second


def test_files_that_are_missing_are_named(folder, capfd, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "value_builder", raising=False)
    import value_builder

    (folder / "csrc" / "value.cpp").unlink()
    builder = value_builder.ValueBuilder()
    assert builder.is_compatible(verbose=True) is False
    missing = str(folder / "csrc" / "value.cpp")
    assert missing in builder.error_log and missing in capfd.readouterr().err
    with pytest.raises(opdock.IncompatibleError, match="value.cpp"):
        builder.load()


def test_a_subclass_that_says_no_is_asked(compat):
    class No(compat.OpBuilder):
        def absolute_name(self):
            return "no.such"

        def sources(self):
            return []

        def is_compatible(self, verbose=False):
            self.error_log = "it lacks a fish"
            return False

    with pytest.raises(RuntimeError, match="lacks a fish"):
        No("fishy").load()


# A module as DeepSpeed's users write them, and one that uses pybind11 and a function of libtorch
# alone, which compiles in a fifth of the time. All headers must be found for both.
SCALE = {
    "torch": """
#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor scale(const at::Tensor& x, double by) { return x * by; }
""",
    "pybind11": """
#include <pybind11/pybind11.h>
extern "C" int32_t aoti_torch_device_type_cpu();
pybind11::object scale(pybind11::object x, double by) {
  return aoti_torch_device_type_cpu() == 0 ? x * pybind11::float_(by) : pybind11::none();
}
""",
}
END_OF_SCALE = """
#if !__has_include(<ATen/ATen.h>) || !__has_include(<torch/csrc/utils/pybind.h>) || \\
    !__has_include(<torch/extension.h>) || !__has_include(<torch/all.h>)
#error a folder of torch's headers is missing
#endif
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
"""


@pytest.mark.parametrize("headers", SCALE if "OPDOCK_TEST_NIGHTLY" in os.environ else ["pybind11"])
def test_pybind11_and_torch(compat, tmp_path, headers):
    import torch

    source = tmp_path / "scale.cpp"
    source.write_text(SCALE[headers] + END_OF_SCALE)

    class Scale(compat.CUDAOpBuilder):
        def absolute_name(self):
            return "no_such_package.scale_op"

        def sources(self):
            return [str(source)]

        def include_paths(self):
            return []

        def cxx_args(self):
            return ["-O0", *self.version_dependent_macros()]

    module = Scale("scale_op").load()
    assert module.__name__ == "scale_op"
    assert module.scale(torch.ones(3), 2.5).tolist() == [2.5] * 3


def recipe_of(compat, folder, **methods):
    from opdock.compat.deepspeed._recipe import recipe

    members = {"absolute_name": lambda self: "a.b", "sources": lambda self: [str(folder)]}
    members |= {name: (lambda self, words=words: words) for name, words in methods.items()}
    return recipe(type("Mine", (compat.OpBuilder,), members)("my-op"))


def test_arguments_go_where_they_belong(compat, folder, monkeypatch):
    """DeepSpeed's own builders name libraries among the compiler's arguments."""
    monkeypatch.setenv("CFLAGS", "-DFROM='a b'")
    monkeypatch.setenv("LDFLAGS", "-L/from/ldflags")
    made = recipe_of(
        compat,
        folder / "csrc" / "value.cpp",
        cxx_args=["", "-O3", "-L/x", "-lcurand", "-fopenmp", "-D", "A=1", "-fPIC", "-Wl,-z,now"],
        libraries_args=["m"],
        extra_ldflags=["-laio", ""],
    )
    assert made.name == made.module == "my_op"
    assert made.cxx[-5:] == ["-O3", "-fopenmp", "-DA=1", "-DFROM=a b", "-UC10_USE_GLOG"]
    for word in ("-L/x", "-lcurand", "-fopenmp", "-Wl,-z,now", "-lm", "-laio", "-L/from/ldflags"):
        assert word in made.link
    assert "-lcurand" not in made.cxx and "-fPIC" not in made.cxx


def test_a_build_for_this_processor_is_for_its_kind_only(compat, folder):
    """openfold#207: Illegal instruction on a cluster with several kinds of processors."""
    plain = recipe_of(compat, folder / "csrc" / "value.cpp")
    native = recipe_of(compat, folder / "csrc" / "value.cpp", cxx_args=["-march=native"])
    assert "processor" not in plain.made_for and "processor" in native.made_for
    assert "torch" in plain.made_for and "cpython" in plain.made_for


def test_jobs_and_ignored_variables(monkeypatch, said):
    from opdock.compat.deepspeed import _build, _environment

    monkeypatch.setenv("MAX_JOBS", "3")
    assert _build._options(["9.0a", "8.0"]) == '{"cuda_archs": "9.0a;8.0", "jobs": 3}'
    monkeypatch.setenv("MAX_JOBS", "many")
    assert _build._options([]) == "{}"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/tmp/torch_extensions")
    _environment.say_ignored()
    _environment.say_ignored()
    assert len([line for line in said if "TORCH_EXTENSIONS_DIR" in line]) == 1
    assert any("MAX_JOBS=many" in line for line in said)
