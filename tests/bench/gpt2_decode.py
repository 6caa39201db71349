# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding with GPT-2 small on a GPU: Opdock's ops in a CUDA graph, PyTorch, DeepSpeed.

Random weights; a prompt, and tokens after it. Ours and plain PyTorch's step are one graph that is
replayed; the prompt before it is not in it. Before anything is timed, the logits of both are held
against float32. tokens_per_s is of all rows, with the prompt, by the clock; step_us of one token
after the prompt. Medians of runs in turns.
"""

import argparse
import statistics
import time
from pathlib import Path

import gpt2
import gpt2_peers
import peers
import record
import torch
from gpt2_torch import TorchGPT2

#: What logits may differ from float32's, in units of the dtype's epsilon, relative to the largest
#: of their row. What a layer adds to the sum of branches has gone through six roundings, and the
#: sum through two, each of half an epsilon at most and with any sign: 12 layers come to about
#: sqrt(12 * 8) / 2, five epsilons; and twice that, as the largest of all elements counts.
MOST_ERROR = 10


def captured(step):
    """step() as a CUDA graph; returns the function that replays it and gives its logits. Takes four
    steps: the first ones load kernels and choose algorithms, which a capture cannot."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        logits = step()

    def replay():
        graph.replay()
        return logits

    return replay


class Loop:
    """A prompt and then step() for each token. start: the model's prompt(ids)."""

    def __init__(self, model, step, ids, new):
        self.model, self.one, self.ids, self.new = model, step, ids, new

    def synchronize(self):
        if self.ids.is_cuda:
            torch.cuda.synchronize()

    def __call__(self):
        """Seconds of all, and of a step."""
        self.synchronize()
        begin = time.perf_counter()
        self.model.prompt(self.ids)
        self.synchronize()
        steps = time.perf_counter()
        for _ in range(self.new - 1):
            self.one()
        self.synchronize()
        end = time.perf_counter()
        return end - begin, (end - steps) / (self.new - 1)

    def found(self):
        """Tokens [B, new] and the logits they were chosen by, [B, new, vocabulary]."""
        logits = [self.model.prompt(self.ids).clone()]
        for _ in range(self.new - 1):
            logits.append(self.one().clone())
        length = self.ids.shape[1]
        tokens = self.model.history[length : length + self.new].t().contiguous()
        return tokens, torch.stack(logits, 1)


class Generate:
    """A package's generate(), which begins with the prompt."""

    def __init__(self, function):
        self.function = function

    def __call__(self):
        """Seconds of all, and None: of a step nothing is known."""
        begin = time.perf_counter()
        if self.function().is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin, None


def check(name, loop, weights, sizes):
    """Ends the bench if logits or tokens are wrong. The tokens before each are the loop's own, so
    that one that differs, as in a tie, leaves those after it comparable."""
    tokens, logits = loop.found()
    length, dtype = loop.ids.shape[1], logits.dtype
    exact = {key: weight.float() for key, weight in weights.items()}
    worst, same = 0.0, 0
    model = TorchGPT2(exact, sizes, 1, length + loop.new)
    for row in range(len(tokens)):
        ids = torch.cat([loop.ids[row], tokens[row, :-1]])[None]
        wanted = model.logits(ids, length - 1)[0]
        size = wanted.abs().amax(-1)
        error = ((logits[row].float() - wanted).abs().amax(-1) / size).max().item()
        behind = wanted.amax(-1) - wanted.gather(-1, tokens[row, :, None])[:, 0]
        # Not below another by more than both may be wrong by.
        late = (behind / size).max().item()
        bound = MOST_ERROR * torch.finfo(dtype).eps
        if not (error <= bound and late <= 2 * bound):
            raise SystemExit(
                f"{name}, row {row}: found logits that differ by {error:.2e}, and a token whose "
                f"logit is {late:.2e} below the largest, wanted at most {bound:.2e} and "
                f"{2 * bound:.2e} of the largest; look for the first step that differs"
            )
        worst = max(worst, error)
        same += (wanted.argmax(-1) == tokens[row]).sum().item()
    print(
        f"  {name:<28} largest error of logits {worst:.1e}, {same} of {tokens.numel()} tokens those "
        f"of float32, {tokens.unique().numel()} different ones",
        flush=True,
    )


def ours(weights, sizes, ids, new, places):
    """{who: Loop} of Opdock, checked."""
    model = gpt2.OpdockGPT2(weights, sizes, len(ids), places)
    model.prompt(ids)
    step = captured(model.step) if ids.is_cuda else model.step
    loop = Loop(model, step, ids, new)
    check("opdock", loop, weights, sizes)
    return {"opdock": loop}


