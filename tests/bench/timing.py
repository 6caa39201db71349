# SPDX-License-Identifier: Apache-2.0
"""How the GPU benches time calls from Python."""

import statistics
import time

CALLS = 256  # calls per repeat: fewer than the driver's queue of launches holds


def middle(times):
    """Returns the median of times between pairs of events, [(the pair's number, time), …], as the
    mean of four medians, one over every fourth pair. On an H100 every second or fourth pair of
    events is up to 0.8 µs further apart, even with nothing between them, so the median of all would
    be one of two values by chance."""
    parts = [[took for number, took in times if number % 4 == part] for part in range(4)]
    return statistics.fmean(statistics.median(part) for part in parts if part)


class Times(list):
    """µs between each pair of events. is_ahead: whether all had been enqueued when the first one
    began; if not, the times include the host, or a wait for it."""

    is_ahead = True


def events_of(torch, launch, count):
    """Returns Times of launch(i)'s pair of events, for i below count; launch(i, pair) records
    pair[0] and pair[1] around what is timed. The GPU sleeps until all have been enqueued; otherwise
    the host would be timed. If it woke up too early, all are enqueued again with a longer sleep.
    Work that waits for the GPU, or that exceeds the driver's queue, can never be enqueued in
    advance."""
    times = Times()
    for cycles in (20_000_000, 100_000_000, 400_000_000):  # about 10, 50 and 200 ms
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        torch.cuda.synchronize()
        torch.cuda._sleep(cycles)
        for i, pair in enumerate(pairs):
            launch(i, pair)
        times.is_ahead = not pairs[0][0].query()
        if times.is_ahead:
            break
    torch.cuda.synchronize()
    times += [start.elapsed_time(end) * 1000 for start, end in pairs]
    return times


def interleaved(torch, functions, repeats, loops=None):
    """Returns {name: [µs a call, …]}: each function is called CALLS times, alternating with the
    others; waits are outside the time. loops: {name: function(count)} of functions that make
    `count` calls themselves."""
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
