#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks.md and its charts from the records: the newest of each case.

tests/bench/table.py [--check]     --check: exit with 1 if a file is not what this would write
"""

import json
import statistics
import sys
import textwrap
from pathlib import Path

import chart
import inference_table
import record

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"

HEAD = """\
# Benchmarks

Made by `tests/bench/table.py` from `tests/bench/records/`, which `./dev bench --record NAME`
writes. Each bench is one run on one machine; opdock and its peers were measured in the same run.

{summary}

## All results

Of gpu_ops: bytes a second beside those of a device copy of as many bytes. `of peer`: the median
time divided by that of the row named after the ×; below 1 opdock is faster. `least`, `median`,
`most`: the peer's time divided by opdock's, over all cases; above 1 opdock is faster.
"""

# What the summary and the charts show: (what, bench, member, {who: row's name}), Opdock first. Of a
# row that names its peer, the name alone is not enough: (name, peer).
NOOP, COMPILE = ("python_noop", "median_ns"), ("compile", "median_ms")
SUMMARY = [
    ("no-op call from Python, torch tensor", *NOOP, {
        "opdock": "opdock noop, torch",
        "tvm-ffi": "tvm-ffi noop, torch",
        "pybind11 extension": "pybind11 extension noop, torch",
    }),
    ("no-op call from Python, NumPy array", *NOOP, {
        "opdock": "opdock noop, NumPy",
        "tvm-ffi": "tvm-ffi noop, NumPy",
    }),
    ("softmax of 4x8 with a fresh result", *NOOP, {
        "opdock": "opdock softmax 4x8 with a fresh result, torch",
        "torch": "torch.softmax 4x8",
    }),
    ("launch of a CUDA kernel from Python", "compile", "median_us", {
        "opdock": "opdock kernel, launch",
        "CuPy": "cupy.RawKernel, launch",
        "torch": "torch.cuda._compile_kernel, launch",
    }),
    ("compiling a second CUDA kernel", *COMPILE, {
        "opdock": "opdock.compile, second",
        "CuPy": "cupy.RawKernel, second",
        "torch": "torch.cuda._compile_kernel, second",
    }),
    ("first use of a C++ op that is source", "first_use", "median_ms", {
        "opdock": "opdock source plugin, first use",
        "tvm-ffi": "tvm-ffi load_inline, first use",
        "torch": "torch cpp_extension.load_inline, first use",
    }),
]  # fmt: skip
# And of each op that gpu_ops measured these.
GPU_CASES = ["8192x8192 bfloat16", "65536x1024 float32"]

# What a row of the Python benches is compared with, where it was measured too.
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


def newest(path):
    """The newest result of each case and peer, in the order of the file; the copies of each run."""
    results = {}
    for row in record.read(path):
        run = json.dumps(row["where"]) if record.is_copy(row) else None
        case = (row["bench"], row["name"], row.get("peer"), run)
        results.pop(case, None)
        results[case] = row
    return list(results.values())


def place(where):
    """One sentence on the machine and the versions of a row."""
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    gpu = f"{where['gpu']}, driver {where['driver']}, " if where["gpu"] else ""
    return (
        f"{gpu}{where['cpu']}, {where['cores']} cores; Python {where['python']}, {versions}; "
        f"{where['date']}, commit {where['commit']}."
    )


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


def by_op(rows):
    """Those of cpu_ops, which are many, as one for each op and number of threads: how many times as
    fast as torch."""
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
    """Those of gpu_ops as one for each op, shape and dtype: the shares of the copy's rate."""
    copies, cases = {}, {}
    for row in rows:
        op, _, case = row["name"].partition(" ")
        if op == "copy":
            copies[case] = row["gb_per_s"]
        # What is twice as fast as a copy has moved nothing: DeepSpeed's norms of 32768 columns.
        elif case in copies and row["gb_per_s"] < 2 * copies[case]:
            found = cases.setdefault(row["name"], {"name": row["name"], "where": row["where"]})
            found["copy GB/s"] = round(copies[case])
            found[row["peer"]] = f"{row['gb_per_s'] / copies[case]:.1%}"
    return list(cases.values())


