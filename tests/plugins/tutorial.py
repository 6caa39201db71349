# SPDX-License-Identifier: Apache-2.0
"""Follows documentation pages literally: writes their files, builds them, and runs their Python.

    tutorial.py MARKDOWN FILES RUNS WORK_FOLDER SOURCE_ROOT MESON OPDOCK_PACK [MESON_OPTION…]

MARKDOWN is a page, or several separated by commas, which are followed in order. FILES and RUNS are
the expected numbers of blocks of each kind, so that a misspelt block header is noticed.

A code block whose first line is "```LANGUAGE PATH" is the file PATH; "```python run" is run after
the plugins have been built from the files so far, and so is `opdock run` in a console block that
shows what it prints. Everything happens in WORK_FOLDER, with the wrapper project that builds
plugins outside of Opdock's tree.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

markdown, files, runs, work, source, meson, pack = sys.argv[1:8]
options = sys.argv[8:]
source, work = Path(source), Path(work)


def run(*command, **environment):
    result = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def prepare():
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source / "core/pack/plugin-build", work)
    (work / "plugins").mkdir()
    for name in ("meson.build", "opdock-plugin.map", "conftest.py", "pairwise.py"):
        shutil.copy(source / "plugins" / name, work / "plugins")


def build():
    folder = work / "build"
    settings = [f"-Dopdock-pack={pack}", f"-Dinclude-dir={source}/core/include"]
    settings += [f"-Ddevice-dir={source}/core/device", *options]
    again = ["--reconfigure"] if folder.exists() else []
    run(*meson.split(), "setup", *again, folder, work, "-Dwerror=true", *settings)
    run(*meson.split(), "compile", "-C", folder)
    return folder / "plugins"


prepare()
text = "".join(Path(page).read_text() for page in markdown.split(","))
blocks = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
opdock = Path(pack).parents[1] / "cli" / "opdock"
ran = written = built = 0
for language, name, body in blocks:
    commands = []
    if language == "console":
        shown = re.findall(
            r"^\$ (?:\./dev )?opdock (run .*)\n((?:[^$\n].*\n)+)", body, re.MULTILINE
        )
        commands = [((opdock, *shlex.split(command)), output) for command, output in shown]
    elif name == "run":
        commands = [((sys.executable, "-c", body), None)]
    elif name:
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
        written += 1
    if commands and built < written:
        plugins = build()
        built = written
    for command, output in commands:
        told = run(*command, OPDOCK_PLUGIN_PATH=str(plugins))
        print(told, end="")
        assert output in (None, told), f"{command[1:]}: found the output above, wanted {output}"
        ran += 1
if any(name.split("/")[-1].startswith("test_") for _, name, _ in blocks):
    tests = run(
        *[
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
        ],
        *[work / "plugins"],
        OPDOCK_PLUGIN_PATH=str(plugins),
    )
    print(tests.strip().splitlines()[-1])
found = (written, ran)
assert found == (int(files), int(runs)), f"found {found} files and runs, wanted {files} and {runs}"

# The pages promise how short the smallest plugin is.
smallest = [body for _, name, body in blocks if name.endswith(".cc")][0]
assert len(smallest.strip().splitlines()) <= 25, "the smallest plugin has grown beyond 25 lines"
assert len([b for _, n, b in blocks if n.endswith("meson.build")][0].splitlines()) <= 5
