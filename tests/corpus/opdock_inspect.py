# SPDX-License-Identifier: Apache-2.0
"""opdock inspect --json, as the corpus asks it."""

import json
import os
import resource
import subprocess
import time


class Inspector:
    """Runs the command at `path`; counts its time and the memory of the largest run."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.seconds = 0.0
        self.runs = 0

    def __call__(self, file, cwd):
        """The report on a file; raises RuntimeError where the command gives none."""
        began = time.monotonic()
        done = subprocess.run(
            [self.path, "inspect", "--json", str(file)], cwd=cwd, capture_output=True, timeout=300,
            env={"PATH": "/usr/bin:/bin", "HOME": str(cwd)}, check=False)  # fmt: skip
        self.seconds += time.monotonic() - began
        self.runs += 1
        try:
            return json.loads(done.stdout)
        except ValueError:
            error = done.stderr.decode(errors="replace").strip()
            raise RuntimeError(f"opdock inspect: status {done.returncode}: {error}") from None

    def peak_bytes(self):
        """The most memory that a child of this process has had resident, in bytes."""
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
