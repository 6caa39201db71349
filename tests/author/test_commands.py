# SPDX-License-Identifier: Apache-2.0
"""opdock test, opdock bench: with the real builder, and with a stand-in that names a plugin."""

import json
import os
import shutil
import sys

import pytest
from conftest import COMMAND, needs_private_build, run

STAND_IN = """#!/bin/sh
# opdock build [--json] PATH
echo "build $*" >> {log}
[ -n "{plugin}" ] || {{ echo '{failure}'; exit 1; }}
echo '{{"path": "{plugin}"}}'
"""

FAILURE = json.dumps(
    {
        "plugin": "mine",
        "path": None,
        "log": "/a/log",
        "reasons": [{"code": "build-c", "text": "found A.cc:1: no, wanted B", "advice": "do C"}],
    }
)


@pytest.fixture
def author(tmp_path):
    """author(kind, plugin, *arguments, **variables): the Python part, with a stand-in for build."""

    def call(kind, plugin, *arguments, **variables):
        command = tmp_path / "opdock-stand-in"
        command.write_text(
            STAND_IN.format(log=tmp_path / "log", plugin=plugin or "", failure=FAILURE)
        )
        command.chmod(0o755)
        program = (
            "import sys; from opdock._author import commands; sys.exit(commands.main(sys.argv[1:]))"
        )
        return run(sys.executable, "-c", program, command, kind, *arguments, **variables)

    return call


@pytest.fixture
def folder(built, tmp_path):
    """A copy of the new CPU plugin's folder."""
    return shutil.copytree(built.parents[1] / "plugins" / "made_cpu", tmp_path / "made_cpu")


