# SPDX-License-Identifier: Apache-2.0
"""Follows docs/guide/formulas.md: writes its files, runs its commands in order, and compares what
they write and print with what the page shows."""

import functools
import os
import re
import shlex

import pytest
from conftest import SOURCE, needs_private_build

TEXT = (SOURCE / "docs" / "guide" / "formulas.md").read_text()
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands(block):
    """Returns [(words, the text that the page shows as the output)] of a console block."""
    parts = re.split(r"^\$ opdock ", block, flags=re.MULTILINE)[1:]
    return [(shlex.split(part.partition("\n")[0]), part.partition("\n")[2]) for part in parts]


def is_like(told, shown):
    """Returns whether the output is the shown text; "…" stands for any text."""
    return re.fullmatch(
        ".*".join(map(re.escape, shown.strip().split("…"))), told.strip(), re.DOTALL
    )


def follow(command, folder):
    """Writes the page's files below the folder and runs its commands by command(*words), in the
    page's order; returns the names of the files and the commands' first words."""
    made, ran = set(), []
    for language, name, text in BLOCKS:
        if name:
            path = folder / name
            if path.exists() and name not in made:
                assert path.read_text() == text, f"{name} is not what `opdock new` writes"
            else:
                path.write_text(text)
            made.add(name)
        elif language == "console":
            for words, shown in commands(text):
                ran.append(words[0])
                if words[0] in ("install", "run"):
                    continue  # a GPU is needed to run it
                done = command(*words)
                told = done.stdout + done.stderr
                assert done.returncode == (2 if "opdock: " in shown else 0), told
                assert is_like(done.stdout or done.stderr, shown), told
    return made, ran


def test_the_page_works_as_it_says(opdock, quick_compiler, tmp_path):
    needs_private_build()
    made, ran = follow(functools.partial(opdock, CXX=quick_compiler), tmp_path)
    assert ran == ["new", "new", "show", "show", "test", "install", "run"]
    names = {"plugin.toml", "meson.build", "reference.py", "test_silu_mul.py"}
    assert made == {f"silu_mul/{name}" for name in names}


FORMULA, SPECIAL = "gate * sigmoid(gate) * up", "mean(where(x == inf, 1.0, x * x))"
WRONG = {
    "shapes and silu": ("plugin.toml", FORMULA, f"{FORMULA} * 1.001"),
    "special and norm": ("plugin.toml", "mean(x * x)", SPECIAL),
    "optional": ("reference.py", "y if weight is None", "y + 1 if weight is None"),
}


# Each compiles kernels for a software GPU: one by day, all with --nightly.
@pytest.mark.parametrize("tests", WRONG if os.environ.get("OPDOCK_TEST_NIGHTLY") else ["optional"])
def test_what_a_formula_has_wrong_is_found_without_a_test(opdock, quick_compiler, tmp_path, tests):
    needs_private_build()
    for _, name, text in BLOCKS:
        if name and "test_" not in name:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    # Compiling all dtypes for CPUs, each for four levels, would take most of the time.
    toml = tmp_path / "silu_mul" / "plugin.toml"
    one_dtype = toml.read_text().replace("[[op]]\n", '[[op]]\ndtypes = ["float32"]\n')
    toml.write_text(one_dtype)
    name, right, wrong = WRONG[tests]
    path = tmp_path / "silu_mul" / name
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    only = ["--", "-k", f"{tests} and float32"]
    words = ["test", "--device=soft", "--arch=sm_90", "silu_mul", *only]
    done = opdock(*words, CXX=quick_compiler)
    assert done.returncode == 1 and " failed" in done.stdout, done.stdout + done.stderr
