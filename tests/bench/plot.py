#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the charts and the tables of docs/concepts/performance.md from the records of gpu_ops.

tests/bench/plot.py [--check]     --check: exit with 1 if a file is not what this would write

Each op, case and peer counts with its newest record, relative to the copy timed before it.
"""

import sys
import textwrap
from pathlib import Path

import lines
import marks
import record

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "h100"
LIMITS_RECORDS = HERE / "records" / "h200"
PAGE = HERE.parents[1] / "docs" / "concepts" / "performance.md"
BEGIN = "<!-- made by tests/bench/plot.py -->"

DTYPES = ["float32", "bfloat16", "float16"]
GOAL = 0.97  # the share of the copy's rate to reach
# The ops of a family begin with one of these names. Ops outside all families are not shown.
FAMILIES = {
    "softmax": ("softmax", "log_softmax"),
    "cross_entropy": ("cross_entropy",),
    "norm": ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm"),
    "activation": ("bias_add", "bias_relu", "bias_gelu", "silu", "gelu", "geglu"),
    "rope": ("rope",),
    "adam": ("adam",),
}
LEFT_OUT = ("bias_gelu_nvcc",)  # an example of code that nvcc compiles


class Share:
    """The share of the copy's rate that one function reached: op, shape, dtype, who, share, and its
    record."""

    def __init__(self, row, copy):
        op, shape, *words = row["name"].split()
        self.dtype, self.who = words[-1], row["peer"]
        self.shape, self.row = shape, row
        self.length = int(shape.split("x")[-1])
        batched = ["batched"] if shape.count("x") > 1 else []
        self.op = " ".join([op, *batched, *words[:-1]])
        self.share = row["gb_per_s"] / copy


def newest(records):
    """Returns the newest Share of each op, shape, dtype and peer, in the order of the records, with
    batches and lists last."""
    copies, shares = {}, {}
    for row in records:
        if row["bench"] != "gpu_ops":
            continue
        op, case = row["name"].split(" ", 1)
        if op == "copy":
            copies[case] = row["gb_per_s"]
        # A peer twice as fast as a copy has done no work, like DeepSpeed's norms of 32768 columns.
        elif case in copies and op not in LEFT_OUT and row["gb_per_s"] < 2 * copies[case]:
            shares[row["name"], row["peer"]] = Share(row, copies[case])
    return sorted(shares.values(), key=lambda share: " " in share.op)


def family(shares, beginnings):
    """Returns the shares of ops that begin with one of `beginnings`."""
    return [share for share in shares if share.op.startswith(beginnings)]


def svg(title, shares):
    """Returns the family's chart."""
    rows = {}
    for share in sorted(shares, key=lambda share: share.length):
        panels = rows.setdefault(share.op, {})
        points = panels.setdefault(share.dtype, {}).setdefault(share.who, [])
        points.append((share.length, share.share))
    ops = dict.fromkeys(share.op for share in shares)
    return lines.chart(title, DTYPES, {op: rows[op] for op in ops})


def cell(own, others):
    """Returns (Opdock's share and the best peer's, bold where a goal is missed; whether one is
    missed)."""
    if own is None:
        return "", False
    best = max(others, key=lambda share: share.share, default=None)
    missed = own.share < GOAL or (best is not None and best.share > own.share)
    shown = f"**{own.share:.1%}**" if missed else f"{own.share:.1%}"
    return shown + (f" ({best.who} {best.share:.1%})" if best else ""), missed


def table(shares):
    """Returns (Markdown, cases, cases in which a goal is missed) of a family."""
    text = ["| | " + " | ".join(DTYPES) + " |", "|" + "---|" * (len(DTYPES) + 1)]
    count = missed = 0
    ops = list(dict.fromkeys(share.op for share in shares))
    by_length = sorted(shares, key=lambda share: (ops.index(share.op), share.length))
    for op, shape in dict.fromkeys((share.op, share.shape) for share in by_length):
        row = [share for share in shares if (share.op, share.shape) == (op, shape)]
        cells = []
        for dtype in DTYPES:
            case = [share for share in row if share.dtype == dtype]
            own = next((share for share in case if share.who == "opdock"), None)
            content, misses = cell(own, [share for share in case if share.who != "opdock"])
            cells.append(content)
            count, missed = count + (own is not None), missed + misses
        text.append(f"| {op} {shape} | " + " | ".join(cells) + " |")
    return "\n".join(text), count, missed


