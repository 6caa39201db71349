#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much of core and plugins the tests execute, by folder, and compares two counts.

    coverage.py BUILD_FOLDER >AFTER       of a build with -Db_coverage=true whose tests have run
    coverage.py --compare BEFORE AFTER    names the folders that are more than half a point lower

It prints a line of JSON for each folder: lines and branches, all and executed. It needs gcovr. The
build: meson setup build/coverage -Dbuildtype=plain -Db_coverage=true; tests/run.py runs its tests.

A process writes its counts when it exits normally, so code in children that are killed, or that
end by _exit(), is missing, in both counts alike. The exit status is 1 if a folder is lower or has
disappeared.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("line", "branch")
MAX_LOWER = 0.5  # percentage points


def measure(build):
    """Prints a line for each folder such as core/call or plugins/norm, in their order."""
    if importlib.util.find_spec("gcovr") is None:
        sys.exit(f"coverage.py: found no gcovr, wanted it; {sys.executable} -m pip install gcovr")
    # Branches that exceptions would take are left out, since every call of a function has one.
    words = [sys.executable, "-m", "gcovr", f"--root={ROOT}", f"--object-directory={build}"]
    words += ["--filter=core/", "--filter=plugins/", "--exclude=.*/test_", "--json-summary=-"]
    words += ["--exclude-throw-branches", "--exclude-unreachable-branches", f"-j{os.cpu_count()}"]
    words += ["--merge-mode-functions=separate", "--gcov-ignore-parse-errors=all", str(build)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    folders = {}
    for file in json.loads(done.stdout)["files"]:
        counts = folders.setdefault("/".join(file["filename"].split("/")[:2]), Counter())
        for kind in KINDS:
            counts[f"{kind}_total"] += file[f"{kind}_total"]
            counts[f"{kind}_covered"] += file[f"{kind}_covered"]
    if not folders:
        sys.exit(f"coverage.py: found no counts in {build}, wanted those of tests that have run in "
                 "a build with -Db_coverage=true")  # fmt: skip
    for folder, counts in sorted(folders.items()):
        print(json.dumps({"folder": folder, **counts}))


def read(path):
    """Reads {folder: {kind: percent}} from what measure() has printed."""
    found = {}
    for counts in map(json.loads, Path(path).read_text().splitlines()):
        found[counts["folder"]] = {
            kind: 100 * counts[f"{kind}_covered"] / max(1, counts[f"{kind}_total"])
            for kind in KINDS
        }
    return found


def compare(before, after):
    """Prints each folder that is lower; returns whether there is one."""
    is_lower = False
    now = read(after)
    for folder, percents in read(before).items():
        if folder not in now:
            print(f"{folder}: not there any more")
            is_lower = True
            continue
        for kind, percent in percents.items():
            if percent - now[folder][kind] > MAX_LOWER:
                print(f"{folder}: {kind} coverage {percent:.1f} % -> {now[folder][kind]:.1f} %")
                is_lower = True
    return is_lower


def main():
    match sys.argv[1:]:
        case ["--compare", before, after]:
            sys.exit(1 if compare(before, after) else 0)
        case [build] if not build.startswith("-"):
            measure(Path(build).resolve())
        case _:
            sys.exit("usage: coverage.py BUILD_FOLDER | --compare BEFORE AFTER")


if __name__ == "__main__":
    main()
