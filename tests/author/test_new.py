# SPDX-License-Identifier: Apache-2.0
"""Tests opdock new: what it writes builds and passes its own test and bench; and what it
refuses."""

import compileall
import json
import os
import shutil
import sys

import pytest
from conftest import run

KINDS = {
    "cpu": ["NAME.cc"],
    "device": ["NAME.cc", "device/NAME.cuh"],
    "nvcc": ["NAME.cc", "NAME.cu", "NAME.h"],
}
COMMON = ["plugin.toml", "meson.build", "reference.py", "test_NAME.py", "bench_NAME.py"]


@pytest.mark.parametrize("kind", KINDS)
def test_files(opdock, tmp_path, kind):
    done = opdock("new", "my_op2", "--kind", kind, "--json")
    assert done.returncode == 0, done.stderr
    wanted = sorted(name.replace("NAME", "my_op2") for name in COMMON + KINDS[kind])
    folder = tmp_path / "my_op2"
    report = json.loads(done.stdout)
    assert report == {"path": str(folder), "kind": kind, "files": wanted}
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert found == wanted
    for file in found:
        assert "opname" not in (folder / file).read_text() and "opname" not in file


def test_what_pip_compiled_is_no_template(prefix, tmp_path):
    """pip compiles every *.py of a wheel, into folders next to them."""
    stage = shutil.copytree(prefix, tmp_path / "prefix", symlinks=True)
    templates = stage / "share" / "opdock" / "templates"
    assert compileall.compile_dir(templates, quiet=1) and list(templates.rglob("__pycache__"))
    library = next(stage.rglob("libopdock.so.0")).parent
    words = [stage / "bin" / "opdock", "new", "mine", "--in", tmp_path / "made", "--json"]
    done = run(*words, LD_LIBRARY_PATH=library)
    assert done.returncode == 0, done.stderr
    wanted = sorted(name.replace("NAME", "mine") for name in COMMON + KINDS["cpu"])
    assert json.loads(done.stdout)["files"] == wanted
    folder = tmp_path / "made" / "mine"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == wanted


def test_the_default_is_cpu_and_the_next_steps_are_told(opdock, tmp_path):
    done = opdock("new", "mine", "--in", "some/where")
    assert done.returncode == 0 and (tmp_path / "some/where/mine/mine.cc").is_file()
    assert "opdock test some/where/mine" in done.stdout


def test_a_folder_may_have_a_name_that_is_not_utf8(opdock, tmp_path):
    folder = os.fsdecode(b"caf\xe9\x1b")
    done = opdock("new", "mine", "--in", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"] == f"{tmp_path}/caf\ufffd\x1b/mine"
    assert (tmp_path / folder / "mine" / "mine.cc").is_file()


def test_control_characters_of_a_folder_do_not_reach_the_terminal(opdock, tmp_path):
    done = opdock("new", "mine", "--in", "a\x1b[31mb")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == r"a\x1b[31mb/mine" and "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "name", ["", "Upper", "1st", "a-b", "a b", "../up", "a/b", "ä", "_x", "x" * 65, "for", "lambda"]
)
def test_bad_names_are_refused(opdock, tmp_path, name):
    done = opdock("new", name)
    assert done.returncode == 2 and done.stderr.startswith("opdock: ") and name in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["folder", "file", "link"])
def test_what_is_there_is_left_alone(opdock, tmp_path, there):
    if there == "folder":
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "mine.cc").write_text("precious")
    elif there == "file":
        (tmp_path / "mine").write_text("precious")
    else:
        (tmp_path / "other").mkdir()
        (tmp_path / "mine").symlink_to("other")
    before = sorted(tmp_path.rglob("*"))
    done = opdock("new", "mine")
    assert done.returncode == 2 and "mine" in done.stderr and "there already" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    if there == "folder":
        assert (tmp_path / "mine" / "mine.cc").read_text() == "precious"


def test_a_folder_that_cannot_be_made(opdock, tmp_path):
    (tmp_path / "file").write_text("")
    done = opdock("new", "mine", "--in", "file/below")
    assert done.returncode == 1 and "file/below" in done.stderr


def test_an_unknown_kind_names_the_known_ones(opdock):
    done = opdock("new", "mine", "--kind", "rust")
    assert done.returncode == 2
    assert all(kind in done.stderr for kind in ("rust", "cpu", "device", "nvcc"))


