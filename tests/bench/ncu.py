# SPDX-License-Identifier: Apache-2.0
"""Reads Nsight Compute's metrics of a program's launches."""

import csv
import re
import shutil
import subprocess

KERNELS = "narrow_rows|block_rows|long_rows"  # the kernels that are read: ops over rows


def found():
    """Returns whether ncu is installed."""
    return shutil.which("ncu") is not None


def number(text):
    """Returns the number in a cell such as "1,234.5"."""
    return float(re.sub(",", "", text or "0"))


def launches(metrics, command):
    """Returns ([{metric or "Kernel Name": cell} of each launch], ""), or (None, why there is
    none)."""
    call = ["ncu", "--csv", "--page", "raw", "--clock-control", "none"]
    call += ["--kernel-name", f"regex:{KERNELS}", "--metrics", ",".join(metrics), *command]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    # The output has a header, a row of units, and a row for each launch.
    if done.returncode or begin is None or len(lines) < begin + 3:
        return None, (done.stderr + done.stdout).strip()[-400:] or f"status {done.returncode}"
    return list(csv.DictReader(lines[begin:]))[1:], ""
