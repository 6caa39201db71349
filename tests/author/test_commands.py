# SPDX-License-Identifier: Apache-2.0
"""Tests opdock test and opdock bench, with the real builder and with a stand-in that names a
plugin."""

import json
import os
import re
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
def author(python, tmp_path):
    """Returns author(kind, plugin, *arguments, **variables): the Python part, with a stand-in for
    build."""

    def call(kind, plugin, *arguments, **variables):
        command = tmp_path / "opdock-stand-in"
        command.write_text(
            STAND_IN.format(log=tmp_path / "log", plugin=plugin or "", failure=FAILURE)
        )
        command.chmod(0o755)
        program = (
            "import sys; from opdock._author import commands; sys.exit(commands.main(sys.argv[1:]))"
        )
        return run(python, "-c", program, command, kind, *arguments, **variables)

    return call


@pytest.fixture
def folder(built, tmp_path):
    """Returns a copy of the new CPU plugin's folder."""
    return shutil.copytree(built.parents[1] / "plugins" / "made_cpu", tmp_path / "made_cpu")


def test_tests_pass(author, built, folder):
    done = author("test", built / "made_cpu.so", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # No test is skipped for a device that the plugin does not have.
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
    """Only the plugin under test is found."""
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
    """The installed pytest plugin breaks every process that loads it."""
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


def test_a_wheel_is_installed_and_found(author, built, folder, tmp_path):
    plugin = built / "made_cpu.so"
    done = author("wheel", plugin, folder, tmp_path / "dist", "8.0", "")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "log").read_text() == f"build build --retry --json --archs=8.0 {folder}\n"
    [wheel] = (tmp_path / "dist").iterdir()
    machine = os.uname().machine
    assert re.fullmatch(
        rf"opdock_plugin_made_cpu-0\.1\.0-py3-none-manylinux_2_\d+_{machine}\.whl", wheel.name
    )
    bytes_before = wheel.read_bytes()
    assert author("wheel", plugin, folder, tmp_path / "dist", "", "").returncode == 0
    assert wheel.read_bytes() == bytes_before, "the same plugin makes the same bytes"
    site = tmp_path / "site"
    words = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, wheel]
    done = run(sys.executable, *words)
    assert done.returncode == 0, done.stderr
    found = run(COMMAND, "list", "--json", PYTHONPATH=site, OPDOCK_PYTHON=sys.executable)
    installed = site / "opdock_plugin_made_cpu" / "made_cpu.so"
    assert str(installed) in [one["path"] for one in json.loads(found.stdout)["plugins"]]
    assert installed.read_bytes() == plugin.read_bytes()


@pytest.mark.parametrize(
    ("needed", "versions", "tag"),
    [
        ([], [], "manylinux_2_17"),
        (["libc.so.6", "libm.so.6"], ["GLIBC_2.2.5", "GLIBC_2.4"], "manylinux_2_17"),
        (["libc.so.6", "ld-linux-x86-64.so.2"], ["GLIBC_2.34", "GLIBC_2.3"], "manylinux_2_34"),
        (["libstdc++.so.6"], ["GLIBC_2.14", "GLIBCXX_3.4.22"], "manylinux_2_24"),
        (["libstdc++.so.6"], ["GLIBCXX_3.4.30", "CXXABI_1.3.8"], "manylinux_2_35"),
        (["libstdc++.so.6"], ["GLIBCXX_3.4", "CXXABI_1.3.13"], "manylinux_2_34"),
        (["libgcc_s.so.1"], ["GCC_3.0", "GCC_4.2.0"], "manylinux_2_17"),
        (["libstdc++.so.6"], ["GLIBCXX_3.4.99"], "linux"),
        (["libc.so.6"], ["OTHER_1.0"], "linux"),
        (["libcudart.so.12"], ["GLIBC_2.14"], "linux"),
        (["libcrypt.so.1"], ["GLIBC_2.14"], "linux"),
    ],
)
def test_the_platform_tag_is_the_oldest_that_has_all_symbols(needed, versions, tag):
    from opdock._author.wheel import platform_tag

    report = {"machine": 62, "needed": needed, "symbol_versions": versions}
    found, problem = platform_tag(report)
    assert found == f"{tag}_x86_64" and (problem is None) == (tag != "linux")
    assert platform_tag({**report, "machine": 183})[0] == f"{tag}_aarch64"