def measured(shares):
    """Returns the sentence on the machine and the commits of the records."""
    where = shares[-1].row["where"]
    commits = ", ".join(sorted({share.row["where"]["commit"] for share in shares}))
    warm = sorted({s.row["where"]["commit"] for s in shares if s.row.get("l2") != "cold"})
    text = f"{where['gpu']}, driver {where['driver']}; records of {commits}."
    if warm:
        text += f" Those of {', '.join(warm)} were timed without emptying the L2 before each call."
    return textwrap.fill(text, 110, break_on_hyphens=False)


def standing(shares):
    """Returns the sentence on how many cases Opdock is behind the fastest peer in, and by how
    much."""
    cases = {}
    for share in shares:
        cases.setdefault((share.op, share.shape, share.dtype), {})[share.who] = share.share
    behind = []
    for found in cases.values():
        own = found.pop("opdock", None)
        if own is not None and found:
            behind.append(max(found.values()) - own)
    counts = [sum(by > least for by in behind) for least in (0.005, 0.01, 0.02)]
    text = "{} cases have a peer. The fastest peer is ahead by more than 0.5% of the copy in {},"
    text += " by more than 1% in {} and by more than 2% in {}."
    return textwrap.fill(text.format(len(behind), *counts), 110, break_on_hyphens=False)


LIMITS = {
    "memory_pct": "memory busy",
    "l2_pct": "L2 busy",
    "issue_pct": "schedulers busy",
    "warps_pct": "warps resident",
    "registers": "registers",
    "threads": "threads a block",
    "waits": "cycles that a warp waits most for",
}


def limits():
    """Returns the table of limits.py's newest run."""
    rows = [row for row in record.read(LIMITS_RECORDS) if row["bench"] == "limits"]
    text = ["### What limits those below the copy", ""]
    where = rows[-1]["where"]
    about = f"These are Nsight Compute's readings of one launch each, on an {where['gpu']}, of"
    about += f" {where['commit']}: shares of what the GPU could do at most, from the launch's start"
    about += " to its end."
    text += [textwrap.fill(about, 110, break_on_hyphens=False), ""]
    text += ["| | " + " | ".join(LIMITS.values()) + " |", "|" + "---|" * (len(LIMITS) + 1)]
    for row in {r["name"]: r for r in rows}.values():
        cells = [f"{row[k]:.0f}%" if k.endswith("pct") else row[k] for k in LIMITS]
        cells = [f"{c:.0f}" if isinstance(c, float) else c for c in cells]
        text.append(f"| {row['name']} | " + " | ".join(cells) + " |")
    return [*text, ""]


def made(shares):
    """Returns the text between the marks of the page."""
    shown = [s for s in shares if s.op.startswith(sum(FAMILIES.values(), ()))]
    text = [measured(shown), "", standing(shown), ""]
    for name, beginnings in FAMILIES.items():
        own = family(shares, beginnings)
        if not own:
            continue
        content, count, missed = table(own)
        text += [f"### {name}", "", f"![{name}: share of a copy](performance-{name}.svg)", ""]
        text += [f"In {missed} of {count} cases a goal is missed.", "", content, ""]
    return "\n".join(text + limits())


def main():
    shares = newest(record.read(RECORDS))
    gpu = shares[-1].row["where"]["gpu"]
    written = {}
    for name, beginnings in FAMILIES.items():
        own = family(shares, beginnings)
        if own:
            title = f"{name} on {gpu}: share of a device copy's bytes a second, by row length"
            written[PAGE.with_name(f"performance-{name}.svg")] = svg(title, own)
    written[PAGE] = marks.filled(PAGE, BEGIN, made(shares))
    for path, content in written.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            sys.exit(f"{path} is not what its records give; run ./dev bench --plot")


if __name__ == "__main__":
    main()
