# SPDX-License-Identifier: Apache-2.0
"""Times whole models in torch, plain and patched by opdock.torch.patch(), each eagerly, compiled by
torch.compile, and both replayed as CUDA graphs.

Models: MiniLM at three sizes of batch in float16 and float32, with torch's modules and, if it is
installed, transformers' BertModel; training steps of GPT-2 small (bfloat16 autocast on a GPU, AdamW
fused by torch or by Opdock); and AdamW alone on GPT-2's parameters. Weights are random. Results are
compared with the plain model's first, and what differs is left out with the reason.

A GPU's time is that of calls in a row by the host's clock, which includes what the host takes where
that is longer; under CUDA graphs it is the GPU's alone. What takes part is called in turns. --tiny
has models and batches that a CPU runs in seconds, to try the program; its times mean nothing."""

import argparse
import copy
import statistics
import time

import record
import torch
import torch_models_made as made

import opdock.torch
from opdock.torch import _choice

BATCHES = [(1, 128), (32, 128), (256, 256)]  # rows, tokens
TRAINING = (8, 512)
ROUNDS, SECONDS = 5, 0.2
BOUNDS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}


class Run:
    """Prints and keeps what was measured. card: the folder of its records, or None."""

    def __init__(self, card):
        self.card, self.rows = card, []

    def add(self, name, times):
        """Keeps {peer: [µs in each round]} of a case."""
        plain = statistics.median(next(iter(times.values())))
        for peer, all_us in times.items():
            us = statistics.median(all_us)
            self.rows.append({"name": name, "peer": peer, "us": round(us, 3)})
            print(f"  {name:<44} {peer:<32} {us:>12,.1f} us  {plain / us:.2f}", flush=True)

    def leave_out(self, name, peer, why):
        why = " ".join(str(why).split())[:200]
        self.rows.append({"name": name, "peer": peer, "left_out": why})
        print(f"  {name:<44} {peer:<32} left out: {why}", flush=True)

    def note(self, name, report):
        """Keeps patch()'s report and the times by which it chose."""
        row = {"name": name, "peer": "patch's report", "report": str(report)}
        self.rows.append({**row, "choices": report.choices()})
        print("    " + "\n    ".join([*str(report).split("\n"), *report.choices()]), flush=True)

    def write(self):
        if self.card:
            record.append(self.card, "torch_models", self.rows)
        self.rows = []


def seconds_of(call, count, is_gpu):
    """Returns the seconds of a call among `count` calls."""
    if is_gpu:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    if is_gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def times_of(calls, is_gpu, seconds):
    """Returns {who: [µs in each round]}."""
    counts = {}
    for who, call in calls.items():
        for _ in range(3):
            call()
        counts[who] = max(1, int(seconds / max(seconds_of(call, 2, is_gpu), 1e-7)))
    times = {who: [] for who in calls}
    for turn in range(ROUNDS):
        for who in [*calls] if turn % 2 else reversed([*calls]):
            times[who].append(seconds_of(calls[who], counts[who], is_gpu) * 1e6)
    return times


