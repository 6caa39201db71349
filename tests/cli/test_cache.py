# SPDX-License-Identifier: Apache-2.0
"""Tests opdock cache: what it prints, its JSON, its exit status."""

import os
import pathlib
import shutil
import tempfile

import pytest

# A cache below a folder that others can write is refused, so the system's temporary folder cannot
# be used.
BUILD = pathlib.Path(os.environ["OPDOCK_COMMAND"]).parent
KEY = "ab" * 32
MAKER = "0123456789abcdef"


@pytest.fixture
def cache():
    made = tempfile.mkdtemp(prefix="cache-", dir=BUILD)
    yield pathlib.Path(made)
    shutil.rmtree(made)


def damage(cache):
    """Puts a file that is no entry where an entry could be."""
    path = cache / "v1" / "kernels" / KEY[:2] / KEY / MAKER
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rubbish")
    return path


def test_an_empty_cache(opdock, cache):
    variables = {"OPDOCK_CACHE_DIR": str(cache)}
    for action in ("ls", "gc", "clear", "verify"):
        done = opdock("cache", action, **variables)
        assert done.status == 0, done.err
        assert done.out.count("\n") == 1
        assert opdock("cache", action, "--json", **variables).json["folder"] == str(cache)
    assert not list(cache.iterdir())


def test_export_and_import(opdock, cache):
    file = cache / "out.tar"
    variables = {"OPDOCK_CACHE_DIR": str(cache / "cache")}
    done = opdock("cache", "export", file, "--json", **variables)
    assert done.status == 0, done.err
    assert done.json["exported"] == 0 and file.stat().st_size == done.json["bytes"]
    done = opdock("cache", "import", file, "--json", **variables)
    assert done.status == 0, done.err
    assert done.json["imported"] == 0
    file.write_bytes(b"no archive" * 100)
    done = opdock("cache", "import", file, **variables)
    assert done.status == 1 and "cache-archive: found" in done.err
    assert opdock("cache", "import", cache / "missing", **variables).status == 2


def test_verify_sets_aside(opdock, cache):
    path = damage(cache)
    variables = {"OPDOCK_CACHE_DIR": str(cache)}
    listed = opdock("cache", "ls", "--json", **variables)
    assert listed.status == 0
    assert [entry["state"] for entry in listed.json["entries"]] == ["damaged"]
    done = opdock("cache", "verify", **variables)
    assert done.status == 1 and "1 is damaged" in done.out
    assert not path.exists()
    assert opdock("cache", "verify", **variables).status == 0


def test_export_leaves_out_what_is_damaged(opdock, cache):
    path = damage(cache)
    done = opdock("cache", "export", cache / "x.tar", OPDOCK_CACHE_DIR=str(cache))
    assert done.status == 1 and str(path) in done.err


def test_clear_removes_what_is_damaged(opdock, cache):
    path = damage(cache)
    done = opdock("cache", "clear", "--json", OPDOCK_CACHE_DIR=str(cache))
    assert done.status == 0 and done.json["removed"] == 1
    assert not path.exists()


def test_a_cache_that_cannot_be(opdock, cache):
    cache.chmod(0o777)
    done = opdock("cache", "ls", OPDOCK_CACHE_DIR=str(cache))
    assert done.status == 1 and "cache-unusable: found" in done.err
    cache.chmod(0o700)


@pytest.mark.parametrize(
    "arguments, variables",
    [
        (["ls"], {"OPDOCK_CACHE_MAX_BYTES": "many"}),
        (["ls"], {"OPDOCK_CACHE_DIR": "relative"}),
        ([], {}),
        (["remove"], {}),
        (["export"], {}),
    ],
)
def test_bad_usage(opdock, arguments, variables):
    done = opdock("cache", *arguments, **variables)
    assert done.status == 2 and done.err.startswith("opdock: ")
