# SPDX-License-Identifier: Apache-2.0
"""Tests the messages on typical mistakes of authors: errors in plugin.toml before anything is
compiled, and code that does not match its declarations, by the compiler or the linker."""

import json
import os
import re
import shutil
import sys

import pytest
from conftest import BUILD, SOURCE, needs_private_build, run


@pytest.fixture
def mine(opdock, tmp_path):
    """Returns mine(file, before, after, …), which makes a new plugin with each text replaced by the
    next one."""
    needs_private_build()
    assert opdock("new", "mine").returncode == 0
    folder = tmp_path / "mine"

    def break_it(*edits):
        for file, before, after in zip(*[iter(edits)] * 3, strict=True):
            text = (folder / file).read_text()
            assert before in text, (file, before)
            (folder / file).write_text(text.replace(before, after))
        return folder

    return break_it


@pytest.fixture
def no_compilers(tmp_path):
    """Sets a PATH with only the shell, so that a build that started would report missing tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sh").symlink_to(shutil.which("sh"))
    return tools


FOUR = [
    *("plugin.toml", '"0.1.0"', '"0.1.0-rc1"'),
    *("plugin.toml", "Tensor x", "tensor x"),
    *("plugin.toml", '"bfloat16"', '"fp16"'),
    *("plugin.toml", "deterministic", "determinstic"),
]
PLACES = ["2:11", "8:16", "12:33", "13:25"]


def test_each_mistake_in_the_declaration_is_a_line_with_its_place(opdock, mine, no_compilers):
    folder = mine(*FOUR)
    done = opdock("build", "mine", PATH=no_compilers)
    assert done.returncode == 1 and done.stderr == ""
    title, head, *lines, advice = done.stdout.splitlines()
    assert (title, head) == (f"{folder} could not be built", "manifest-invalid:")
    assert [line.split(": ")[0] for line in lines] == [
        f"  {folder}/plugin.toml:{p}" for p in PLACES
    ]
    assert advice.startswith("  -> correct the line")
    assert '"version": "0.1.0-rc1", wanted dotted numbers' in lines[0]
    assert "'tensor' at position 5" in lines[1] and "wanted a type" in lines[1]
    assert lines[1].endswith("(did you mean Tensor?)")
    assert '"fp16", wanted names such as' in lines[2]
    assert lines[2].endswith('(did you mean "float16"?)')
    assert lines[3].endswith('(did you mean "deterministic"?)')
    report = json.loads(opdock("build", "--json", "mine", PATH=no_compilers).stdout)
    assert [reason["code"] for reason in report["reasons"]] == ["manifest-invalid"] * 4
    assert report["path"] is None and report["outcome"] == "failed"


def test_opdock_test_says_the_same(opdock, mine):
    mine(*FOUR)
    told = opdock("build", "mine").stdout
    done = opdock("test", "mine")
    assert done.returncode == 1 and done.stderr == told


def test_a_build_on_demand_says_the_same(opdock, mine, tmp_path):
    """The op's name is known, because its shape rules are read after its schema."""
    mine("plugin.toml", "like x", "like z")
    program = "import opdock; opdock.load('mine')"
    done = run(sys.executable, "-c", program, OPDOCK_PLUGIN_PATH=tmp_path, OPDOCK_FALLBACK="error")
    assert done.returncode == 1 and "manifest-invalid" in done.stderr, done.stderr
    assert f'{tmp_path}/mine/plugin.toml:10:10: op "mine"' in done.stderr


