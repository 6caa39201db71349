#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/benchmarks.md, its charts, and what other pages say of the records. The
newest record of each case counts.

tests/bench/table.py [--check | --tables]

--check: exit with 1 if a file is not what this would write. --tables: write only the tables of all
cases, which are too long for a page, into BUILD/benchmarks, a file for each card.
"""

import json
import os
import statistics
import sys
import textwrap
from pathlib import Path

import bare
import chart
import inference_page
import inference_table
import marks
import record
import summary

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reference" / "benchmarks.md"
DEEPSPEED = PAGE.with_name("deepspeed.md")
README = HERE.parents[1] / "README.md"
TABLES = Path(os.environ.get("OPDOCK_BUILD_DIR", HERE.parents[1] / "build")) / "benchmarks"
BEGIN = "<!-- made by tests/bench/table.py -->"

HEAD = """\
# Benchmarks

`tests/bench/table.py` writes this page from `tests/bench/records/`, to which `./dev bench --record
NAME` adds. The newest record of each case and peer counts. The cases of a table may come from
several runs, at the commits that are named. Opdock and its peers were measured in one run of a
case, or, where the summary says so, in two runs on one machine, each next to a device copy.

Each row of the first table, where there is one, is a single figure. Each row of the second is an op
or a group of calls, with the peer that is the fastest in each case, of torch, torch.compile, Liger,
quack, FlashInfer, DeepSpeed and others. A ratio is that peer's time divided by Opdock's: the median
of the cases, and the worst case. Below 1 Opdock is slower.

The tables of all cases are not kept here. `./dev bench --tables` writes them from the same records
into `build/benchmarks/CARD.md`, a file for each card: {files}.

{summary}
"""

# The beginning of each file with the tables of all cases.
TABLES_HEAD = """\
# All results: {name}

`./dev bench --tables` writes this file from `tests/bench/records/{name}/`.

- gpu_ops: bytes per second as a share of those of a device copy of as many bytes. A * marks a case
  in which the device had to wait for the host within the time that was measured (`host` in other
  tables).
- `of peer`: the median time divided by that of the row named after the ×. Below 1 Opdock is faster.
- `least`, `median`, `most`: the peer's time divided by Opdock's, over all cases. Above 1 Opdock is
  faster.
- formulas: a call's time, and the rate as a share of that of a copy of as many bytes; a * marks
  times that include the host's (`host`, `wall`).
- inference: `wrong` counts Opdock's results outside the tolerances of the tests here, and
  DeepSpeed's outside those of its own tests. `slower` counts the calls that take longer than
  DeepSpeed's, of all that ran in both, whatever their results.
"""

# The peers that a row of the Python benches is compared with, where they were measured too.
PEERS = {
    "opdock noop, NumPy": ["tvm-ffi noop, NumPy"],
    "opdock noop, NumPy, by name": ["tvm-ffi noop, NumPy"],
    "opdock noop, torch": ["tvm-ffi noop, torch", "pybind11 extension noop, torch"],
    "opdock noop, torch, by name": ["tvm-ffi noop, torch", "pybind11 extension noop, torch"],
    "opdock noop, torch parameter": ["tvm-ffi noop, torch", "pybind11 extension noop, torch"],
    "opdock softmax 4x8 with a fresh result, torch": ["torch.softmax 4x8"],
    "opdock noop": ["tvm-ffi noop"],
    "opdock noop with one launch": ["bare cuLaunchKernel, C"],
    "opdock softmax 8x64": ["torch.softmax 8x64"],
}


def place(where):
    """Returns one sentence on the machine and the versions of a row."""
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    gpu = f"{where['gpu']}, driver {where['driver']}, " if where["gpu"] else ""
    return (
        f"{gpu}{where['cpu']}, {where['cores']} cores; Python {where['python']}, {versions}; "
        f"{where['date']}, commit {where['commit']}."
    )


def of_peer(rows):
    """Returns {row's number: ratios to its peers' median times}, for the peers that were
    measured."""
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


def by_op(rows):
    """Condenses the many rows of cpu_ops to one for each op and number of threads: how many times
    as fast as torch it is."""
    ratios = {}
    for row in rows:
        case, _, threads = row["name"].rpartition(", ")
        ratios.setdefault((case.split()[0], threads), []).append(row["torch_over_opdock"])
    return [
        {
            "name": f"{op}, {threads}",
            "cases": len(found),
            "least": min(found),
            "median": round(statistics.median(found), 2),
            "most": max(found),
            "where": rows[-1]["where"],
        }
        for (op, threads), found in ratios.items()
    ]


def by_case(rows):
    """Condenses the rows of gpu_ops to one for each op, shape and dtype: the shares of the copy's
    rate."""
    copies, cases = {}, {}
    for row in rows:
        op, _, case = row["name"].partition(" ")
        if op == "copy":
            copies[case] = row["gb_per_s"]
        # A peer twice as fast as a copy has done no work, like DeepSpeed's norms of 32768 columns.
        elif case in copies and row["gb_per_s"] < 2 * copies[case]:
            found = cases.setdefault(row["name"], {"name": row["name"], "where": row["where"]})
            found["copy GB/s"] = round(copies[case])
            star = "*" if row.get("host") else ""
            found[row["peer"]] = f"{row['gb_per_s'] / copies[case]:.1%}{star}"
    return list(cases.values())


def by_peer(rows):
    """Condenses the rows of formulas to one for each case: the peers' times, and the share of the
    copy's rate."""
    cases = {}
    for row in rows:
        for unit, shown in (("us", "µs"), ("ms", "ms")):
            if unit in row:
                found = cases.setdefault(row["name"], {"name": row["name"], "where": row["where"]})
                share = f", {row['of_copy']:.1%}" if "of_copy" in row else ""
                star = "*" if row.get("host") or row.get("wall") else ""
                found[row["peer"]] = f"{row[unit]:.2f} {shown}{share}{star}"
    return list(cases.values())