def captured(call):
    """Returns a function that replays `call` as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(run, name, calls, is_gpu, seconds):
    """Times calls, {who: function}, and on a GPU their graphs too."""
    if is_gpu:
        for who in [*calls]:
            try:
                calls[f"{who}, graph"] = captured(calls[who])
            except Exception as error:
                run.leave_out(name, f"{who}, graph", error)
                torch.cuda.synchronize()
    run.add(name, times_of(calls, is_gpu, seconds))


def variants(run, name, model, example, compile_too):
    """Yields (who, model) of the plain, patched and compiled models. They share no parameters."""
    patched = copy.deepcopy(model)
    run.note(name, opdock.torch.patch(patched, measure=example))
    yield "torch", model
    yield "opdock", patched
    if compile_too:
        for who, one in (("torch.compile", model), ("opdock, torch.compile", patched)):
            torch._dynamo.reset()
            yield who, torch.compile(copy.deepcopy(one))


def inference(run, arguments):
    sizes = made.TINY if arguments.tiny else made.MINILM
    batches = [(2, 8)] if arguments.tiny else BATCHES
    for name, model in made.encoders(sizes):
        for dtype in (torch.float16, torch.float32):
            model = model.to(arguments.device, dtype).eval()
            for rows, tokens in batches:
                ids = made.random_ids(sizes, rows, tokens, arguments.device)
                case = f"{name} B{rows} S{tokens} {str(dtype).removeprefix('torch.')}"
                with torch.no_grad():
                    one_inference(run, case, model, ids, arguments)
                run.write()


def one_inference(run, case, model, ids, arguments):
    calls, wanted = {}, None
    for who, one in variants(run, case, model, ids, arguments.compile):
        try:
            found = one(ids).float()
        except Exception as error:
            run.leave_out(case, who, error)
            continue
        wanted = found if wanted is None else wanted
        bound = BOUNDS[next(model.parameters()).dtype] * max(1.0, float(wanted.abs().max()))
        error = float((found - wanted).abs().max())
        if not error <= bound:
            run.leave_out(case, who, f"differs from torch's result by {error:.2g}")
            continue
        calls[who] = lambda one=one: one(ids)
    measure(run, case, calls, arguments.device == "cuda", arguments.seconds)


def training(run, arguments):
    sizes = made.TINY if arguments.tiny else made.GPT2_SMALL
    rows, tokens = (2, 8) if arguments.tiny else TRAINING
    model = made.GPT2(**sizes).to(arguments.device)
    ids = made.random_ids(sizes, rows, tokens, arguments.device)
    case = f"gpt2 training step B{rows} S{tokens}"
    calls, wanted = {}, None
    # patch() measures as the step will call: under autocast.
    with torch.autocast(arguments.device, torch.bfloat16, cache_enabled=False):
        for who, one in variants(run, case, model, ids, arguments.compile):
            is_ours = who.startswith("opdock")
            parts = opdock.torch.optim if is_ours else torch.optim
            more = {} if is_ours else {"fused": True, "capturable": arguments.device == "cuda"}
            optimizer = parts.AdamW(one.parameters(), lr=1e-5, **more)

            def step(one=one, optimizer=optimizer):
                with torch.autocast(arguments.device, torch.bfloat16, cache_enabled=False):
                    loss = one(ids)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
                return loss

            try:
                losses = [float(step().detach()) for _ in range(3)]
            except Exception as error:
                run.leave_out(case, who, error)
                continue
            wanted = losses if wanted is None else wanted
            error = max(abs(a - b) for a, b in zip(losses, wanted, strict=True))
            if not error <= 0.02 * wanted[0]:
                run.leave_out(case, who, f"its losses differ from torch's by {error:.2g}")
                continue
            calls[who] = step
    measure(run, case, calls, arguments.device == "cuda", arguments.seconds)
    run.write()


def optimizers(run, arguments):
    sizes = made.TINY if arguments.tiny else made.GPT2_SMALL
    is_gpu = arguments.device == "cuda"
    calls = {}
    peers = {
        "torch fused": (torch.optim.AdamW, {"fused": True, "capturable": is_gpu}),
        "torch foreach": (torch.optim.AdamW, {"foreach": True, "capturable": is_gpu}),
        "opdock": (opdock.torch.optim.AdamW, {}),
    }
    for who, (cls, options) in peers.items():
        model = made.GPT2(**sizes).to(arguments.device)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        calls[who] = cls(model.parameters(), lr=1e-6, **options).step
    measure(run, "adamw of gpt2", calls, is_gpu, arguments.seconds)
    run.write()


PARTS = {"inference": inference, "training": training, "optimizers": optimizers}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="a GPU if there is one")
    parser.add_argument("--parts", metavar="PART,…", help="of " + ", ".join(PARTS))
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--tiny", action="store_true", help="to try the program")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
    arguments = parser.parse_args()
    arguments.device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    parts = arguments.parts.split(",") if arguments.parts else [*PARTS]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"found --parts {', '.join(unknown)}, wanted some of {', '.join(PARTS)}")
    if arguments.device == "cpu" and not arguments.tiny:
        print("  skipped: found no CUDA GPU; --tiny tries the program on the CPU")
        return
    arguments.seconds = 0.01 if arguments.tiny else SECONDS
    if arguments.fresh:
        for plugin in ("norm", "activation", "softmax", "cross_entropy", "rope", "attention"):
            _choice.tuning("forget", plugin=plugin)
    for part in parts:
        torch.manual_seed(0)
        PARTS[part](run := Run(arguments.record), arguments)
        run.write()


if __name__ == "__main__":
    main()