def test_a_meson_build_says_it_before_it_compiles(mine, tmp_path):
    folder = mine(*FOUR)
    project = tmp_path / "project"
    shutil.copytree(SOURCE / "core/pack/plugin-build", project)
    (project / "plugins").mkdir()
    for name in ("meson.build", "opdock-plugin.map"):
        shutil.copy(SOURCE / "plugins" / name, project / "plugins")
    shutil.copytree(folder, project / "plugins" / "mine")
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    options = [f"-Dopdock-pack={BUILD}/core/pack/opdock-pack"]
    options += [f"-Dinclude-dir={SOURCE}/core/include", f"-Ddevice-dir={SOURCE}/core/device"]
    done = run(*meson, "setup", tmp_path / "build", project, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(*meson, "compile", "-C", tmp_path / "build")
    assert done.returncode != 0 and "Compiling" not in done.stdout, done.stdout
    toml = "../project/plugins/mine/plugin.toml"
    assert re.findall(rf"^{toml}:(\S+): error: ", done.stdout, re.MULTILINE) == PLACES


PLAN = "static void plan(Plan& plan, Tensor x, double) {"
RUN = "static void run(Call& call, Results out, Tensor x, double a) {"
TWO_OPS = """
[[op]]
schema = "shift(Tensor x) -> Tensor"
doc = "x"
shape = ["like x"]
devices = ["cpu"]
dtypes = ["float32"]
"""
# For each mistake: the replacements, and the `found` and `wanted` of the reason. Each is compiled;
# what grows a schema is found as another type is, so that it is left to --nightly.
CODE = {
    "a parameter of another type": (
        ["mine.cc", PLAN, PLAN.replace("double", "int64_t")],
        ['op "mine": the parameters of plan', "{folder}/plugin.toml:8", "long", "mine.cc:22:1"],
        "void plan(Plan&, Tensor x, double a)",
    ),
    "a schema that has grown": (
        ["plugin.toml", "Tensor x, *", "Tensor x, Tensor? y, *"],
        ['op "mine": the parameters of plan', "Tensor? y"],
        "void plan(Plan&, Tensor x, std::optional<Tensor> y, double a)",
    ),
    "parameters in another order": (
        [
            "mine.cc",
            "Call& call, Results out, Tensor x, double a",
            "Call& call, Results out, double a, Tensor x",
        ],
        ['op "mine": the parameters of run'],
        "void run(Call&, Results, Tensor x, double a)",
    ),
    "a name that is misspelt": (
        ["mine.cc", "OPDOCK_OP(mine,", "OPDOCK_OP(mien,"],
        ["op_mien", "ops_in_plugin_toml", "mine.cc:22"],
        "an op that plugin.toml declares: mine",
    ),
    "an op without code": (
        ["plugin.toml", 'flags = ["thread-safe", "deterministic"]\n', TWO_OPS],
        ['no code of the op "shift", which plugin.toml declares', "opdock_shift_plan"],
        "OPDOCK_OP(shift, …) in a source that meson.build names, or in C the functions "
        "opdock_shift_plan and opdock_shift_run",
    ),
}


BY_DAY = set(CODE) - {"a schema that has grown"}


@pytest.mark.parametrize("name", CODE if "OPDOCK_TEST_NIGHTLY" in os.environ else sorted(BY_DAY))
def test_code_that_is_not_what_is_declared(opdock, mine, name):
    edits, parts, wanted = CODE[name]
    folder = mine(*edits)
    report = json.loads(opdock("build", "--json", "mine").stdout)
    [reason] = report["reasons"]
    assert reason["code"] == "build-op", reason
    for part in parts:
        assert part.format(folder=folder) in reason["found"], reason["found"]
    assert reason["wanted"] == wanted
    # The failure is remembered for the same source, and reported again.
    again = json.loads(opdock("build", "--json", "mine").stdout)["reasons"]
    assert [r["code"] for r in again] == ["build-remembered", "build-op"]


BUILD_TABLE = """
[build]
include = ["include", "../elsewhere"]
defines = ["9LIVES"]
flags.cxx = ["-O3 -g", "-march=native"]
flags.gnu = ["-O3"]
libraries = ["-lm", "pkg-config:"]
least-cuda-arch = "9.0a"
"""


def test_each_mistake_in_what_a_build_needs_has_its_place(opdock, mine, no_compilers):
    toml = mine() / "plugin.toml"
    begin = len(toml.read_text().splitlines()) + 2
    toml.write_text(toml.read_text() + BUILD_TABLE)
    report = json.loads(opdock("build", "--json", "mine", PATH=no_compilers).stdout)
    told = []
    for reason in report["reasons"]:
        place = re.match(r".*plugin\.toml:(\d+):(\d+): (.*)", reason["found"])
        text = f"{place[3]}, wanted {reason['wanted']}"
        told.append((int(place[1]) - begin, int(place[2]), text))
    places = [
        (1, 12),
        (1, 23),
        (2, 12),
        (3, 14),
        (3, 24),
        (4, 7),
        (5, 14),
        (5, 21),
        (6, 19),
        (6, 19),
    ]
    assert [(line, column) for line, column, _ in told] == places
    for (_, _, text), part in zip(
        told,
        [
            'no folder "include", wanted one in',
            '"../elsewhere", wanted a folder inside the plugin\'s folder',
            '"9LIVES", wanted a macro',
            '"-O3 -g", wanted one argument',
            '"-march=native", wanted what every processor of this kind can run',
            'the unknown key "gnu", wanted one of: c, cxx, gcc, clang, nvcc, hipcc',
            '"-lm", wanted a name, such as "m" for -lm',
            '"pkg-config:", wanted a name',
            '"9.0a", wanted one architecture, such as "8.0" or "sm_80"',
            'no op for it, wanted one with "cuda" in "devices"',
        ],
        strict=True,
    ):
        assert "[build]" in text and part in text


def test_what_a_build_needs_and_is_not_here_is_told_before_it_begins(opdock, mine):
    mine("plugin.toml", "[[op]]", '[build]\nlibraries = ["nowhere"]\n[[op]]')
    report = json.loads(opdock("build", "--json", "mine").stdout)
    [reason] = report["reasons"]
    assert reason["code"] == "build-no-library" and report["log"] is None
    assert reason["text"].startswith("found no library nowhere for -lnowhere, wanted libnowhere.so")
    assert "install the package that has it" in reason["advice"]


def test_a_changed_define_is_another_build_and_named(opdock, mine):
    folder = mine("plugin.toml", "[[op]]", '[build]\ndefines = ["FACTOR=2"]\n[[op]]')
    (folder / "mine.cc").write_text(
        "#include <opdock/plugin.h>\nstatic_assert(FACTOR == 2 || FACTOR == 3);\n"
        'extern "C" opdock_status opdock_mine_plan(\n'
        "    const opdock_call*, const opdock_value*, uint32_t, opdock_plan*) {\n"
        "  return OPDOCK_OK;\n}\n"
        'extern "C" opdock_status opdock_mine_run(\n'
        "    const opdock_call*, const opdock_value*, uint32_t, opdock_value*, uint32_t) {\n"
        "  return OPDOCK_OK;\n}\n"
    )
    assert json.loads(opdock("build", "--json", "mine").stdout)["outcome"] == "built"
    assert json.loads(opdock("build", "--json", "mine").stdout)["outcome"] == "cached"
    toml = folder / "plugin.toml"
    toml.write_text(toml.read_text().replace("FACTOR=2", "FACTOR=3"))
    report = json.loads(opdock("build", "--json", "mine").stdout)
    assert report["outcome"] == "built"
    assert any("defines" in change and "FACTOR=3" in change for change in report["changed"])