def left_out(rows):
    """Returns lines on the cases of formulas that peers do not have, and why."""
    found = [f"{r['peer']}, {r['name']}: {r['left_out']}" for r in rows if "left_out" in r]
    return ["Left out:\n", *(f"- {one}" for one in found), ""] if found else []


def cpu_behind(rows):
    """Returns lines on the cases of cpu_ops in which torch is faster."""
    behind = [row for row in rows if row["torch_over_opdock"] < 1]
    ratios = {row["name"]: row["torch_over_opdock"] for row in behind}
    text = f"Torch is faster in {len(behind)} of {len(rows)} cases"
    if behind:
        worst = min(ratios, key=ratios.get)
        low, high = min(ratios.values()), max(ratios.values())
        text += f": its time is {low:.2f} to {high:.3f} of Opdock's, the lowest for {worst}"
    return [textwrap.fill(text + ".", 110, break_on_hyphens=False) + "\n"]


# Text before a bench's table.
ABOUT = {"cpu_ops": cpu_behind, "formulas": left_out}
# Benches with too many rows for a page, which are condensed.
SHORTER = {"cpu_ops": by_op, "gpu_ops": by_case, "inference": inference_table.by_function}
SHORTER |= {"formulas": by_peer}


def tables(name, rows):
    """Returns Markdown of one card's records: for each bench, a table for each of its runs."""
    runs = {}
    for row in rows:
        runs.setdefault(row["bench"], {}).setdefault(json.dumps(row["where"]), []).append(row)
    text = [TABLES_HEAD.format(name=name)]
    for bench, of_bench in runs.items():
        text.append(f"## {bench}\n")
        for rows in of_bench.values():
            text += ABOUT.get(bench, lambda _: [])(rows) + table(SHORTER.get(bench, list)(rows))
    return "\n".join(text)


def table(rows):
    """Returns lines of Markdown: where the rows of one run were measured, and the rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns = [c for c in columns if c not in ("bench", "where")]
    if derived := of_peer(rows):
        columns.append("of peer")
        rows = [row | {"of peer": derived.get(i, "")} for i, row in enumerate(rows)]
    where = textwrap.fill(place(rows[-1]["where"]), 110, break_on_hyphens=False)
    text = [where + "\n", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        text.append("| " + " | ".join(str(row.get(c, "")) for c in columns) + " |")
    return [*text, ""]


def of_card(name, rows):
    """Returns (Markdown, SVG) of the summary of one card's records, or None if nothing in them has
    a peer."""
    single, groups = summary.singles(rows), summary.groups(rows)
    if not single and not groups:
        return None
    whose = place(rows[-1]["where"]).split(";")[0]
    about = f"Measured {summary.measured(rows)}."
    if apart := summary.apart(rows):
        about += f" In {apart} cases of gpu_ops a peer was measured in another run than Opdock."
    about = textwrap.fill(about, 110, break_on_hyphens=False)
    text = [f"## {whose}\n", about + "\n"]
    text += summary.single_table(single) + summary.group_table(groups)
    text.append(f"![Opdock compared with the fastest peers](benchmarks-{name}.svg)\n")
    title = f"Opdock compared with the fastest peers: {whose.split(',')[0]}"
    return "\n".join(text), chart.ranges(title, summary.ranges(rows))


def write_tables(cards):
    """Writes the tables of all cases of each card into TABLES."""
    TABLES.mkdir(parents=True, exist_ok=True)
    for card in cards:
        written = TABLES / f"{card.name}.md"
        written.write_text(tables(card.name, record.newest(record.read(card))))
        print(written)


def main():
    cards = sorted({file.parent for file in (HERE / "records").glob("*/*.jsonl")})
    if "--tables" in sys.argv[1:]:
        write_tables(cards)
        return
    if "--check" not in sys.argv[1:]:
        for card in cards:
            record.prune(card)
    newest = {card.name: record.newest(record.read(card)) for card in cards}
    names = {row["name"] for rows in newest.values() for row in rows}
    wanted = {name for row, peers in PEERS.items() for name in (row, *peers)}
    for _, _, _, rows in summary.SINGLE:
        wanted |= set(rows.values())
    if wanted - names:
        sys.exit(f"found no record of {sorted(wanted - names)}; rename it here as the bench does")
    written, summaries = {}, []
    for name, rows in newest.items():
        made = of_card(name, rows)
        if made:
            summaries.append(made[0])
            written[PAGE.with_name(f"benchmarks-{name}.svg")] = made[1]
    names = ", ".join(f"`{name}.md`" for name in newest)
    written[PAGE] = HEAD.format(files=names, summary="\n".join(summaries).rstrip())
    made = [inference_page.made(rows) for rows in newest.values()]
    written[DEEPSPEED] = marks.filled(DEEPSPEED, BEGIN, "\n".join(filter(None, made)))
    times = bare.sentence([row for rows in newest.values() for row in rows])
    times = textwrap.fill(times, 110, break_on_hyphens=False, break_long_words=False)
    written[README] = marks.filled(README, BEGIN, times + "\n")
    for path, content in written.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            sys.exit(f"{path} is out of date; run ./dev bench --plot")


if __name__ == "__main__":
    main()
