# SPDX-License-Identifier: Apache-2.0
"""Runs a test program and records the CPU time that it and its children took.

    measure.py PROGRAM ARGS…

This is Meson's wrapper in tests/run.py, which reads the line of JSON that this appends to
test-results/programs: {"argv", "env" (Opdock's variables, by which tests of one program differ),
"cpu" and "wall" (seconds)}."""

import json
import os
import sys
import time

begin = time.monotonic()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
line = {
    "argv": sys.argv[1:],
    "env": {name: value for name, value in os.environ.items() if name.startswith("OPDOCK_")},
    "cpu": used.ru_utime + used.ru_stime,
    "wall": time.monotonic() - begin,
}
with open(os.path.join(os.environ["OPDOCK_TEST_RESULTS"], "programs"), "a") as file:
    # One write, since several programs may end at the same time.
    file.write(json.dumps(line) + "\n")
code = os.waitstatus_to_exitcode(status)
if code < 0:
    os.kill(os.getpid(), -code)  # ends by the same signal as the program
sys.exit(code)
