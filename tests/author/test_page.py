# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/guide/write-a-plugin.md and docs/concepts/build-on-demand.md in order,
and compares what they do with what the pages say."""

import os
import re
import shutil
import sys

import pytest
from conftest import BUILD, SOURCE, needs_private_build, run, run_well

TEXT = (SOURCE / "docs" / "guide" / "write-a-plugin.md").read_text()


def chapter(title):
    return TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_commands_of_the_template(opdock):
    needs_private_build()
    lines = re.findall(r"^\$ opdock (.*)$", chapter("Start from a template"), re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["new", "test", "bench", "install", "run"]
    home = BUILD / "author-data"
    shutil.rmtree(home, ignore_errors=True)
    for line in lines:
        done = opdock(*line.split(), XDG_DATA_HOME=home)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_the_kinds_and_fixtures_are_those_there_are():
    from opdock import testing

    text = chapter("Start from a template")
    kinds = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    folders = {path.name for path in (SOURCE / "core/cli/templates").iterdir()}
    assert kinds == folders - {"common", "formula"}
    assert [name for name in testing.__all__ if not re.search(rf"`{name}[`(]", text)] == []


def test_the_fragment_and_the_variables_are_those_in_the_tree():
    fragment = re.search(r"```meson\n(.*?)```", chapter("Kernels compiled by nvcc and hipcc"), re.S)
    assert fragment[1] == (SOURCE / "plugins/bias_gelu/meson.build").read_text()
    pc = (BUILD / "meson-private" / "opdock-plugin.pc").read_text()
    for name in re.findall(r"--variable=(\w+)", chapter("In a project of your own")):
        assert re.search(rf"^{name}=", pc, re.MULTILINE), name


def test_the_examples_for_the_tests_of_all_ops_compile(tmp_path):
    """tests/plugins/tutorial.py builds the page's other files."""
    [text] = re.findall(r"^```cpp \S+/test_examples.cc\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    source = tmp_path / "test_examples.cc"
    source.write_text(text)
    folders = [f"-I{SOURCE / 'tests/plugins'}", f"-I{SOURCE / 'core/include'}"]
    run_well(*os.environ.get("CXX", "c++").split(), "-std=c++20", "-fsyntax-only", *folders, source)


def test_what_a_build_needs_is_read_as_shown(opdock, tmp_path):
    """The page's table also has exactly the keys that exist."""
    text = chapter("What a build needs")
    block = re.search(r"```toml\n(\[build\]\n.*?)```", text, re.S)[1]
    assert opdock("new", "mine", "--kind", "nvcc").returncode == 0
    folder = tmp_path / "mine"
    (folder / "include").mkdir()
    toml = folder / "plugin.toml"
    declared = toml.read_text()
    pack = [BUILD / "core/pack/opdock-pack", "--toml", toml, "--ops-header", tmp_path / "ops.h"]
    toml.write_text(declared + "\n" + block)
    done = run(*pack)
    assert done.returncode == 0, done.stderr
    toml.write_text(declared + "\n[build]\nunknown = 1\n")
    known = re.search(r"wanted one of: (.*)", run(*pack).stderr)[1].split(", ")
    assert set(known) == set(re.findall(r"^- `([\w-]+)`:", text, re.MULTILINE))
    assert set(known) == {line.split(" ")[0].split(".")[0] for line in block.splitlines()[1:]}


VOCABULARY = (SOURCE / "docs" / "reference" / "vocabulary.md").read_text()
DEVICE = SOURCE / "core/device/opdock"


def declared(*names):
    """Returns {name: [signature]} of the device functions in these headers, as the page writes
    them."""
    found = {}
    for name in names:
        text = re.sub(r"//.*", "", (DEVICE / name).read_text())
        text = re.sub(r"namespace detail \{.*?\n\}", "", text, flags=re.DOTALL)
        for match in re.finditer(
            r"^OPDOCK_DEVICE (?:constexpr )?([\w<>*& ]+?[ *&])(\w+(?:<\w+>)?)(\([^{;]*?\)) \{",
            text,
            re.M,
        ):
            signature = " ".join(f"{match[1].strip()} {match[2]}{match[3]}".split())
            found.setdefault(match[2].split("<")[0], []).append(signature)
    return found


def name_of(signature):
    return re.search(r"(\w+)(?:<\w+>)?\(", signature)[1]


def test_the_vocabulary_has_every_function_with_its_signature():
    headers = ["target_soft.cuh", "dtype.cuh", "vector.cuh", "warp.cuh", "reduce.cuh"]
    headers += ["atomic.cuh", "copy_async.cuh"]
    functions = declared(*headers)
    assert len(functions) > 60, functions
    tables = VOCABULARY.partition("\n## Declarations\n")[2]
    listed = [s for s in re.findall(r"^\| `(.*?)` \|", tables, re.MULTILINE) if "(" in s]
    named = {name_of(signature) for signature in listed}
    assert functions.keys() - named - set(re.findall(r"`(\w+)\(\)`", tables)) == {"soft_atomic"}
    target = (DEVICE / "target_soft.cuh").read_text()
    macros = re.findall(r"^#define (OPDOCK_\w+\(.*?\))", target, re.MULTILINE)
    plain = {re.sub(r"<\w+>\(", "(", s) for many in functions.values() for s in many}
    for signature in listed:
        name = name_of(signature)
        if name.startswith("OPDOCK_"):
            assert signature in macros or name == "OPDOCK_HOST_DEVICE"
        elif re.search(r"\bT\b", signature):  # it exists for several types
            assert (
                name in functions or f"OPDOCK_ATOMIC({name}," in (DEVICE / "atomic.cuh").read_text()
            )
        else:
            assert re.sub(r"<\w+>\(", "(", signature) in plain, signature


ON_DEMAND = (SOURCE / "docs" / "concepts" / "build-on-demand.md").read_text()


@pytest.fixture
def home():
    """Returns a home folder in the build tree: nothing below /tmp would be trusted."""
    needs_private_build()
    folder = BUILD / "author-home"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    return folder


def test_the_plugin_that_is_dropped_in(home, opdock):
    """Writes the page's files where it puts them; the commands print what it shows."""
    plugins = home / ".local" / "share" / "opdock" / "plugins"
    files = re.findall(r"^```\w+ (triple/\S+)\n(.*?)^```$", ON_DEMAND, re.MULTILINE | re.DOTALL)
    for name, text in files:
        (plugins / name).parent.mkdir(parents=True, exist_ok=True)
        (plugins / name).write_text(text)
    [page] = re.findall(r"```console\n(\$ ls .*?)```", ON_DEMAND, re.DOTALL)
    variables = {"HOME": home, "OPDOCK_CACHE_DIR": home / "cache"}
    for shown in re.split(r"^\$ ", page, flags=re.MULTILINE)[1:]:
        command, *lines = shown.splitlines()
        if command.startswith("ls "):
            assert sorted(lines[0].split()) == sorted(
                p.name for p in (plugins / "triple").iterdir()
            )
            continue
        program = re.fullmatch(r"python -c '(.*)'", command)[1]
        done = run(sys.executable, "-c", program, **variables)
        told = re.sub(r" in [0-9.]+ s", "", done.stderr) + done.stdout
        told = re.sub(
            r"^opdock: building .*\n", "", told
        )  # on a terminal the next line replaces it
        assert told.splitlines() == [re.sub(r" in [0-9.]+ s", "", line) for line in lines], told
    # The plugin's plan refuses what its run could not compute.
    program = (
        "import numpy, opdock\n"
        "x = numpy.arange(6, dtype='float32').reshape(2, 3)\n"
        "assert (opdock.ops.triple(x[1:], by=2.0) == 2 * x[1:]).all()\n"
        "assert opdock.ops.triple(x[:0]).shape == (0, 3)\n"
        "opdock.ops.triple(x.T)\n"
    )
    done = run(sys.executable, "-c", program, OPDOCK_FALLBACK="error", **variables)
    assert done.returncode == 1 and "UnsupportedError: triple" in done.stderr, done.stderr
    assert "argument 'x'" in done.stderr
