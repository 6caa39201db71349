#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much of core and plugins the tests execute, by folder, and compares two counts.

    coverage.py BUILD_FOLDER >AFTER       of a build with -Db_coverage=true whose tests have run
    coverage.py --compare BEFORE AFTER    names the folders that are more than half a point lower

It prints a line of JSON for each folder: lines and branches, all and executed. It needs gcov, which
belongs to the compiler. The build: meson setup build/coverage -Dbuildtype=plain -Db_coverage=true;
tests/run.py runs its tests.

A process writes its counts when it exits normally, so code in children that are killed, or that
end by _exit(), is missing, in both counts alike. The exit status is 1 if a folder is lower or has
disappeared.
"""

import itertools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("line", "branch")
MAX_LOWER = 0.5  # percentage points


def is_counted(file):
    return file.parts[0] in ("core", "plugins") and not file.name.startswith("test_")


def counts_of(notes):
    """Returns {file: {line: (how often it was executed, that of each branch)}} for some objects,
    each given by the .gcno file that the compiler wrote beside it."""
    words = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *map(str, notes)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode != 0:  # a process that was killed may have left half a file
        print(f"not counted: gcov cannot read {', '.join(map(str, notes))}", file=sys.stderr)
        return {}
    found = {}
    for report in filter(None, done.stdout.splitlines()):
        report = json.loads(report)
        for entry in report["files"]:
            path = Path(os.path.normpath(Path(report["current_working_directory"], entry["file"])))
            if path.is_relative_to(ROOT) and is_counted(path.relative_to(ROOT)):
                lines = found.setdefault(str(path.relative_to(ROOT)), {})
                for line in entry["lines"]:
                    # Branches that exceptions would take are left out, since every call has one.
                    branches = [b["count"] for b in line["branches"] if not b["throw"]]
                    add(lines, line["line_number"], line["count"], branches)
    return found


def add(lines, number, count, branches):
    """Adds one function's counts of a line. Instances of a template have the same branches, and so
    has an inline function in each object."""
    before, merged = lines.get(number, (0, []))
    pairs = itertools.zip_longest(merged, branches, fillvalue=0)
    lines[number] = (before + count, [sum(pair) for pair in pairs])


def measure(build):
    """Prints a line for each folder such as core/call or plugins/norm, in their order."""
    if shutil.which("gcov") is None:
        sys.exit("coverage.py: found no gcov, wanted that of the compiler; install g++")
    notes = sorted(build.rglob("*.gcno"))
    if not any(build.rglob("*.gcda")):
        sys.exit(f"coverage.py: found no counts in {build}, wanted those of tests that have run in "
                 "a build with -Db_coverage=true")  # fmt: skip
    files = {}
    with multiprocessing.Pool() as pool:
        for part in pool.imap_unordered(counts_of, ([note] for note in notes)):
            for file, lines in part.items():
                merged = files.setdefault(file, {})
                for number, counts in lines.items():
                    add(merged, number, *counts)
    folders = {}
    for file, lines in files.items():
        folder = folders.setdefault("/".join(file.split("/")[:2]), Counter())
        source = (ROOT / file).read_text().splitlines()
        for number, (count, branches) in lines.items():
            folder["line_total"] += 1
            folder["line_covered"] += count > 0
            # The branches of a line that is only a brace are calls of destructors.
            if re.search(r"\w", source[number - 1]):
                folder["branch_total"] += len(branches)
                folder["branch_covered"] += sum(n > 0 for n in branches)
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
