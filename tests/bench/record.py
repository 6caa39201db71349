# SPDX-License-Identifier: Apache-2.0
"""Reads and writes records. A card's folder has a file for each month, YEAR-MONTH.jsonl, of JSON
lines, each a result. A line {"where": environment()} states where the results after it were
measured."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path


def output(*command):
    """Returns what a command prints, stripped; "" if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version(package):
    """Returns the installed version of a Python package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_name():
    """Returns the processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def environment():
    """Returns machine, driver, versions, date and commit: a dict of JSON values."""
    gpu = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = gpu.splitlines()[0].partition(", ") if gpu else ("", "", "")
    packages = ("torch", "numpy", "apache-tvm-ffi", "cupy-cuda13x", "jax", "triton")
    packages += ("liger-kernel", "quack-kernels", "flashinfer-python", "deepspeed", "transformers")
    packages += ("mlx", "numexpr")
    commit = os.environ.get("OPDOCK_COMMIT") or output("git", "rev-parse", "--short=12", "HEAD")
    return {
        "gpu": name or None,
        "driver": driver or None,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {p: v for p in packages if (v := version(p))},
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit or None,
    }


def read(card, month="*"):
    """Returns the results in a card's folder as dicts, in the order of time, each with its "where".
    month: such as "2026-11"; all by default."""
    results, where = [], None
    for file in sorted(Path(card).glob(f"{month}.jsonl")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if row.keys() == {"where"}:
                where = row["where"]
            else:
                results.append({**row, "where": where})
    return results


_written = {}  # {path: ("where" of the last append(), the file's length after it)}


def append(card, bench, results):
    """Appends one JSON line per result, {"bench", …result}, to the month's file in a card's folder.
    A "where" line precedes them, unless this process wrote the file's last lines, which are then
    part of the same run."""
    where = environment()
    path = Path(card) / f"{where['date'][:7]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    size = path.stat().st_size if path.exists() else 0
    lines = [{"bench": bench, **row} for row in results]
    if _written.get(path) != (where, size):
        lines.insert(0, {"where": where})
    with open(path, "a") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    _written[path] = where, path.stat().st_size


def is_copy(row):
    """Returns whether other results of the same run are compared with this one (gpu_ops). A copy is
    kept as long as they are."""
    return row["bench"] == "gpu_ops" and row["name"].startswith("copy ")


def newest(rows):
    """Returns the newest result of each case and peer, in the order of the rows, and all copies of
    the runs in which these were measured. Results of one run share their "where"."""
    found = {}
    for number, row in enumerate(rows):
        case = row["bench"], row.get("name"), row.get("peer"), is_copy(row) and number
        found.pop(case, None)
        found[case] = row
    runs = {id(row["where"]) for row in found.values() if not is_copy(row)}
    return [row for row in found.values() if id(row["where"]) in runs]


def prune(card):
    """Rewrites a card's files, each without the results that later ones in it have replaced. The
    pages do not show them, and the repository's history keeps them."""
    for file in Path(card).glob("*.jsonl"):
        lines, where = [], None
        for row in newest(read(card, file.stem)):
            if row["where"] is not where:
                where = row["where"]
                lines.append({"where": where})
            lines.append({key: row[key] for key in row if key != "where"})
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
