# SPDX-License-Identifier: Apache-2.0
"""How the benches on the GPU time calls from Python."""

import statistics
import time

CALLS = 256  # a repeat: fewer than the driver's queue of launches holds


def middle(times):
    """The median of times between pairs of events, [(the pair's number, time), …]: the mean of the
    four of each fourth pair. On an H100 each second or fourth pair of events is up to 0.8 µs
    further apart, also with nothing between them: the median of all is one of two by chance."""
    parts = [[took for number, took in times if number % 4 == part] for part in range(4)]
    return statistics.fmean(statistics.median(part) for part in parts if part)


def interleaved(torch, functions, repeats, loops=None):
    """{name: [µs a call, …]}: each function CALLS times, in turns; waits are outside the time.
    loops: {name: function(count)} of those that call that often by themselves."""
    loops = loops or {}
    times = {name: [] for name in loops | functions}
    for _ in range(repeats):
        for name, loop in loops.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            loop(CALLS)
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
        for name, function in functions.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return times
