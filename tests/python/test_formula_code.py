# SPDX-License-Identifier: Apache-2.0
"""Tests when a formula's calls on the CPU use compiled code: in processes and with caches of their
own. What a process has opened is in /proc/self/maps."""

import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")

CALLS = """\
import time, numpy, opdock
f = opdock.formula("exp(x) * y + 0.5")
x = numpy.linspace(-2, 2, 300_000, dtype=numpy.float32).reshape(3, -1)
y = x[:, ::-1]
def is_right():
    return numpy.allclose(f(x, y), numpy.exp(x) * y + 0.5, rtol=1e-6, atol=1e-6)
def is_open():
    return "formula.so" in open("/proc/self/maps").read()
"""
THREE = CALLS + "print([(is_right(), is_open()) for i in range(3)])"
# Until the code is there: after a second of work and the time that compiling takes.
MANY = (
    CALLS
    + """\
end = time.monotonic() + 120
while not is_open() and time.monotonic() < end:
    f(x, y)
print(is_right(), is_open())
"""
)


def runner(folder):
    """Returns a function that runs a text as a program, with the cache in that folder and more of
    an environment, and returns what it prints."""

    def run(text, warnings=0, **environment):
        done = subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, "OPDOCK_CACHE_DIR": str(folder), **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("interpreted on the CPU") == warnings, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs programs with a new cache."""
    (tmp_path / "cache").mkdir(mode=0o700)
    return runner(tmp_path / "cache")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Returns a cache with the code of CALLS' formula; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("compiled")
    folder.chmod(0o700)
    runner(folder)(THREE, OPDOCK_JIT="always")
    return folder


def test_code_is_compiled_once_asked_for_and_found_by_later_processes(run):
    first, later = "(True, False)", "(True, True)"
    assert run(THREE) == f"[{first}, {first}, {first}]"
    assert run(THREE, OPDOCK_JIT="always") == f"[{later}, {later}, {later}]"
    # The first result waits for nothing. No compiler is needed.
    assert run(THREE, CXX="/nonexistent/c++") == f"[{first}, {later}, {later}]"
    # Code that was compiled before may be used.
    assert run(THREE, OPDOCK_JIT="never") == f"[{first}, {later}, {later}]"


@pytest.mark.parametrize(
    ("environment", "warnings"),
    [
        ({"OPDOCK_JIT": "always", "CXX": "false"}, 1),
        ({"OPDOCK_JIT": "always", "CXX": "/nonexistent/c++"}, 1),
        ({"OPDOCK_JIT": "always", "OPDOCK_BUILD": "never"}, 0),
        ({"OPDOCK_JIT": "always", "OPDOCK_CACHE_DIR": "/tmp"}, 1),
        ({"OPDOCK_JIT": "never"}, 0),
    ],
)
def test_without_a_compiler_the_interpreter_stays(run, environment, warnings):
    # A second formula that fails for the same cause is not worth a second warning.
    two = THREE + "\nopdock.formula('x + 1')(x)"
    found = run(two, warnings=warnings, **environment)
    assert found == "[(True, False), (True, False), (True, False)]"


def test_code_is_compiled_in_the_background_after_a_second_of_work(run):
    assert run(MANY) == "True True"


def test_a_call_after_a_compilation_that_failed_in_the_background_warns(run):
    wait = """
read, write = os.pipe()
stderr = os.dup(2)
os.dup2(write, 2)
os.set_blocking(read, False)
text, end = b"", time.monotonic() + 120
while not text and time.monotonic() < end:
    f(x, y)
    if select.select([read], [], [], 0)[0]:
        text = os.read(read, 10000)
os.dup2(stderr, 2)
print(text.decode().strip(), "|", is_right(), is_open())
"""
    found = run("import os, select\n" + CALLS + wait, CXX="false")
    assert found.startswith("opdock: formula: interpreted on the CPU instead of compiled"), found
    assert "false" in found and found.endswith("| True False")


def test_names_do_not_matter(compiled):
    other = THREE.replace('"exp(x) * y + 0.5"', '"exp(left) * right + 0.5"')
    assert runner(compiled)(other) == "[(True, False), (True, True), (True, True)]"


def test_a_damaged_entry_is_not_used(compiled, tmp_path):
    folder = shutil.copytree(compiled, tmp_path / "cache")
    assert runner(folder)(THREE) == "[(True, False), (True, True), (True, True)]"
    [library] = folder.rglob("formula.so")
    library.chmod(0o600)
    library.write_bytes(library.read_bytes()[:-100])
    assert runner(folder)(THREE) == "[(True, False), (True, False), (True, False)]"
