# SPDX-License-Identifier: Apache-2.0
"""Runs opdock inspect --json for the corpus."""

import json
import os
import subprocess
import tempfile
import threading
import time

SECONDS = 300


class Inspector:
    """Runs the command at `path`; adds up its time (s) and notes the memory of its largest run
    (bytes). Threads may share one."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.lock = threading.Lock()
        self.runs, self.seconds, self.slowest, self.most_bytes = 0, 0.0, (0.0, ""), (0, "")

    def __call__(self, file, cwd):
        """Returns the report on a file; raises RuntimeError if the command gives none."""
        report = self.run(file, cwd)
        if "verdict" not in report:
            raise RuntimeError(f"a report without a verdict: {report}")
        return report

    def members(self, package, cwd):
        """Returns {path within: report} of the native files of a wheel or a folder."""
        report = self.run(package, cwd)
        return {file["file"]: file for found in report["packages"] for file in found["files"]}

    def run(self, file, cwd):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
            began = time.monotonic()
            process = subprocess.Popen(
                [self.path, "inspect", "--json", str(file)],
                cwd=cwd,
                stdout=out,
                stderr=error,
                stdin=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "HOME": str(cwd)},
            )
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            took = time.monotonic() - began
            with self.lock:
                self.runs += 1
                self.seconds += took
                self.slowest = max(self.slowest, (took, str(file)))
                self.most_bytes = max(self.most_bytes, (usage.ru_maxrss * 1024, str(file)))
            out.seek(0)
            error.seek(0)
            try:
                return json.loads(out.read())
            except ValueError:
                text = error.read().decode(errors="replace").strip()
                raise RuntimeError(f"status {process.returncode}: {text}") from None
