# SPDX-License-Identifier: Apache-2.0
"""Runs the opdock command as a user would, with an environment of its own."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

COMMAND = os.environ["OPDOCK_COMMAND"]
CASES = pathlib.Path(os.environ["OPDOCK_CASES"])
PLUGINS = pathlib.Path(os.environ["OPDOCK_PLUGINS"])


class Result:
    def __init__(self, done):
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def opdock(tmp_path):
    """Returns opdock(*arguments, **variables) -> Result; HOME is a fresh folder."""

    def run(*arguments, **variables):
        environment = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], **variables}
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                environment.setdefault(name, os.environ[name])
        return Result(
            subprocess.run(
                [COMMAND, *map(str, arguments)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
            )
        )

    return run


@pytest.fixture
def folder(tmp_path):
    """Returns a folder with a good plugin, one of another ABI, and a text file."""
    made = tmp_path / "plugins"
    made.mkdir()
    for name in ("good", "note_major"):
        shutil.copy(CASES / f"{name}.so", made)
    (made / "text.so").write_text("not a plugin\n")
    return made
