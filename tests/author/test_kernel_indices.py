# SPDX-License-Identifier: Apache-2.0
"""Tests opdock/kernel_names.hpp: what does not compile, and the compiler's message.
tests/unit/pack/kernel_indices_test.cc tests what compiles."""

import os

import pytest
from conftest import BUILD, SOURCE, run, run_well

TOML = """
name = "rows"
version = "1.0"
license = "Apache-2.0"
sources = ["plugin.toml"]
[[op]]
schema = "rows(Tensor x) -> ()"
doc = "x"
devices = ["cuda"]
dtypes = ["float32"]
[device]
sources = ["plugin.toml"]
kernels = ["rows<{float, opdock::half}, {1, 4}>", "rows<float, 8>", "plain"]
"""
TYPES = "opdock::KernelTypes<float, opdock::half>"
NUMBERS = "opdock::KernelNumbers<1, 4, 8>"


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "plugin.toml").write_text(TOML)
    pack = BUILD / "core" / "pack" / "opdock-pack"
    run_well(pack, "--toml", folder / "plugin.toml", "--ops-header", folder / "rows.ops.h")
    return folder / "rows.ops.h"


def compiled(folder, text, *options):
    """Compiles a function's body; returns the compiler's finished process."""
    source = folder / "body.cc"
    source.write_text(
        '#include "opdock/kernel_names.hpp"\nuint32_t f() {\n  return ' + text + ";\n}\n"
    )
    compiler = os.environ.get("CXX", "c++").split()
    words = ["-std=c++17", "-fsyntax-only", f"-I{SOURCE / 'core/include'}", *options, source]
    return run(*compiler, *words)


GOOD = [
    'OPDOCK_KERNEL_INDEX("plain")',
    'OPDOCK_KERNEL_INDEX("rows<opdock::half, 4>")',
    f'OPDOCK_KERNEL_FAMILY("rows", {TYPES}, {NUMBERS})(opdock::dtype_of<float>(), 8)',
]


@pytest.mark.parametrize("text", GOOD)
def test_what_is_listed_compiles(header, tmp_path, text):
    done = compiled(tmp_path, text, f'-DOPDOCK_OPS_H="{header}"')
    assert done.returncode == 0, done.stderr


BAD = {
    'OPDOCK_KERNEL_INDEX("plan")': "plugin.toml lists no kernel plan",
    'OPDOCK_KERNEL_INDEX("rows<opdock::half, 8>")': "lists no kernel rows<opdock::half, 8>",
    'OPDOCK_KERNEL_INDEX("rows<{float, opdock::half}, {1, 4}>")': "lists no kernel rows<{float",
    # A kernel that the family leaves out; arguments that no kernel has; a family that does not
    # exist.
    f'OPDOCK_KERNEL_FAMILY("rows", {TYPES}, opdock::KernelNumbers<1, 4>)'
    "(opdock::dtype_of<float>(), 1)": "lists a kernel rows<...> with other template arguments than",
    f'OPDOCK_KERNEL_FAMILY("rows", opdock::KernelTypes<float>, {NUMBERS})'
    "(opdock::dtype_of<float>(), 1)": "lists a kernel rows<...> with other template arguments than",
    f'OPDOCK_KERNEL_FAMILY("rows", {TYPES}, opdock::KernelNumbers<1, 4, 8, 16>)'
    "(opdock::dtype_of<float>(), 1)": "lists no kernel rows<...> with one of the template",
    f'OPDOCK_KERNEL_FAMILY("row", {TYPES})'
    "(opdock::dtype_of<float>())": "lists no kernel row<...> with one of the template",
    # There are too few values.
    f'OPDOCK_KERNEL_FAMILY("rows", {TYPES}, {NUMBERS})'
    "(opdock::dtype_of<float>())": "a value for each template argument",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_listed_does_not_compile(header, tmp_path, text):
    done = compiled(tmp_path, text, f'-DOPDOCK_OPS_H="{header}"')
    assert done.returncode != 0
    assert BAD[text] in done.stderr.replace('\\"', '"'), done.stderr


@pytest.mark.parametrize("text", GOOD)
def test_without_the_generated_header_the_compiler_says_how_to_make_it(tmp_path, text):
    done = compiled(tmp_path, text)
    assert done.returncode != 0 and "opdock-pack --ops-header" in done.stderr, done.stderr
