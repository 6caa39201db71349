# SPDX-License-Identifier: Apache-2.0
"""Records: files of JSON lines, each a result, after one that says where it and what follows were
measured: {"where": environment()}."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path


def output(*command):
    """What a command prints, stripped; empty if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version(package):
    """The installed version of a Python package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_name():
    """The processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def environment():
    """Machine, driver, versions, date and commit: dict of JSON values."""
    gpu = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = gpu.splitlines()[0].partition(", ") if gpu else ("", "", "")
    packages = ("torch", "numpy", "apache-tvm-ffi", "cupy-cuda13x", "jax", "triton")
    packages += ("liger-kernel", "quack-kernels", "flashinfer-python", "deepspeed", "transformers")
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


def read(path):
    """The results of a file, dicts, in its order, each with its "where"."""
    results, where = [], None
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        if row.keys() == {"where"}:
            where = row["where"]
        else:
            results.append({**row, "where": where})
    return results


_written = {}  # {path: what append() wrote last: where, and how long the file was then}


def append(path, bench, results):
    """Appends one JSON line per result, {"bench", …result}, and before them where that is, unless
    this process has written the file's last lines: they are one run."""
    where = environment()
    size = os.path.getsize(path) if os.path.exists(path) else 0
    lines = [{"bench": bench, **row} for row in results]
    if _written.get(str(path)) != (where, size):
        lines.insert(0, {"where": where})
    with open(path, "a") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    _written[str(path)] = where, os.path.getsize(path)


def is_copy(row):
    """Whether it is what others of its run are compared with (gpu_ops): it stays as they do."""
    return row["bench"] == "gpu_ops" and row["name"].startswith("copy ")


def newest(rows):
    """The newest result of each case and peer, in the order of the file, and all copies: each is
    for what follows it in its run. Results of one run share their "where"."""
    found = {}
    for number, row in enumerate(rows):
        case = row["bench"], row.get("name"), row.get("peer"), is_copy(row) and number
        found.pop(case, None)
        found[case] = row
    return list(found.values())


def prune(path):
    """Rewrites a file without the results that later ones of the same case and peer have replaced,
    of which the pages show nothing: the repository's history has them."""
    runs, newest = [], {}
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        if row.keys() == {"where"}:
            runs.append((line, []))
        else:
            runs[-1][1].append((line, row))
            newest[row["bench"], row.get("name"), row.get("peer")] = line
    kept = []
    for where, results in runs:
        rest = [
            (line, row)
            for line, row in results
            if is_copy(row) or newest[row["bench"], row.get("name"), row.get("peer")] is line
        ]
        if not all(is_copy(row) for _, row in rest):
            kept += [where, *(line for line, _ in rest)]
    Path(path).write_text("".join(f"{line}\n" for line in kept))
