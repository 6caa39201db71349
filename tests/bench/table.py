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

`of copy`: bytes a second beside a device copy of the same shape and dtype. `of peer`: the median
time divided by that of the row named after the ×; below 1 opdock is the quicker one.
"""

# What a row of the Python benches is compared with, where it was measured too.
PEERS = {
    "opdock noop, NumPy": ["tvm-ffi noop, NumPy"],
    "opdock noop, NumPy, by name": ["tvm-ffi noop, NumPy"],
    "opdock noop, torch": ["tvm-ffi noop, torch", "pybind11 extension noop, torch"],
    "opdock noop, torch, by name": ["tvm-ffi noop, torch", "pybind11 extension noop, torch"],
    "opdock noop, torch parameter": ["tvm-ffi noop, torch", "pybind11 extension noop, torch"],
    "opdock softmax 4x8 with a fresh result, torch": ["torch.softmax 4x8"],
    "opdock noop": ["tvm-ffi noop"],
    "opdock noop with one launch": ["C++ bare_launch"],
    "opdock softmax 8x64": ["torch.softmax 8x64"],
}


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


def of_copy(rows):
    """{row's number: share of the copy's bytes a second}, where a copy of its shape is there."""
    copies, shares = {}, {}
    rates = [(number, row) for number, row in enumerate(rows) if "gb_per_s" in row]
    for _, row in rates:
        op, _, case = row["name"].partition(" ")
        if op == "copy":
            copies[case] = row["gb_per_s"]
    for number, row in rates:
        op, _, case = row["name"].partition(" ")
        if op != "copy" and case in copies:
            shares[number] = f"{row['gb_per_s'] / copies[case]:.1%}"
    return shares


def of_peer(rows):
    """{row's number: ratios to its peers' median times}, of the peers that were measured."""
    medians = {}
    for row in rows:
        for key in ("median_ns", "median_us"):
            if key in row:
                medians[row["name"]] = row[key]
    ratios = {}
    for number, row in enumerate(rows):
        peers = [peer for peer in PEERS.get(row["name"], ()) if peer in medians]
        if row["name"] in medians and peers:
            own = medians[row["name"]]
            ratios[number] = ", ".join(f"{own / medians[peer]:.2f} × {peer}" for peer in peers)
    return ratios


def tables(path):
    """Markdown of one records file: a table for each bench."""
    text = [f"## {path.stem}\n"]
    rows = list(newest(path.read_text().splitlines()))
    for bench in dict.fromkeys(row["bench"] for row in rows):
        own = [row for row in rows if row["bench"] == bench]
        columns = list(dict.fromkeys(key for row in own for key in row))
        columns = [c for c in columns if c not in ("bench", "where")]
        for title, derived in (("of copy", of_copy(own)), ("of peer", of_peer(own))):
            if derived:
                columns.append(title)
                own = [row | {title: derived.get(i, "")} for i, row in enumerate(own)]
        text += [f"### {bench}\n", place(own[-1]["where"]) + "\n"]
        text += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        for row in own:
            text.append("| " + " | ".join(str(row.get(c, "")) for c in columns) + " |")
        text.append("")
    return "\n".join(text)


def main():
    files = sorted((HERE / "records").glob("*.jsonl"))
    names = {json.loads(line)["name"] for path in files for line in path.open()}
    lost = {name for row, peers in PEERS.items() for name in (row, *peers)} - names
    if lost:
        sys.exit(f"found no record of {sorted(lost)}; rename it in PEERS as the bench does")
    page = "\n".join([HEAD, *map(tables, files)])
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.exists() and PAGE.read_text() == page else f"{PAGE} is out of date")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
