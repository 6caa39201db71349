# SPDX-License-Identifier: Apache-2.0
"""Tests builder(): setuptools Extensions, built ahead of time by Opdock's BuildExtension."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import run_python, warm_python
from test_source_build import BUILDER, MODULE, python_path

pytest.importorskip("setuptools", reason="setuptools is not installed")

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
SETUP = """
from setuptools import Extension, setup
import value_builder
from opdock.compat.deepspeed import BuildExtension, FusedAdamBuilder

class Value(value_builder.ValueBuilder):
    def absolute_name(self):
        return "mine.ops.value_op"

plain = Extension("mine.plain", ["plain.c"])
setup(
    name="mine", version="1", packages=["mine", "mine.ops"],
    ext_modules=[Value().builder(), FusedAdamBuilder().builder(), plain],
    cmdclass={"build_ext": BuildExtension},
)
"""
SETUP_OF_ONE = """
from setuptools import setup
from opdock.compat.deepspeed import BuildExtension, CPUAdamBuilder

setup(name="one", ext_modules=[CPUAdamBuilder().builder()], cmdclass={"build_ext": BuildExtension})
"""
PLAIN = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "plain", NULL, -1};
PyMODINIT_FUNC PyInit_plain(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "csrc" / "includes").mkdir(parents=True)
    (tmp_path / "csrc" / "value.cpp").write_text(MODULE)
    (tmp_path / "csrc" / "includes" / "value.h").write_text("#define VALUE 1\n")
    (tmp_path / "value_builder.py").write_text(BUILDER)
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "plain.c").write_text(PLAIN)
    for package in ("mine", "mine/ops"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def build(project, check=True):
    done = subprocess.run(
        [warm_python(), "setup.py", "build_ext", "--build-lib", "out", "--build-temp", "temp"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": python_path(project)},
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_each_kind_of_extension_is_installed(project):
    build(project)
    out = project / "out"
    (out / "mine" / "__init__.py").touch()
    (out / "mine" / "ops" / "__init__.py").touch()
    module = out / "deepspeed" / "ops" / "adam" / "fused_adam_op.py"
    assert module.is_file()
    code = f"""
        import sys, torch
        sys.path.insert(0, {str(out)!r})
        import mine.ops.value_op, mine.plain
        assert mine.ops.value_op.value == 101
        assert mine.ops.value_op.__file__.startswith({str(out)!r})
        import importlib.util
        spec = importlib.util.spec_from_file_location("fused_adam_op", {str(module)!r})
        made = importlib.util.module_from_spec(spec)
        sys.modules["fused_adam_op"] = made
        spec.loader.exec_module(made)
        import fused_adam_op
        from opdock.compat.deepspeed import fused_adam
        assert fused_adam_op is fused_adam
        # And the builder finds what was installed: nothing is built.
        import value_builder
        class Value(value_builder.ValueBuilder):
            def absolute_name(self):
                return "mine.ops.value_op"
            def jit_load(self, verbose=True):
                raise AssertionError("built again")
        assert Value().load() is mine.ops.value_op
    """
    run_python(code, PYTHONPATH=python_path(project))


# The ops of the plugin adam for the CPU alone, in C: this compiles in a second, the plugin in ten.
STUB = """
#include <opdock/plugin.h>
#define OP(name) \\
  opdock_status opdock_##name##_plan(const opdock_call *call, const opdock_value *args, \\
                                     uint32_t num_args, opdock_plan *plan) { \\
    return (void)call, (void)args, (void)num_args, (void)plan, OPDOCK_OK; \\
  } \\
  opdock_status opdock_##name##_run(const opdock_call *call, const opdock_value *args, \\
                                    uint32_t num_args, opdock_value *results, \\
                                    uint32_t num_results) { \\
    (void)call, (void)args, (void)num_args, (void)results, (void)num_results; \\
    return OPDOCK_OK; \\
  }