def plain(weights, sizes, ids, new, places, compilers):
    """(who, Loop) of PyTorch: eager, a graph of the eager step, and compiled steps; checked."""

    def model():
        made = TorchGPT2(weights, sizes, len(ids), places)
        made.prompt(ids)
        return made

    def graphed():
        made = model()
        return made, captured(made.step)

    def compiled(mode, own_graph):
        made = model()
        step = torch.compile(made.step, mode=mode, dynamic=False, fullgraph=True)
        if own_graph:
            return made, captured(step)
        for _ in range(4):  # compiles, warms up, records its graph and replays it
            step()
        return made, step

    def eager():
        made = model()
        return made, made.step

    makers = {"torch": eager}
    if ids.is_cuda:
        makers["torch, graph"] = graphed
        if compilers:
            makers["torch.compile"] = lambda: compiled("reduce-overhead", False)
            makers["torch.compile max, graph"] = lambda: compiled(
                "max-autotune-no-cudagraphs", True
            )
    for name, make in makers.items():
        torch._dynamo.reset()
        begin = time.perf_counter()
        try:
            made, step = make()
        except Exception as error:  # a compiler that this machine or release cannot do with
            if not name.startswith("torch.compile"):
                raise
            print(f"  skipped: {name}: {peers.first_line(error)}", flush=True)
            continue
        loop = Loop(made, step, ids, new)
        check(name, loop, weights, sizes)
        if name.startswith("torch.compile"):
            skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
            graph = f", {skips} graphs refused" if skips else ""
            print(f"    compiled in {time.perf_counter() - begin:.0f} s{graph}", flush=True)
        yield name, loop


def packages(weights, sizes, ids, new, places, with_deepspeed):
    """(who, Generate) of other packages; one line for each that cannot be used."""
    model = None
    try:
        model = gpt2_peers.transformers_model(weights, sizes)
        function = gpt2_peers.generating(model, ids, new)
        function()
        yield "transformers", Generate(function)
    except Exception as error:  # whatever way its import, or this release, fails
        print(f"  skipped: transformers: {peers.first_line(error)}", flush=True)
    if model is None or not with_deepspeed:
        return
    try:
        engine = gpt2_peers.deepspeed_model(model, weights["wte"].dtype, places)
        function = gpt2_peers.generating(engine, ids, new)
        if function().shape != (len(ids), ids.shape[1] + new):
            raise RuntimeError("found another number of tokens than was asked for")
        yield "DeepSpeed", Generate(function)
    except Exception as error:
        print(f"  skipped: DeepSpeed: {peers.first_line(error)}", flush=True)


def kernels(loop):
    """Prints what one step launches, by name, and how long it takes."""
    from torch.profiler import ProfilerActivity, profile

    loop.model.prompt(loop.ids)
    loop.one()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        loop.one()
        torch.cuda.synchronize()
    taken = [e for e in taken.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    names = {}
    for event in taken:
        names.setdefault(event.name, []).append(event.time_range.elapsed_us())
    print(f"    {len(taken)} launches a step, {sum(map(sum, names.values())):.0f} us of kernels")
    for name, times in sorted(names.items(), key=lambda item: -sum(item[1])):
        print(f"      {len(times):4} {sum(times):8.1f} us  {name[:96]}")


def timed(whose, runs):
    """{who: (seconds of all, seconds of a step or None)}: medians of runs in turns."""
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


def run_batch(arguments, sizes, weights, batch):
    """All of one batch size; returns the results to record."""
    length, new = arguments.prompt, arguments.new
    places = -(-(length + new) // 64) * 64
    device, dtype = weights["wte"].device, arguments.dtype
    name = f"gpt2 {length}+{new} batch {batch} {dtype} {device.type}"
    print(f"  {name}, {sizes.layers} layers", flush=True)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, sizes.vocabulary, (batch, length), generator=generator).to(device)
    whose = ours(weights, sizes, ids, new, places)
    if arguments.profile and ids.is_cuda:
        kernels(whose["opdock"])
    whose |= plain(weights, sizes, ids, new, places, not arguments.no_compile)
    whose |= packages(weights, sizes, ids, new, places, ids.is_cuda)
    results = []
    medians = timed(whose, arguments.runs)
    own = medians["opdock"][0]
    for who, (total, step) in medians.items():
        rate = batch * new / total
        each = "" if step is None else f", {1e6 * step:8.1f} us a step"
        print(f"  {who:<28} {rate:10.1f} tokens/s, {total / own:6.2f} x opdock's time{each}")
        result = {"name": name, "peer": who, "tokens_per_s": round(rate, 1)}
        if step is not None:
            result["step_us"] = round(1e6 * step, 1)
        results.append(result)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: no graphs")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--batch", metavar="ROWS,…", default="1,32")
    parser.add_argument("--prompt", metavar="TOKENS", type=int, default=128)
    parser.add_argument("--new", metavar="TOKENS", type=int, default=128)
    parser.add_argument("--layers", type=int, default=gpt2.Sizes.layers, help="fewer: to try it")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, minutes")
    parser.add_argument("--profile", action="store_true", help="show what a step launches")
    arguments = parser.parse_args()
    batches = [int(rows) for rows in arguments.batch.split(",")]
    sizes = gpt2.Sizes(layers=arguments.layers)
    if arguments.new < 8 or arguments.prompt < 2 or min(batches) < 1:
        parser.error(
            f"found --prompt {arguments.prompt}, --new {arguments.new} and --batch "
            f"{arguments.batch}, wanted 2 tokens, 8 tokens and a row at least"
        )
    if arguments.prompt + arguments.new > sizes.positions:
        parser.error(
            f"found {arguments.prompt + arguments.new} tokens, wanted at most {sizes.positions}; "
            "pass a smaller --prompt or --new"
        )
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    weights = gpt2.random_weights(sizes, arguments.device, getattr(torch, arguments.dtype))
    results = []
    with torch.no_grad():
        for batch in batches:
            results += run_batch(arguments, sizes, weights, batch)
    if arguments.record:
        record.append(arguments.record, "gpt2_decode", results)


if __name__ == "__main__":
    main()
