# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.inspect() on files, wheels and packages."""

import json
import os
import subprocess
import sys

import pytest
from native_files import install, library, wheel

import opdock


@pytest.fixture
def path(tmp_path):
    content = library(tmp_path / "m" / "x.so", archs=[80])
    return wheel(tmp_path, {"foo/x.so": content}, name="foo", version="2")


def test_a_wheel_is_a_survey(path):
    report = opdock.inspect(path, gpu="sm_86", driver=570)
    (package,) = report["packages"]
    assert (package["name"], package["version"]) == ("foo", "2")
    assert package["gpus"] == [{"arch": "sm_86", "code": "native", "image": "sm_80"}]
    assert report["machine"]["cuda"] == "12.8" and report["machine"]["described"] is True
    several = opdock.inspect(str(path), gpu=["sm_80", "sm_90"], driver="570.86")
    assert [cell["code"] for cell in several["packages"][0]["gpus"]] == ["native", "none"]


def test_a_file_is_a_file_whatever_the_machine(path, tmp_path):
    here = opdock.inspect(tmp_path / "m" / "x.so")
    there = opdock.inspect(tmp_path / "m" / "x.so", gpu="sm_90", driver="570")
    member = opdock.inspect(f"{path}/foo/x.so")
    for report in (here, there, member):
        assert report["cuda_archs"] == ["sm_80"] and report["images"] and "undefined" in report
    assert there["verdict"] == "rejected"


def test_packages_are_those_of_this_interpreter(tmp_path, path):
    site = tmp_path / "some-packages"
    content = (tmp_path / "m" / "x.so").read_bytes()
    install(site, "only_here", {"only_here/x.so": content}, version="7")
    program = (
        "import sys, json, opdock; sys.path.append(sys.argv[1])\n"
        "named = opdock.inspect('Only.Here')\n"
        "sys.path = [p for p in sys.path if not p.endswith('-packages') or p == sys.argv[1]]\n"
        "print(json.dumps([named, opdock.inspect(gpu='sm_70')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, site],
        capture_output=True,
        text=True,
        env=os.environ,
        check=True,
    )
    named, all_of_them = json.loads(done.stdout)
    assert [package["version"] for package in named["packages"]] == ["7"]
    found = {package["name"]: package for package in all_of_them["packages"]}
    assert found["only_here"]["gpus"][0]["code"] == "none"
    assert all_of_them["summary"]["packages"] == len(all_of_them["packages"])


def test_what_is_not_there_is_not_found(tmp_path):
    with pytest.raises(opdock.NotFoundError, match="no-such-package"):
        opdock.inspect("no-such-package")
    with pytest.raises(opdock.NotFoundError):
        opdock.inspect(tmp_path / "none.so")
    with pytest.raises(opdock.NotFoundError):
        opdock.inspect_diff(tmp_path / "none.so", sys.executable)


@pytest.mark.parametrize(
    "machine, told",
    [
        ({"gpu": "H100"}, "gpu: found"),
        ({"driver": "999"}, "driver: found"),
        ({"driver": "570", "cuda": "12.8"}, "one of the two"),
        ({"arch": "pdp11"}, "arch: found"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(path, machine, told):
    with pytest.raises(opdock.InvalidArgumentError, match=told):
        opdock.inspect(path, **machine)


def test_a_version_is_no_fraction(path):
    with pytest.raises(TypeError, match="glibc"):
        opdock.inspect(path, glibc=2.30)


def test_arguments_that_are_no_texts(path, tmp_path):
    """Each is refused by its name; a NUL would cut off the argument and the message about it."""
    calls = {
        "inspect": (lambda x: opdock.inspect(x), "'what'"),
        "inspect_diff": (lambda x: opdock.inspect_diff(path, x), "'b'"),
        "explain": (opdock.explain, "'name'"),
        "load": (opdock.load, "'name'"),
        "trust": (opdock.trust, "'folder'"),
        "configure": (lambda x: opdock.configure(build=x), "'build'"),
    }
    for function, (call, argument) in calls.items():
        for wrong in (b"/bin/true", ["/bin/true"], 3, object()):
            with pytest.raises(opdock.ArgumentError, match=rf"{function}\(\).*{argument}"):
                call(wrong)
        with pytest.raises(opdock.InvalidArgumentError, match=r"found 'py_copy\\x00b'"):
            call("py_copy\0b")
    for machine in ({"gpu": [3.0]}, {"gpu": 3.5}, {"glibc": []}, {"driver": True}):
        with pytest.raises(opdock.ArgumentError, match=next(iter(machine))):
            opdock.inspect(path, **machine)
    for device in (("cpu", 0), (1,), object(), 1.5, "cuda:x"):
        with pytest.raises(opdock.ArgumentError, match="'device'"):
            opdock.load("py_copy", device=device)


@pytest.mark.parametrize(
    "request_text, told",
    [
        ("no json", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", "nothing to look at"),
        ('{"paths": "x"}', "paths: found"),
        ('{"paths": [1]}', "paths: found"),
        ('{"path": ["x"]}', '"path"'),
        ('{"environment": 1}', '"environment"'),
        ('{"paths": ["/nowhere/at/all"]}', "/nowhere/at/all"),
    ],
)
def test_requests_that_cannot_be_say_what_was_wanted(request_text, told):
    runtime = opdock.Runtime(plugin_path=":")
    with pytest.raises(opdock.InvalidArgumentError, match=told):
        runtime.survey_json(request_text)


def test_diff_of_two_builds(path, tmp_path):
    library(tmp_path / "n" / "x.so", archs=[90])
    report = opdock.inspect_diff(f"{path}/foo/x.so", tmp_path / "n" / "x.so")
    assert report["archs"] == {"added": ["sm_90"], "removed": ["sm_80"]}
    assert opdock.inspect_diff(path.parent / "m/x.so", f"{path}/foo/x.so")["equal"] is True


def test_ctrl_c_stops_it(path):
    """The hook that Python sets is called while files are read."""
    program = (
        "import opdock, os, signal, sys, threading;"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start();\n"
        "try:\n    while True: opdock.inspect(sys.argv[1])\n"
        "except KeyboardInterrupt: print('stopped')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "stopped\n", done.stderr
