#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of all of DeepSpeed's ops in docs/reference/deepspeed.md, from the package's
lists of ops, the plugins' plugin.toml and the records of the benches.

    docs/reference/make_deepspeed.py           replaces what stands between the two marks
    docs/reference/make_deepspeed.py --check   changes nothing; exit status 1 if it would

The rest of the page is written by hand.
"""

import ast
import json
import re
import runpy
import statistics
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "python" / "opdock" / "compat" / "deepspeed"
RECORDS = ROOT / "tests" / "bench" / "records"
PAGE = ROOT / "docs" / "reference" / "deepspeed.md"
BEGIN = "<!-- ops: written by make_deepspeed.py -->"
END = "<!-- end of ops -->"

CARDS = {"h100": "H100", "h200": "H200"}
#: an op of DeepSpeed's -> the bench whose record has its functions beside DeepSpeed's own, what the
#: names of the cases begin with, and the unit, which says whether less or more is better
BENCHES = {
    "fused_adam": ("gpu_ops", "adamw", "gb_per_s"),
    "transformer_inference": ("inference", "", "us"),
}


def op_names():
    """The sorted names of all ops: the second column of _OPS in _ops.py."""
    tree = ast.parse((CODE / "_ops.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "_OPS":
            return sorted(ast.literal_eval(row.elts[1]) for row in node.value.elts)
    sys.exit(f"{CODE / '_ops.py'}: found no _OPS")


def plugins_of():
    """{name of an op of Opdock's: its plugin}"""
    found = {}
    for path in sorted(ROOT.glob("plugins/*/plugin.toml")):
        text = path.read_text(encoding="utf-8")
        found |= dict.fromkeys(re.findall(r"(?m)^schema = ['\"](\w+)\(", text), path.parent.name)
    return found


def ratios(card, bench, begin, unit):
    """DeepSpeed's time divided by Opdock's, for each case that has a record of both."""
    newest = {}
    for path in sorted((RECORDS / card).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            if one.get("bench") == bench and one.get("name", "").startswith(begin) and unit in one:
                newest[one["name"], str(one.get("peer")).lower(), one.get("l2")] = one[unit]
    for (name, peer, l2), ours in newest.items():
        theirs = newest.get((name, "deepspeed", l2))
        if peer == "opdock" and theirs:
            yield theirs / ours if unit == "us" else ours / theirs


def speed(name):
    """The cells of an op's speed: median and least ratio on each card, or nothing."""
    for card in CARDS:
        found = sorted(ratios(card, *BENCHES[name])) if name in BENCHES else []
        yield f"{statistics.median(found):.2f} ({found[0]:.2f})" if found else ""


def served_by(name, lists, plugins):
    """The cell that says what serves an op."""
    if name not in lists["SERVED"]:
        return "DeepSpeed's own builder"
    ops = lists["SERVED"][name][1]
    if not ops:
        return lists["WITHOUT_PLUGIN"].get(name, "PyTorch's own functions")
    names = sorted({op.split("/")[0] if "/" in op else plugins[op] for op in ops})
    joined = ", ".join(f"`{one}`" for one in names)
    return joined if len(joined) <= 70 else f"{len(names)} plugins"


def table():
    """The generated part of the page."""
    lists, plugins = runpy.run_path(str(CODE / "_plugin_ops.py")), plugins_of()
    names = op_names()
    served = [name for name in names if name in lists["SERVED"]]
    lines = [
        BEGIN,
        "",
        *textwrap.wrap(
            f"{len(served)} of the {len(names)} names are served. The last columns have "
            "DeepSpeed's time divided by Opdock's, the median of all recorded cases and, in "
            "brackets, the least; empty: there is no record.",
            width=110,
        ),
        "",
        f"| op | 0.7.7 | 0.19.8 | served by | {' | '.join(CARDS.values())} |",
        f"|---|---|---|---|{'---|' * len(CARDS)}",
    ]
    for name in names:
        has = lists["versions"](name)
        marks = ["yes" if version in has else "" for version in ("0.7.7", "0.19.8")]
        cells = [f"`{name}`", *marks, served_by(name, lists, plugins), *speed(name)]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    lines += ["", "These stay DeepSpeed's own:", ""]
    for name, why in sorted(lists["LEFT"].items()):
        lines += textwrap.wrap(f"- `{name}`: {why}", width=110, subsequent_indent="  ")
    return "\n".join([*lines, "", END])


def main():
    page = PAGE.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{PAGE}: the two marks are missing")
    before, rest = page.split(BEGIN)
    wanted = before + table() + rest.split(END)[1]
    if wanted == page:
        return
    if "--check" in sys.argv[1:]:
        sys.exit(f"{PAGE} has an old table of ops: run docs/reference/make_deepspeed.py")
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
