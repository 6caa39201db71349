#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks.md from the records: the newest run of each records file.

tests/bench/table.py [--check]     --check: exit with 1 if the page is not what this would write
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"

HEAD = """\
# Benchmarks

Made by `tests/bench/table.py` from `tests/bench/records/`, which `./dev bench --record NAME`
writes. Each table is one run on one machine; opdock and its peers were measured in the same run.
"""


def newest(lines):
    """The last result of each (bench, name, peer), in the order of the file."""
    results = {}
    for line in lines:
        row = json.loads(line)
        results.pop((row["bench"], row["name"], row.get("peer")), None)
        results[row["bench"], row["name"], row.get("peer")] = row
    return results.values()


def place(where):
    """One sentence on the machine and the versions of a row."""
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    gpu = f"{where['gpu']}, driver {where['driver']}, " if where["gpu"] else ""
    return (
        f"{gpu}{where['cpu']}, {where['cores']} cores; Python {where['python']}, {versions}; "
        f"{where['date']}, commit {where['commit']}."
    )


def tables(path):
    """Markdown of one records file: a table for each bench."""
    text = [f"## {path.stem}\n"]
    rows = list(newest(path.read_text().splitlines()))
    for bench in dict.fromkeys(row["bench"] for row in rows):
        own = [row for row in rows if row["bench"] == bench]
        columns = list(dict.fromkeys(key for row in own for key in row))
        columns = [c for c in columns if c not in ("bench", "where")]
        text += [f"### {bench}\n", place(own[-1]["where"]) + "\n"]
        text += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        for row in own:
            text.append("| " + " | ".join(str(row.get(c, "")) for c in columns) + " |")
        text.append("")
    return "\n".join(text)


def main():
    files = sorted((HERE / "records").glob("*.jsonl"))
    page = "\n".join([HEAD, *map(tables, files)])
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.exists() and PAGE.read_text() == page else f"{PAGE} is out of date")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
