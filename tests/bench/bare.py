# SPDX-License-Identifier: Apache-2.0
"""Measures how long ./dev demo and ./dev test take in a bare Debian.

The first ./dev demo and ./dev test include installing; a second ./dev demo is measured too.
README.md shows the times. The bench runs tests/bare/run on this checkout's HEAD, which needs root
and takes as long as these commands do, so it runs only if it is named. --log FILE reads what
tests/bare/run has printed with the same commands."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import record

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ["./dev demo", "./dev test", "./dev demo"]
NAMES = ["first ./dev demo", "first ./dev test", "second ./dev demo"]
ENDED = re.compile(r"^== status (\d+) after (\d+) s, (\d+) CPU s: (.*)$", re.MULTILINE)


def results(text):
    """Returns [{"name", "wall_s", …}, …] of the COMMANDS before the first failed or missing one."""
    found = []
    for (status, seconds, cpu, command), name, wanted in zip(
        ENDED.findall(text), NAMES, COMMANDS, strict=False
    ):
        if status != "0" or command != wanted:
            break
        found.append({"name": name, "wall_s": int(seconds), "cpu_s": int(cpu)})
    return found


def span(seconds):
    """Formats seconds for readers: 47 seconds, 3.5 minutes, 12 minutes."""
    if seconds < 100:
        return f"{seconds} seconds"
    minutes = seconds / 60
    return f"{minutes:.1f} minutes" if minutes < 10 else f"{minutes:.0f} minutes"


def sentence(rows):
    """Returns README's sentence on the newest run, or that there is no record."""
    rows = [row for row in rows if row["bench"] == "bare"]
    took = {row["name"]: span(row["wall_s"]) for row in rows}
    if set(took) != set(NAMES):
        return "How long that takes has not been recorded for this version (`./dev bench bare`)."
    where = rows[-1]["where"]
    return (
        f"In a minimal Debian on {where['cores']} cores ({where['cpu']}; {where['date']}, commit "
        f"{where['commit'][:12]}) the first `./dev demo` took {took[NAMES[0]]}, the installation "
        f"included, the first `./dev test` {took[NAMES[1]]} more, and a second `./dev demo` "
        f"{took[NAMES[2]]}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--log", metavar="FILE", help="what tests/bare/run has printed")
    arguments = parser.parse_args()
    if arguments.log:
        text = Path(arguments.log).read_text()
    else:
        command = [str(ROOT / "tests" / "bare" / "run"), *COMMANDS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout
        if done.returncode == 77:
            print(f"  skipped: {done.stderr.strip()}")
            return
    found = results(text)
    for row in found:
        print(f"  {row['name']:<20} {row['wall_s']:6} s")
    if len(found) < len(COMMANDS):
        sys.exit(f"found {len(found)} of {len(COMMANDS)} commands that succeeded; see the log")
    if arguments.record:
        record.append(arguments.record, "bare", found)


if __name__ == "__main__":
    main()
