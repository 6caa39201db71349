# SPDX-License-Identifier: Apache-2.0
"""Compiles each public C header alone, and the examples in the headers of extensions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "core"
FOLDER = CORE / "include" / "opdock"
HEADERS = sorted(path.name for path in FOLDER.glob("*.h"))
IDS = re.compile(r'#define OPDOCK_\w+_\d+ "opdock\.(\w+)/\d+"')
EXTENSIONS = [name for name in HEADERS if IDS.search((FOLDER / name).read_text())]
# Warnings that a plugin's author may turn on: the headers cause no warnings in C11 and C++17.
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{FOLDER.parent}"]


def compile_all(compiler, options, sources):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    words = [compiler, *FLAGS, *options, *map(str, sources)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def write(path, text):
    path.write_text(text)
    return path


def examples(name):
    """Yields each example of a header: the indented lines of a comment that asks for a table."""
    for comment in re.findall(r"/\*.*?\*/", (FOLDER / name).read_text(), re.DOTALL):
        lines = re.findall(r"^ *\*   (.*)", comment, re.MULTILINE)
        if any("->get_extension(" in line for line in lines):
            yield "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "compiler, standard, suffix",
    [
        ("gcc", "c11", "c"),
        ("clang", "c11", "c"),
        ("g++", "c++17", "cc"),
        ("clang++", "c++17", "cc"),
    ],
)
def test_each_header_compiles_alone(compiler, standard, suffix, tmp_path):
    # Twice, because it may be included twice.
    sources = [
        write(tmp_path / f"{name}.{suffix}", 2 * f"#include <opdock/{name}>\n") for name in HEADERS
    ]
    compile_all(compiler, [f"-std={standard}"], sources)


def test_an_extension_is_in_the_header_of_its_name():
    assert {name: set(IDS.findall((FOLDER / name).read_text())) for name in EXTENSIONS} == {
        name: {name.removesuffix(".h")} for name in EXTENSIONS
    }
    host = (CORE / "call" / "host.cc").read_text()
    offered = re.findall(r"strcmp\(id, OPDOCK_(\w+)_\d+\)", host)
    assert sorted(f"{name.lower()}.h" for name in offered) == EXTENSIONS


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("name", ["formula.hpp", "opdock.hpp"])
def test_the_example_of_a_program_in_cxx_compiles(compiler, name, tmp_path):
    head = (FOLDER / name).read_text().partition("#ifndef")[0]
    lines = re.findall(r"^//   (.*)", head, re.MULTILINE)
    assert lines
    text = f"#include <opdock/{name}>\n#include <cstdio>\nvoid example() {{\n"
    source = write(tmp_path / "example.cc", text + "\n".join(lines) + "\n}\n")
    compile_all(compiler, ["-std=c++17", "-Wno-unused-variable"], [source])


def test_the_header_for_ops_has_the_usual_names(tmp_path):
    """It includes what an op's host part needs, and an op's own names stay free."""
    text = """#include <opdock/op.hpp>
namespace my_op {
using namespace opdock::usual;
struct Params { float scale; };
struct Row { int first; };
void plan(Plan& plan, Tensor x, OptionalTensor bias) {
  if (bias) check(*bias, "bias").dtype(dtype_of<float>());
  opdock::make_elements<1>({x}, 1, {});
  plan.output(x.like());
}
void run(Call& call, Results results, Tensor x, OptionalTensor) {
  if (results[0].ndim() != x.ndim()) throw Error(OPDOCK_INTERNAL, concat("found ", x.ndim()));
  opdock::for_rows(call, 1, 1, [](int64_t, int64_t) {});
}
}  // namespace my_op
"""
    source = write(tmp_path / "op.cc", text)
    device = f"-I{CORE / 'device'}"
    compile_all("g++", ["-std=c++17", device, "-Wno-unused-result"], [source])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_example_of_each_extension_compiles(compiler, tmp_path):
    sources = []
    for name in EXTENSIONS:
        (example,) = examples(name)
        sources.append(
            write(tmp_path / f"{name}.c", f"#include <opdock/{name}>\n#include <poll.h>\n{example}")
        )
    compile_all(compiler, ["-std=c11", "-Wno-unused-function"], sources)


def test_plugin_h_alone_has_the_extensions_that_it_held(tmp_path):
    """Plugins that include nothing else were written before extensions had headers."""
    held = ["cancel.h", "parallel.h", "retain.h", "tuning.h"]
    text = "#include <opdock/plugin.h>\n#include <poll.h>\n"
    text += "".join(example for name in held for example in examples(name))
    source = write(tmp_path / "plugin.c", text)
    compile_all("gcc", ["-std=c11", "-Wno-unused-function"], [source])


def test_every_header_is_installed():
    listed = re.findall(r"'include/opdock/([\w.]+)'", (CORE / "meson.build").read_text())
    assert sorted(listed) == sorted(path.name for path in FOLDER.iterdir())