# Benches with more rows than a page is for.
SHORTER = {"cpu_ops": by_op, "gpu_ops": by_case, "inference": inference_table.by_function}


def tables(path):
    """Markdown of one records file: of each bench a table for each of its runs."""
    runs = {}
    for row in newest(path):
        runs.setdefault(row["bench"], {}).setdefault(json.dumps(row["where"]), []).append(row)
    text = [f"## {path.stem}\n"]
    for bench, of_bench in runs.items():
        text.append(f"### {bench}\n")
        for rows in of_bench.values():
            text += table(SHORTER.get(bench, list)(rows))
    return "\n".join(text)


def table(rows):
    """Lines of Markdown: where the rows of one run are from, and what they say."""
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


def gpu_ops(rows):
    """What the summary shows of gpu_ops, as SUMMARY."""
    own = [row for row in rows if row["bench"] == "gpu_ops" and row["peer"] == "opdock"]
    for op in dict.fromkeys(row["name"].split()[0] for row in own):
        for case in (f"{op} {case}" for case in GPU_CASES):
            whose = ("opdock", "torch", "torch.compile")
            yield case, "gpu_ops", "gb_per_s", {who: (case, who) for who in whose}


def comparisons(rows):
    """[(what, member, {who: value})] of the summary, as far as Opdock and a peer were measured."""
    found = []
    by_name = {(row["bench"], row["name"], row.get("peer")): row for row in rows}
    for what, bench, member, names in [*SUMMARY, *gpu_ops(rows)]:
        values = {}
        for who, name in names.items():
            name, peer = name if isinstance(name, tuple) else (name, None)
            row = by_name.get((bench, name, peer))
            if row and member in row:
                values[who] = row[member]
        if "opdock" in values and len(values) > 1:
            found.append((what, member, values))
    return found


def times(member, values):
    """Values as times, or, of a rate, as what is proportional to one."""
    return {who: 1 / v if member == "gb_per_s" else v for who, v in values.items()}


def summary(path, rows):
    """(Markdown, SVG) of one records file's comparisons, or None if it has none of them."""
    found = comparisons(rows)
    if not found:
        return None
    units = {"median_ns": "ns", "median_us": "µs", "median_ms": "ms", "gb_per_s": "GB/s"}
    text = [f"### {place(rows[-1]['where']).split(';')[0]}\n"]
    text += ["| | Opdock | peers, and their time divided by Opdock's |", "|---|---|---|"]
    for what, member, values in found:
        taken = times(member, values)
        shown = {who: f"{v:,.{0 if v >= 100 else 1}f} {units[member]}" for who, v in values.items()}
        peers = [
            f"{who} {shown[who]} ({taken[who] / taken['opdock']:.2f}×)" for who in list(values)[1:]
        ]
        text.append(f"| {what} | {shown['opdock']} | {', '.join(peers)} |")
    text.append(f"\n![Opdock beside its peers](benchmarks-{path.stem}.svg)\n")
    title = f"Opdock beside its peers: {place(rows[-1]['where']).split(',')[0]}"
    chart_rows = [(what, times(member, values)) for what, member, values in found]
    return "\n".join(text), chart.bars(title, chart_rows)


def main():
    files = sorted((HERE / "records").glob("*.jsonl"))
    if "--check" not in sys.argv[1:]:
        for path in files:
            record.prune(path)
    names = {row["name"] for path in files for row in record.read(path)}
    wanted = {name for row, peers in PEERS.items() for name in (row, *peers)}
    for _, _, _, rows in SUMMARY:
        wanted |= {name[0] if isinstance(name, tuple) else name for name in rows.values()}
    if wanted - names:
        sys.exit(f"found no record of {sorted(wanted - names)}; rename it here as the bench does")
    written, summaries = {}, []
    for path in files:
        made = summary(path, newest(path))
        if made:
            summaries.append(made[0])
            written[PAGE.with_name(f"benchmarks-{path.stem}.svg")] = made[1]
    head = HEAD.format(summary="\n".join(summaries).rstrip())
    written[PAGE] = "\n".join([head, *map(tables, files)])
    for path, content in written.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            sys.exit(f"{path} is out of date")


if __name__ == "__main__":
    main()