def test_the_test_and_the_bench_of_one_for_nvcc_pass(built):
    """pytest runs it with the fixtures, as `opdock test` does; the other kinds are run by
    test_commands.py."""
    plugin = built / "made_nvcc.so"
    if not plugin.exists() and shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    folder = built.parents[1] / "plugins" / "made_nvcc"
    options = ["-q", "-p", "opdock.testing", "-p", "no:cacheprovider", "--import-mode=importlib"]
    words = [sys.executable, "-m", "pytest", *options, folder]
    done = run(*words, OPDOCK_PLUGIN_PATH=plugin)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
    done = run(sys.executable, folder / "bench_made_nvcc.py", OPDOCK_PLUGIN_PATH=plugin)
    assert done.returncode == 0, done.stderr
    assert all(line.count(" us") == 2 for line in done.stdout.splitlines())
    assert "made_nvcc 1000000" in done.stdout


FORMULA_TOML = '''name = "silu_mul"
version = "0.1.0"
license = "Apache-2.0"

[[op]]
schema = "silu_mul(Tensor gate, Tensor up) -> Tensor"
doc = """
gate: any shape. up: gate's shape, or one that is broadcast to it.
float32, float16, bfloat16 or float64, any strides.
"""
formula = "gate * sigmoid(gate) * up"
'''


def test_a_formula_needs_no_code(opdock, tmp_path):
    done = opdock("new", "silu_mul", "--formula", "gate*sigmoid(gate) * (up) # fused", "--json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "silu_mul"
    files = ["meson.build", "plugin.toml"]
    assert json.loads(done.stdout) == {"path": str(folder), "kind": "formula", "files": files}
    assert sorted(path.name for path in folder.iterdir()) == files
    assert (folder / "plugin.toml").read_text() == FORMULA_TOML
    assert (folder / "meson.build").read_text() == (
        "opdock_plugins += [{'name': 'silu_mul', 'toml': files('plugin.toml')}]\n"
    )


@pytest.mark.parametrize(
    ("formula", "lines"),
    [
        ("s = sum(x)\nx / s, s", ['formula = """', "s = sum(x)", "return x / s, s"]),
        ("x", ['schema = "mine(Tensor x) -> Tensor"', 'formula = "x"']),
        ("gelu(x, 'tanh')", ['gelu(x, approximate="tanh")']),
        (
            "x & y",
            [
                'dtypes = ["int64", "int32", "int16", "int8", "uint8", "bool"]',
                "int64, int32, int16, int8, uint8 or bool, any strides.",
            ],
        ),
    ],
)
def test_what_is_written_of_a_formula_is_read_again(opdock, tmp_path, formula, lines):
    done = opdock("new", "mine", "--formula", formula)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "mine" / "plugin.toml").read_text()
    assert [line for line in lines if line not in text.splitlines()] == [], text
    shown = opdock("show", "mine", "--json", "--plugin-path", tmp_path)
    assert shown.returncode == 0, shown.stderr
    again = opdock("new", "again", "--formula", json.loads(shown.stdout)["formula"])
    assert again.returncode == 0, again.stderr
    written = (tmp_path / "again" / "plugin.toml").read_text()
    assert written.replace("again", "mine") == text


def test_a_formula_s_next_steps_are_told(opdock):
    done = opdock("new", "mine", "--formula", "x + y", "--in", "made")
    assert done.stdout.splitlines()[-1] == (
        "Next: opdock test made/mine; opdock install made/mine; opdock show mine --kernel"
    )


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        (
            "y = x\nx * sigmid(y)",
            'opdock: new: formula: line 2, column 5: found "sigmid", wanted a function; did you '
            "mean sigmoid?\n    x * sigmid(y)\n        ^\n",
        ),
        (
            "1 + 2",
            "opdock: new: formula: found no tensor among the parameters, wanted at least one\n",
        ),
    ],
)
def test_of_a_faulty_formula_nothing_is_written(opdock, tmp_path, formula, told):
    done = opdock("new", "mine", "--formula", formula)
    assert done.returncode == 2 and done.stderr == told and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_formula_has_no_kind(opdock, tmp_path):
    done = opdock("new", "mine", "--formula", "x", "--kind", "cpu")
    assert done.returncode == 2 and "--formula" in done.stderr and "--kind" in done.stderr
    assert list(tmp_path.iterdir()) == []
