# SPDX-License-Identifier: Apache-2.0
"""Tests opdock inspect: which files of a package count, and what other packages provide."""

import sys
import venv
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from conftest import CASES, PLUGINS
from native_files import install, library, wheel

USE = "int found(void); int use(void) { return found(); }"
PYTHON = "void *PyLong_FromLong(long); void *use(void) { return PyLong_FromLong(1); }"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns the bytes of libraries: a good one, one that lacks libgone.so, libgone.so, one for
    Python, some for GPUs."""
    folder = tmp_path_factory.mktemp("made")
    gone = library(folder / "libgone.so", flags=["-Wl,-soname,libgone.so"])
    return {
        "good": library(folder / "good.so"),
        "gone": gone,
        "lacks": library(folder / "lacks.so", source=USE, flags=[f"-L{folder}", "-lgone"]),
        "python": library(folder / "python.so", source=PYTHON),
        "sm_80": library(folder / "a.so", archs=[80]),
        "sm_90": library(folder / "b.so", archs=[90]),
    }


def inspected(opdock, *words, **variables):
    """Returns (exit status, the only package)."""
    result = opdock("inspect", *words, "--json", **variables)
    (package,) = result.json["packages"]
    return result.status, package


def files_of(package):
    return {file["file"]: file for file in package["files"]}


def codes(file):
    return [reason["code"] for reason in file["reasons"]]


# ---- files that the import loads


def test_what_the_import_does_not_load_is_listed_only(opdock, tmp_path, made):
    files = {
        "foo/__init__.py": b"from . import _core\n",
        "foo/_core.so": made["good"],
        "foo/_extra.so": made["lacks"],
        "foo/bin/test_program": made["lacks"],
    }
    status, package = inspected(opdock, wheel(tmp_path, files))
    assert (status, package["verdict"], package["cause"]) == (0, "usable", None)
    found = files_of(package)
    assert found["foo/_core.so"]["counts"] and not found["foo/_extra.so"]["counts"]
    assert found["foo/_extra.so"]["verdict"] == "rejected"  # it is reported anyway
    assert package["files"][0]["file"] == "foo/_core.so"
    files["foo/__init__.py"] = b"from . import _core, _extra\n"
    status, package = inspected(opdock, wheel(tmp_path, files))
    assert (status, package["cause"]["file"]) == (1, "foo/_extra.so")


def test_one_library_for_each_version_of_cuda(opdock, tmp_path, made):
    files = {
        "foo/__init__.py": b"import ctypes\nlib = ctypes.CDLL(f'libfoo_cuda{number()}.so')\n",
        "foo/libfoo_cuda118.so": made["sm_80"],
        "foo/libfoo_cuda128.so": made["sm_90"],
        "foo/libfoo_cpu.so": made["good"],
        "foo/libfoo_xpu.so": made["lacks"],
    }
    path = wheel(tmp_path, files)
    words = ["--gpu", "sm_90", "--driver", "570"]
    status, package = inspected(opdock, path, *words)
    assert (status, package["verdict"]) == (0, "usable")
    assert package["gpus"] == [{"arch": "sm_90", "code": "native", "image": "sm_90"}]
    counted = [file["file"] for file in package["files"] if file["counts"]]
    assert counted == ["foo/libfoo_cuda128.so"]
    status, package = inspected(opdock, path, "--gpu", "sm_70", "--driver", "570")
    assert (status, package["cause"]["code"]) == (1, "arch-mismatch")
    # Each GPU may have its own library.
    assert inspected(opdock, path, *words, "--gpu", "sm_86")[0] == 0


# ---- libraries of other packages


@pytest.mark.parametrize(
    "requires, verdict, code",
    [
        ([], "rejected", "library-missing"),
        (["numpy"], "undecided", "library-unknown"),
        (["gone-cu12>=2"], "usable", "library-assumed"),
    ],
)
def test_a_library_that_the_wheel_lacks(opdock, tmp_path, made, requires, verdict, code):
    path = wheel(tmp_path, {"foo.so": made["lacks"]}, requires=requires)
    status, package = inspected(opdock, path)
    assert package["verdict"] == verdict and code in codes(package["files"][0])
    assert status == (0 if verdict == "usable" else 1)
    advice = {reason["code"]: reason["advice"] for reason in package["files"][0]["reasons"]}
    assert "torch" not in advice[code]


@pytest.fixture
def environment(tmp_path):
    """Makes a virtual environment without packages; returns it and the folder for packages."""
    root = tmp_path / "env"
    venv.create(root, with_pip=False)
    return root, next(root.glob("lib/python*/site-packages"))


def test_a_sibling_that_is_required_is_loaded_before(opdock, tmp_path, made, environment):
    root, site = environment
    install(site, "foo", {"foo.so": made["lacks"]}, requires=["bar"])
    install(site, "bar", {"bar/libgone.so": made["gone"]}, requires=["baz"])
    result = opdock("inspect", root, "--json")
    verdicts = {package["name"]: package["verdict"] for package in result.json["packages"]}
    assert (result.status, verdicts) == (0, {"foo": "usable", "bar": "usable"})
    for words in (["--environment"], ["--package", "foo"]):
        assert opdock("inspect", *words, VIRTUAL_ENV=str(root)).status == 0
    # No package requires this one, so nothing says whether bar is loaded first.
    install(site, "other", {"other.so": made["lacks"]})
    result = opdock("inspect", root, "--json")
    verdicts = {package["name"]: package["verdict"] for package in result.json["packages"]}
    assert verdicts == {"foo": "usable", "bar": "usable", "other": "undecided"}
    assert result.status == 1


def test_with_a_package_its_libraries_are_there(opdock, tmp_path, made, environment):
    root, site = environment
    install(site, "bar", {"bar/__init__.py": b""}, requires=["baz"])
    install(site, "baz", {"baz/libgone.so": made["gone"]})
    path = wheel(tmp_path, {"foo.so": made["lacks"]})
    assert inspected(opdock, path)[1]["verdict"] == "rejected"
    status, package = inspected(opdock, path, "--with", "bar", VIRTUAL_ENV=str(root))
    assert (status, package["verdict"]) == (0, "usable")
    alone = tmp_path / "alone.so"
    alone.write_bytes(made["lacks"])
    words = ("inspect", alone, "--with", "baz")
    assert opdock("inspect", alone).status == 1
    assert opdock(*words, VIRTUAL_ENV=str(root)).status == 0
    # The actual library is checked: one with this name but without the symbol does not help.
    (site / "baz" / "libgone.so").write_bytes(made["good"])
    library(site / "baz" / "libgone.so", source="int other;", flags=["-Wl,-soname,libgone.so"])
    result = opdock(*words, VIRTUAL_ENV=str(root))
    assert result.status == 1 and "symbols-undefined" in result.out
    missing = opdock("inspect", path, "--with", "barr", VIRTUAL_ENV=str(root))
    assert missing.status == 1 and "did you mean bar?" in missing.err


# ---- for which Python


@pytest.mark.parametrize(
    "tags, wanted",
    [
        ("cp399-abi3", "Python 3.99 or newer"),
        ("cp399-cp399", "Python 3.99"),
        ("cp399-cp399t", "Python 3.99 without its lock"),
        ("pp310-pypy310_pp73", "another Python than CPython"),
    ],
)
def test_a_module_for_a_python_that_is_not_here(opdock, tmp_path, made, tags, wanted):
    for name in ("foo.abi3.so", "foo.so"):
        path = wheel(tmp_path / f"foo-1.0-{tags}-linux_x86_64.whl", {name: made["python"]})
        status, package = inspected(opdock, path)
        assert (status, package["verdict"]) == (1, "undecided")
        assert package["cause"]["code"] == "python-needed" and wanted in package["cause"]["wanted"]


def test_a_module_for_the_python_that_is_here(opdock, tmp_path, made):
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    path_of_this = f"{Path(sys._base_executable).parent}:/usr/bin:/bin"
    for tags in (f"{here}-{here}", "cp37-abi3", "py3-none"):
        path = wheel(tmp_path / f"foo-1.0-{tags}-linux_x86_64.whl", {"foo.so": made["python"]})
        assert inspected(opdock, path, PATH=path_of_this)[0] == 0, tags


# ---- the command's other reports


def test_nothing_to_do_is_no_advice(opdock, tmp_path, made):
    (tmp_path / "x.so").write_bytes(made["good"])
    result = opdock("inspect", tmp_path / "x.so")
    assert result.status == 0 and "no-plugin" in result.out and "nothing to do" not in result.out


# ---- plugins for a machine that is described


def test_list_and_explain_for_another_machine(opdock):
    """Images that are compiled at first use count, and a GPU is named as the user wrote it."""
    archs = opdock("inspect", PLUGINS / "softmax.so", "--json").json
    if not any(image["kind"] == "source" for image in archs["images"]):
        pytest.skip("the plugins were built without device source")
    words = ["--gpu", "12.9", "--gpu", "gfx90a", "--cuda", "99.0", "--plugin-path", PLUGINS]
    listed = opdock("list", *words, "--json").json["plugins"]
    softmax = next(plugin for plugin in listed if plugin["name"] == "softmax")
    devices = {device["device"]: device for device in softmax["devices"]}
    assert set(devices) == {"cpu", "12.9", "gfx90a"}
    for name in ("12.9", "gfx90a"):
        assert devices[name]["verdict"] == "usable"
        later = [reason["code"] for reason in devices[name]["reasons"]] == ["compiled-later"]
        assert later or devices[name]["image"] is not None
    text = opdock("list", *words)
    assert text.status == 0 and "cuda:0" not in text.out
    for kind, gpu in (("cuda", "12.9"), ("rocm", "gfx90a")):  # by kind, however the GPUs are named
        one = opdock("list", "softmax", "--device", kind, *words, "--json").json["plugins"]
        assert [plugin["name"] for plugin in one] == ["softmax"]
        assert gpu in [device["device"] for device in one[0]["devices"]]
    explained = opdock("explain", "softmax", *words, "--json")
    assert explained.status == 0
    chain = {record["device"]: record for record in explained.json["chain"]}
    assert set(chain) == {"cpu", "12.9", "gfx90a"} and all(one["serves"] for one in chain.values())
    assert all(one["dry"] for one in chain.values())
    old = opdock("list", "--gpu", "sm_60", "--driver", "450", "--plugin-path", CASES, "--json")
    assert old.status == 0
    for bad in (["--gpu", "H100"], ["--driver", "9"], ["--driver", "570", "--cuda", "12.8"]):
        assert opdock("list", *bad).status == 2
        assert opdock("explain", "softmax", *bad).status == 2