OP(adagrad_)
OP(adam_)
OP(adamw_)
OP(lamb_)
OP(lion_)
"""


def simplify(folder):
    """Replaces the code of the plugin adam by the stub, and leaves its declaration."""
    (folder / "adam.c").write_text(STUB)
    toml = (folder / "plugin.toml").read_text().partition("[device]")[0]
    toml = re.sub(r"^sources = .*$", 'sources = ["adam.c"]', toml, flags=re.MULTILINE)
    (folder / "plugin.toml").write_text(toml.replace('["cpu", "cuda", "rocm"]', '["cpu"]'))
    (folder / "meson.build").write_text(
        "opdock_plugins += [{'name': 'adam', 'toml': files('plugin.toml'), "
        "'sources': files('adam.c')}]\n"
    )


@pytest.fixture
def source(project, monkeypatch):
    """Puts the plugin's source where a user has plugins; no other plugin and no earlier build is
    found."""
    monkeypatch.delenv("OPDOCK_PLUGIN_PATH", raising=False)
    (project / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("OPDOCK_CACHE_DIR", str(project / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(project / "data"))
    (project / "setup.py").write_text(SETUP_OF_ONE)
    folder = project / "data" / "opdock" / "plugins" / "adam"
    shutil.copytree(PLUGINS / "adam", folder)
    return folder


@pytest.mark.parametrize(
    "code", ["stub", "own"] if "OPDOCK_TEST_NIGHTLY" in os.environ else ["stub"]
)
def test_the_plugin_behind_an_op_is_built_and_nothing_installed_beside(project, source, code):
    """The build goes into the cache, once; the user's folder of plugins is unchanged."""
    if code == "stub":
        simplify(source)
    before = sorted((project / "data").rglob("*"))
    assert "cpu_adam: its plugin was built: " in build(project).stderr
    assert (project / "out" / "deepspeed" / "ops" / "adam" / "cpu_adam_op.py").is_file()
    assert "its plugin was built" not in build(project).stderr
    assert sorted((project / "data").rglob("*")) == before


def test_an_op_whose_plugin_cannot_be_built_fails_the_installation(project, source):
    simplify(source)
    (source / "adam.c").write_text("#error this is wrong\n")
    done = build(project, check=False)
    assert done.returncode != 0 and "IncompatibleError: cpu_adam" in done.stderr, done.stderr
    assert "this is wrong" in done.stderr.partition("IncompatibleError: cpu_adam")[2], done.stderr
    assert not source.with_suffix(".so").exists()


def test_an_extension_that_cannot_be_built_fails_the_installation(project):
    """DeepSpeed#1124: an installation succeeded with nothing installed."""
    (project / "csrc" / "value.cpp").write_text("#error this is wrong\n")
    done = build(project, check=False)
    assert done.returncode != 0 and "this is wrong" in done.stderr
    assert str(project / "csrc" / "value.cpp") + ":1" in done.stderr


def test_ops_that_the_variables_ask_for(compat, monkeypatch):
    for name in ("DS_BUILD_OPS", "DS_BUILD_FUSED_ADAM", "DS_BUILD_GDS"):
        monkeypatch.delenv(name, raising=False)
    adam, gds = compat.FusedAdamBuilder(), compat.GDSBuilder()
    monkeypatch.setattr(gds, "is_compatible", lambda verbose=False: False)
    gds.error_log = "gds: found no fish"
    assert compat.wanted_extensions([adam, gds]) == []
    monkeypatch.setenv("DS_BUILD_FUSED_ADAM", "1")
    (found,) = compat.wanted_extensions([adam, gds])
    assert found.name == "deepspeed.ops.adam.fused_adam_op" and found.op_builder is adam
    monkeypatch.setenv("DS_BUILD_OPS", "1")
    with pytest.raises(RuntimeError, match="gds.*no fish.*DS_BUILD_GDS=0"):
        compat.wanted_extensions([adam, gds])
    monkeypatch.setenv("DS_BUILD_GDS", "0")
    assert len(compat.wanted_extensions([adam, gds])) == 1


def test_ops_without_a_plugin_have_deepspeeds_extension(compat, monkeypatch):
    class Theirs:
        def builder(self):
            return "their extension"

    monkeypatch.setattr("opdock.compat.deepspeed._served.own_builder", lambda kind, name: Theirs())
    assert compat.GDSBuilder().builder() == "their extension"
    assert isinstance(compat.FusedAdamBuilder().builder(), compat.OpdockExtension)
