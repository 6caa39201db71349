# SPDX-License-Identifier: Apache-2.0
"""How gpt2_decode.py generates and times tokens: a step as a graph, and loops over steps."""

import statistics
import time

import torch


def captured(step):
    """Captures step() as a CUDA graph; returns a function that replays it and returns its logits.
    Takes four steps: the first ones load kernels and choose algorithms, which is not possible
    during capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # The capture uses a stream of its own: PyTorch keeps a cuBLAS workspace for each stream, and
    # frees all of them when torch.compile records a graph. A workspace that is made during the
    # capture belongs to the graph's memory; one made by the steps above would be unmapped while the
    # graph uses it.
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        logits = step()

    def replay():
        graph.replay()
        return logits

    return replay


class Loop:
    """Runs model.prompt(ids), then step() for each of the `new` tokens but the first."""

    def __init__(self, model, step, ids, new):
        self.model, self.step, self.ids, self.new = model, step, ids, new

    def synchronize(self):
        if self.ids.is_cuda:
            torch.cuda.synchronize()

    def __call__(self):
        """Returns the seconds of all, and of a step."""
        self.synchronize()
        begin = time.perf_counter()
        self.model.prompt(self.ids)
        self.synchronize()
        steps = time.perf_counter()
        for _ in range(self.new - 1):
            self.step()
        self.synchronize()
        end = time.perf_counter()
        return end - begin, (end - steps) / (self.new - 1)

    def found(self):
        """Returns tokens [B, new] and the logits that they were chosen by, [B, new, vocabulary]."""
        logits = [self.model.prompt(self.ids).clone()]
        for _ in range(self.new - 1):
            logits.append(self.step().clone())
        length = self.ids.shape[1]
        tokens = self.model.history[length : length + self.new].t().contiguous()
        return tokens, torch.stack(logits, 1)


class Generate:
    """Runs a package's generate(), which begins with the prompt."""

    def __init__(self, function):
        self.function = function

    def __call__(self):
        """Returns the seconds of all, and None, since the time of a step is unknown."""
        begin = time.perf_counter()
        if self.function().is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin, None


def timed(whose, runs):
    """Returns {who: (seconds of all, seconds of a step or None)}: medians of alternating runs."""
    times = {who: [] for who in whose}
    for run in range(runs + 1):
        for who, function in whose.items():
            taken = function()
            if run > 0:
                times[who].append(taken)
    found = {}
    for who, taken in times.items():
        totals, steps = zip(*taken, strict=True)
        found[who] = (
            statistics.median(totals),
            None if steps[0] is None else statistics.median(steps),
        )
    return found


def kernels(loop):
    """Prints the kernels that one step launches, by name, and how long each takes."""
    from torch.profiler import ProfilerActivity, profile

    loop.model.prompt(loop.ids)
    loop.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        loop.step()
        torch.cuda.synchronize()
    taken = [e for e in taken.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    names = {}
    for event in taken:
        names.setdefault(event.name, []).append(event.time_range.elapsed_us())
    print(f"    {len(taken)} launches a step, {sum(map(sum, names.values())):.0f} us of kernels")
    for name, times in sorted(names.items(), key=lambda item: -sum(item[1])):
        print(f"      {len(times):4} {sum(times):8.1f} us  {name[:96]}")
