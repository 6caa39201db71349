# SPDX-License-Identifier: Apache-2.0
"""How the benches on the GPU time calls from Python."""

import time

CALLS = 256  # a repeat: fewer than the driver's queue of launches holds


def interleaved(torch, functions, repeats):
    """{name: [µs a call, …]}: each function CALLS times, in turns; waits are outside the time."""
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return times
