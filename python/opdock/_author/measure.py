# SPDX-License-Identifier: Apache-2.0
"""Measures the launch choices of one plugin's ops and stores the fastest of each.

tune.py starts it as `python -m opdock._author.measure NAME DEVICE BENCH…`. It takes each op that
candidates(x) of a bench offers as "opdock", each shape and each dtype; finds the questions that a
call asks the host (docs/guide/tuning.md); and times a call with each choice. A question that
several calls ask gets one answer for all of them.
"""

import contextlib
import importlib.util
import math
import statistics
import sys
import time
from pathlib import Path

import torch

from opdock._author.choose import OWN, choose
from opdock._author.stored import tuning
from opdock._errors import OpdockError
from opdock.testing import devices

# Used for benches without SHAPES or DTYPES: rows of all lengths, and also few rows.
SHAPES = {
    "cuda": [(4, 4096), (16, 1024), (32768, 256), (65536, 1024), (16384, 4096), (8192, 8192)]
    + [(4096, 14432), (2048, 32768), (512, 131072)],
    "cpu": [(512, 384), (64, 1024), (4096, 1024), (1024, 4096), (256, 32768)],
}
DTYPES = {
    "cuda": [torch.float32, torch.bfloat16, torch.float16],
    "cpu": [torch.float32, torch.bfloat16, torch.float16, torch.float64],
}
ROUNDS = 9
#: Bytes written between calls on a GPU to flush the L2 cache: more than any L2 cache holds.
FLUSHED = 256 << 20


class Progress:
    """Shows progress in one line on stderr, if that is a terminal."""

    def __call__(self, text=""):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def clock(function, calls):
    """Returns the mean seconds of one call on the CPU."""
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls


class CpuTimer:
    """Measures the microseconds of a call; each sample runs as many calls as fill a millisecond."""

    def __init__(self, function):
        function()
        self.calls = max(1, int(1e-3 / max(clock(function, 1), 1e-9)))

    def __call__(self, function):
        function()
        return statistics.median(clock(function, self.calls) for _ in range(3)) * 1e6


class GpuTimer:
    """Measures the microseconds of a call by CUDA events, with a cold L2 cache before each call."""

    def __init__(self, function):
        function()
        self.scratch = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")  # the current device

    def __call__(self, function):
        for _ in range(2):
            function()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(7)]
        for begin, end in events:
            self.scratch.zero_()
            begin.record()
            function()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(begin.elapsed_time(end) for begin, end in events) * 1e3


def questions_of(function):
    """Returns the questions that a call asks, as opdock.h's "asked" objects with several
    choices."""
    tuning("measure")
    try:
        function()
        return [one for one in tuning("asked")["asked"] if one["count"] > 1]
    finally:
        tuning("stop")


def times_of(function, timer, question, count):
    """Returns {choice: [microseconds in each round]}, without choices that the op cannot be called
    with. Each round measures all choices, so that clock drift affects all of them."""
    times = {way: [] for way in (OWN, *range(count))}
    try:
        for turn in range(ROUNDS):
            ways = list(times)
            for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                tuning("measure", question=question, choice=way)
                try:
                    times[way].append(timer(function))
                except OpdockError:
                    if way == OWN:
                        raise
                    del times[way]
    finally:
        tuning("stop")
    return times


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(module, name, usual, device):
    """Returns a bench's SHAPES or DTYPES, which is a list or a dict by the kind of device."""
    found = getattr(module, name, usual)
    return found.get(device, usual[device]) if isinstance(found, dict) else found


def situations_of(module, device, skipped, smallest=False):
    """Yields (text, function) for each op, shape and dtype on the device. smallest: only for the
    smallest shape. Appends what cannot be made to `skipped`."""
    kind = device.partition(":")[0]
    shapes = listed(module, "SHAPES", SHAPES, kind)
    for shape in [min(shapes, key=math.prod)] if smallest and shapes else shapes:
        for dtype in listed(module, "DTYPES", DTYPES, kind):
            text = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')} {device}"
            try:
                x = torch.randn(shape, device=device).to(dtype)
                for op, whose, _, function in module.candidates(x):
                    if whose == "opdock":
                        yield f"{op} {text}", function
            except (RuntimeError, TypeError, NotImplementedError) as error:
                skipped.append((text, error))


def asks_on_cpu(modules):
    """Returns whether any op asks for a launch choice on the CPU; tries one call of each op and
    dtype."""
    for module in modules:
        for _, function in situations_of(module, "cpu", [], smallest=True):
            with contextlib.suppress(OpdockError):
                if questions_of(function):
                    return True
    return False