def test_after_a_lost_device_the_rest_is_not_run(python, tmp_path):
    """There is one failure; later tests on that device report it, and the CPU's tests go on."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from opdock._author import driver\n"
        "lost = False\n"
        "class Gpu:\n"
        "    def synchronize(self):\n"
        "        if lost: raise driver.GpuError('cuCtxSynchronize', 700, 'CUDA_ERROR')\n"
        "driver.gpu = lambda kind, index=0: Gpu()\n"
        "driver.count = lambda kind: (1, '')\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test(device, number):\n"
        "    global lost\n"
        "    lost = lost or (device, number) == ('cuda', 2)\n"
        "    assert number not in (1, 2), 'wrong'\n"
    )
    results = tmp_path / "junit.xml"
    words = [python, "-m", "pytest", "-q", "-rs", "-p", "opdock.testing"]
    words += ["-p", "no:cacheprovider", f"--junitxml={results}", tmp_path / "test_it.py"]
    done = run(*words, OPDOCK_TEST_DEVICES="cpu,cuda", OPDOCK_SOFTGPU="{}")
    told = re.search(r"SKIPPED \[1\].*: not run: cuda was lost in test\[(.*)\]", done.stdout)
    assert told and "2" in told[1] and "cuda" in told[1], done.stdout
    from opdock._author.soft import counted

    assert counted(results) == {"passed": 3, "failed": 4, "skipped": 0, "not run": 1}


def test_the_lines_of_our_helpers_are_not_shown(python, tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import torch\n"
        "from opdock.testing import assert_close, on\n"
        "def op(x): raise ValueError('of the op')\n"
        "def test_on(): on('cuda', op)(torch.ones(0))\n"
        "def test_close(assert_close):\n"
        "    assert_close(torch.ones(1), torch.zeros(1).double(), 0.1)\n"
        "from opdock._author import on_device\n"
        "class Mover:\n"
        "    def move(self, x, fresh): return x\n"
        "    def reading(self, tensors, what): return __import__('contextlib').nullcontext()\n"
        "on_device._mover = lambda device, tensors: Mover()\n"
    )
    words = [python, "-m", "pytest", "-q", "-p", "opdock.testing", tmp_path / "test_it.py"]
    done = run(*words, "-p", "no:cacheprovider", cwd=tmp_path)
    assert "2 failed" in done.stdout and "of the op" in done.stdout, done.stdout
    assert "testing.py" not in done.stdout and "on_device.py" not in done.stdout, done.stdout


def test_the_command_hands_over_to_python(opdock, tmp_path):
    (tmp_path / "plugin.toml").write_text("")
    done = opdock("test", tmp_path)
    assert done.returncode == 1 and "opdock: test: found no test_*.py" in done.stderr


def test_no_python_and_a_python_without_the_package(opdock, tmp_path):
    (tmp_path / "plugin.toml").write_text("")
    done = opdock("test", tmp_path, OPDOCK_PYTHON=tmp_path / "none")
    assert done.returncode == 1 and "found no Python" in done.stderr
    alone = tmp_path / "bin" / "opdock"  # the command without the package next to it
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
    """Runs new, test and bench, with the plugin from the cache, and of one kind with a Python as a
    user has it."""
    needs_private_build()
    if kind == "nvcc" and shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    users = {"OPDOCK_PYTHON": sys.executable} if kind == "cpu" else {}
    assert opdock("new", "mine", "--kind", kind).returncode == 0
    done = opdock("test", "mine", **users)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
    done = opdock("bench", "mine", **users)
    assert done.returncode == 0 and "mine 1000000 " in done.stdout, done.stdout + done.stderr
    assert all(line.count(" us") == 2 for line in done.stdout.splitlines() if "mine " in line)
    (tmp_path / "mine" / "mine.cc").write_text("this is no C++\n")
    done = opdock("test", "mine")
    assert done.returncode == 1 and "mine.cc:1" in done.stderr