def test_tests_pass(author, built, folder):
    done = author("test", built / "made_cpu.so", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # None is skipped for a device that the plugin does not have.
    assert "16 passed" in done.stdout and "skipped" not in done.stdout.lower(), done.stdout


def test_the_manifest_will_do_as_a_path(author, built, folder):
    assert author("bench", built / "made_cpu.so", folder / "plugin.toml").returncode == 0


def test_pytest_gets_the_further_arguments(author, built, folder):
    done = author("test", built / "made_cpu.so", folder, "-k", "named")
    assert done.returncode == 0 and "1 passed, 15 deselected" in done.stdout


def test_a_failing_test_is_status_1(author, built, folder):
    (folder / "reference.py").write_text("def made_cpu(x, *, a=1.0):\n    return x + 1\n")
    done = author("test", built / "made_cpu.so", folder)
    assert done.returncode == 1 and "elements differ" in done.stdout


def test_no_reference_stands_in_for_the_plugin(author, built, folder):
    """The plugin under test alone is found."""
    (folder / "test_made_cpu.py").write_text(
        "import opdock, os\n"
        "def test():\n"
        "    assert [p['name'] for p in opdock.plugins()] == ['made_cpu']\n"
        "    assert os.environ['OPDOCK_FALLBACK'] == 'error'\n"
        "    assert os.environ['OPDOCK_CHECK_PLANS'] == 'all'\n"
    )
    done = author("test", built / "made_cpu.so", folder, OPDOCK_ADD_PLUGIN_PATH="")
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_those_plugins_of_pytest_are_loaded_that_are_named(author, built, folder, tmp_path):
    """One that is installed and breaks whatever loads it."""
    site = tmp_path / "site"
    (site / "broken-1.0.dist-info").mkdir(parents=True)
    (site / "broken-1.0.dist-info" / "METADATA").write_text("Name: broken\nVersion: 1.0\n")
    (site / "broken-1.0.dist-info" / "entry_points.txt").write_text("[pytest11]\nbroken = broken\n")
    (site / "broken.py").write_text("raise SystemExit('broken was loaded')\n")
    path = os.pathsep.join([str(site), os.environ["PYTHONPATH"]])
    done = author("test", built / "made_cpu.so", folder, "-k", "named", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    for words, variables in (
        (["-p", "broken"], {}),
        ([], {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}),
    ):
        done = author("test", built / "made_cpu.so", folder, *words, PYTHONPATH=path, **variables)
        assert done.returncode == 1 and "broken was loaded" in done.stderr, done.stderr


def test_benches_print_lines_and_a_failing_one_is_status_1(author, built, folder):
    done = author("bench", built / "made_cpu.so", folder)
    assert done.returncode == 0 and "made_cpu 1000 " in done.stdout and " us" in done.stdout
    (folder / "bench_worse.py").write_text("raise SystemExit(3)\n")
    assert author("bench", built / "made_cpu.so", folder).returncode == 1


@pytest.mark.parametrize("kind", ["test", "bench"])
def test_what_is_missing_is_said_before_anything_is_built(author, folder, tmp_path, kind):
    done = author(kind, None, tmp_path / "nowhere")
    assert done.returncode == 1 and "plugin.toml" in done.stderr and "opdock new" in done.stderr
    (folder / f"{kind}_made_cpu.py").unlink()
    done = author(kind, None, folder)
    assert done.returncode == 1 and f"{kind}_*.py" in done.stderr
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("missing", ["pytest", "torch"])
def test_a_missing_package_is_named_with_the_python_that_lacks_it(folder, tmp_path, missing):
    program = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda n, *a: None if n == {missing!r} else find(n, *a)\n"
        "from opdock._author import commands\n"
        f"sys.exit(commands.main(['false', 'test', {str(folder)!r}]))\n"
    )
    done = run(sys.executable, "-c", program)
    assert done.returncode == 1
    assert f"found no {missing} in {sys.executable}" in done.stderr and "pip install" in done.stderr


def test_a_failing_build_is_told_in_its_own_words(author, folder, tmp_path):
    done = author("test", None, folder)
    assert done.returncode == 1 and "passed" not in done.stdout
    assert done.stderr.splitlines() == [
        "mine could not be built",
        "build-c:",
        "  found A.cc:1: no, wanted B",
        "  -> do C",
        "the whole log is /a/log",
    ]
    assert (tmp_path / "log").read_text() == f"build build --retry --json {folder}\n"


def test_the_command_hands_over_to_python(opdock, tmp_path):
    (tmp_path / "plugin.toml").write_text("")
    done = opdock("test", tmp_path)
    assert done.returncode == 1 and "opdock: test: found no test_*.py" in done.stderr


def test_no_python_and_a_python_without_the_package(opdock, tmp_path):
    (tmp_path / "plugin.toml").write_text("")
    done = opdock("test", tmp_path, OPDOCK_PYTHON=tmp_path / "none")
    assert done.returncode == 1 and "found no Python" in done.stderr
    alone = tmp_path / "bin" / "opdock"  # no package beside it
    alone.parent.mkdir()
    shutil.copy(COMMAND, alone)
    library = COMMAND.parents[1]
    done = run(
        alone,
        "bench",
        tmp_path,
        OPDOCK_PYTHON=sys.executable,
        LD_LIBRARY_PATH=library,
        PYTHONPATH="",
    )
    assert done.returncode == 1 and "found no Python package opdock" in done.stderr


def test_bad_usage(opdock):
    done = opdock("test")
    assert done.returncode == 2 and "PATH" in done.stderr


@pytest.mark.parametrize("kind", ["cpu", "device", "nvcc"])
def test_with_the_builder(opdock, tmp_path, kind):
    """All of it: new, test, bench, with the cache's plugin."""
    needs_private_build()
    if kind == "nvcc" and shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    assert opdock("new", "mine", "--kind", kind).returncode == 0
    done = opdock("test", "mine")
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
    done = opdock("bench", "mine")
    assert done.returncode == 0 and "mine 1000 " in done.stdout, done.stdout + done.stderr
    (tmp_path / "mine" / "mine.cc").write_text("this is no C++\n")
    done = opdock("test", "mine")
    assert done.returncode == 1 and "mine.cc:1" in done.stderr