def answers_of(text, function, device, progress):
    """Yields (scope, question, (text, count, times)) for each question that a call asks."""
    asked = questions_of(function)
    timer = (CpuTimer if device == "cpu" else GpuTimer)(function) if asked else None
    for i, one in enumerate(asked):
        progress(f"{text}: question {i + 1} of {len(asked)}, {one['count']} ways")
        times = times_of(function, timer, one["question"], one["count"])
        scope = tuple(one[key] for key in ("plugin", "version", "build", "device"))
        yield scope, one["question"], (text, one["count"], times)


def measure(modules, wanted, progress, skipped):
    """Returns {(plugin, version, build, device): {question: [(situation, count, times)]}}."""
    found = {}
    for module in modules:
        for device in wanted:
            # torch's events belong to the current device.
            with contextlib.nullcontext() if device == "cpu" else torch.cuda.device(device):
                for text, function in situations_of(module, device, skipped):
                    progress(text)
                    try:
                        measured = list(answers_of(text, function, device, progress))
                    except (OpdockError, torch.cuda.OutOfMemoryError) as error:
                        skipped.append((text, error))
                        continue
                    for scope, question, row in measured:
                        found.setdefault(scope, {}).setdefault(question, []).append(row)
    progress()
    return found


def result(question, rows):
    """Returns the object to store for a question."""
    times = [row[2] for row in rows]
    way = choose(times)
    return {
        "question": question,
        "choice": way,
        "count": max(count for _, count, _ in rows),
        "situation": rows[0][0] + (f" and {len(rows) - 1} more" if len(rows) > 1 else ""),
        "default_us": statistics.fmean(statistics.median(one[OWN]) for one in times),
        "best_us": statistics.fmean(statistics.median(one[way]) for one in times),
    }


def lines_of(questions, results):
    """Yields the table's rows: situation, number of choices, the own choice's time, the best
    choice, its time, the gain."""
    yield "SITUATION", "WAYS", "OWN", "BEST", "", "GAIN"
    for question, rows in questions.items():
        way = results[question]["choice"]
        for text, count, times in rows:
            own, best = (statistics.median(times[one]) for one in (OWN, way))
            chosen = ("own", "", "") if way == OWN else (f"way {way}", f"{best:.2f} us")
            gain = () if way == OWN else (f"{own / best - 1:+.1%}",)
            yield text, str(count), f"{own:.2f} us", *chosen, *gain


def print_table(lines):
    lines = list(lines)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())


def report(name, scope, questions):
    """Stores the results of one scope and prints them as a table."""
    results = {question: result(question, rows) for question, rows in questions.items()}
    plugin, version, build, device = scope
    print(f"{plugin} {version} on {device}")
    print_table(lines_of(questions, results))
    stored = tuning(
        "store",
        plugin=plugin,
        version=version,
        build=build,
        device=device,
        results=list(results.values()),
    )
    better = sum(one["choice"] != OWN for one in results.values())
    print(f"Of {len(results)} questions {better} have a faster way than the plugin's own.", end="")
    if better:
        print(f" Stored in {stored['folder']}:")
        print("every process that starts from now on goes by it, with this build of the plugin on")
        print(f"such a device. To undo it: opdock bench --forget {plugin}")
    else:
        print(" Nothing is stored.")


def main(words):
    """Runs the measurements; returns the exit status. words: the plugin's name, a device or "", and
    the files of its benches."""
    name, only, *files = words
    modules = [module for module in map(load, map(Path, files)) if hasattr(module, "candidates")]
    if not modules:
        print(
            f"opdock: bench: found no candidates(x) in {', '.join(files)}, wanted the calls to "
            "measure (docs/guide/tuning.md)",
            file=sys.stderr,
        )
        return 1
    here = devices()
    wanted = [only] if only else list(here)
    if only and only.partition(":")[0] not in here:
        print(
            f"opdock: bench: --device: found {only}, wanted one that the plugin has ops for and "
            f"torch reaches here: {', '.join(here) or 'there is none'}",
            file=sys.stderr,
        )
        return 1
    skipped = []
    if "cpu" in wanted and not asks_on_cpu(modules):
        print(
            f"{name}: no call on cpu leaves a choice: its ops have one way there "
            "(docs/guide/tuning.md)"
        )
        wanted.remove("cpu")
        if not wanted:
            return 0
    found = measure(modules, wanted, Progress(), skipped)
    for text, error in skipped:
        print(f"skipped {text}: {str(error).splitlines()[0]}")
    if not found:
        print(f"{name}: no call on {', '.join(wanted)} leaves a choice; nothing is to be measured")
    for scope, questions in found.items():
        report(name, scope, questions)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
