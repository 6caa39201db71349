# SPDX-License-Identifier: Apache-2.0
"""Prints the counts of a run, as text and as JSON lines."""

import collections
import datetime
import json
import os
import platform
import subprocess

import explained


def output(*command):
    """Returns the first line that a command prints, or None."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None


class Summary:
    """Totals over all packages."""

    def __init__(self):
        self.packages = 0
        self.missing = {}  # package -> why it could not be fetched
        self.counts = collections.Counter()  # agreement -> files
        # `counts` for the files as parts of their packages.
        self.members = collections.Counter()
        self.causes = collections.Counter()  # for refusals on both sides: same or other cause
        self.refusals = collections.Counter()  # the loader's cause -> files
        self.disagreements, self.other_causes, self.differences = [], [], []

    def add(self, package, results):
        self.packages += 1
        for result in results:
            named = {"package": str(package), **result}
            self.counts[result["agreement"]] += 1
            self.members[result["member"]["agreement"]] += 1
            if "disagree" in (result["agreement"], result["member"]["agreement"]):
                self.disagreements.append(named)
            if "same_cause" in result:
                self.causes[result["same_cause"]] += 1
                if not result["same_cause"]:
                    self.other_causes.append(named)
            if "refused_for" in result:
                self.refusals[result["refused_for"]] += 1
            if result.get("differences"):
                self.differences.append(named)

    def percent_same_cause(self):
        total = sum(self.causes.values())
        return round(100 * self.causes[True] / total, 2) if total else None

    def print(self):
        for result in self.disagreements:
            print(
                f"DIFFERS {result['package']}: {result['file']}: opdock {result['verdict']} "
                f"{result['reasons'][:1]}, loader {result['loader']}; in its package "
                f"{result['member'].get('verdict')} {result['member'].get('reasons', [])[:1]}"
            )
        for result in self.other_causes:
            print(
                f"OTHER CAUSE {result['package']}: {result['file']}: {result['reasons'][:1]}, "
                f"loader {result['loader']}"
            )
        for result in self.differences:
            for text in result["differences"]:
                print(f"LIST {result['package']}: {result['file']}: {text}")
        print(
            f"{self.packages} packages, {sum(self.counts.values())} files: "
            + ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        )
        print(
            "as parts of their packages: "
            + ", ".join(f"{count} {what}" for what, count in sorted(self.members.items()))
        )
        print(
            f"first reason is the loader's cause: {self.percent_same_cause()} % of "
            f"{sum(self.causes.values())} refusals"
        )

    def append(self, path, inspect):
        """Appends the run to a file: a line of counts, then one for each disagreement."""
        head = {
            "corpus": "packages",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "commit": os.environ.get("OPDOCK_COMMIT")
            or output("git", "rev-parse", "--short=12", "HEAD"),
            "opdock": output(inspect.path, "--version"),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()),
            "python": platform.python_version(),
            "readelf": output("readelf", "--version"),
            "packages": self.packages,
            "not_fetched": self.missing,
            "files": sum(self.counts.values()),
            **{name.replace("-", "_"): count for name, count in sorted(self.counts.items())},
            "as_members": {n.replace("-", "_"): c for n, c in sorted(self.members.items())},
            "refusals_by_cause": dict(sorted(self.refusals.items())),
            "same_cause_percent": self.percent_same_cause(),
            "files_with_differing_lists": len(self.differences),
            "seconds": round(inspect.seconds, 1),
            "slowest_s": round(inspect.slowest[0], 2),
            "slowest_file": os.path.basename(inspect.slowest[1]),
            "most_bytes": inspect.most_bytes[0],
            "most_bytes_file": os.path.basename(inspect.most_bytes[1]),
        }
        with open(path, "a") as file:
            file.write(json.dumps(head) + "\n")
            for kind, results in (
                ("disagreement", self.disagreements),
                ("other cause", self.other_causes),
                ("lists", self.differences),
            ):
                for result in results:
                    line = {"corpus": kind, **result, "cause": explained.cause(result)}
                    file.write(json.dumps(line) + "\n")
