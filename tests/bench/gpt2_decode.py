# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding with GPT-2 small on a GPU: Opdock's ops in a graph, PyTorch, DeepSpeed, vLLM.

The weights are random; tokens are generated after a prompt. Opdock's step is one graph that is
replayed, and so is one of PyTorch's candidates; the prompt is in no graph. Before anything is
timed, the logits of each model are compared with exact ones, except for packages that return only
tokens. tokens_per_s is wall-clock throughput over all rows, including the prompt; step_us is the
time of one token after the prompt. The figures are medians of alternating runs."""

import argparse
import time
from pathlib import Path

import gpt2
import gpt2_peers
import peers
import record
import torch
from gpt2_loops import Generate, Loop, captured, kernels, timed
from gpt2_torch import TorchGPT2

#: A model's logits may be this many times as far from the exact ones as plain PyTorch's are in the
#: same dtype, after the same tokens: both round about as often, and how much a rounding grows on
#: its way depends only on the weights. The factor allows for chance, as it compares two maxima of
#: many errors.
MAX_TIMES = 2
#: The error may never exceed this part of the row's largest logit; otherwise the check would prove
#: nothing.
MAX_ERROR = 0.05


def errors(logits, exact):
    """Returns the largest difference of each row [..., vocabulary], relative to its largest
    element."""
    return (logits.to(exact) - exact).abs().amax(-1) / exact.abs().amax(-1)


def check(name, loop, weights, sizes):
    """Raises ArithmeticError if logits or tokens are wrong. The tokens before each position are the
    loop's own, so that one that differs, as in a tie, leaves the later ones comparable."""
    tokens, logits = loop.found()
    begin, dtype, places = loop.ids.shape[1] - 1, logits.dtype, loop.model.history.shape[0]
    exactly = torch.float64 if dtype == torch.float32 else torch.float32
    both = [
        TorchGPT2({key: weight.to(wide) for key, weight in weights.items()}, sizes, 1, places)
        for wide in (exactly, dtype)
    ]
    rows, same = [], 0
    for row in range(len(tokens)):  # one row at a time, since the exact logits take much memory
        ids = torch.cat([loop.ids[row], tokens[row, :-1]])[None]
        exact, plain = (model.logits(ids, begin)[0] for model in both)
        best, chosen = exact.amax(-1), exact.gather(-1, tokens[row, :, None])[:, 0]
        late = (best - chosen) / exact.abs().amax(-1)
        of_row = errors(logits[row], exact), errors(plain, exact), late
        # The maximum of tensors, since NaN has to stay NaN.
        rows.append(torch.stack(of_row).amax(-1))
        same += (exact.argmax(-1) == tokens[row]).sum().item()
    found, usual, late = torch.stack(rows).amax(0).tolist()
    most = min(MAX_TIMES * usual, MAX_ERROR)
    # A chosen token's logit may be below the largest one by at most both errors together.
    if not (found <= most and late <= 2 * most):
        raise ArithmeticError(
            f"{name}: found logits that differ by {found:.2e}, and a token whose logit is "
            f"{late:.2e} below the largest, wanted at most {most:.2e} and {2 * most:.2e} of the "
            f"largest (PyTorch in {dtype}: {usual:.2e}); look for the first step that differs"
        )
    print(
        f"  {name:<28} error of logits {found:.1e}, PyTorch's in this dtype {usual:.1e}; "
        f"{same} of {tokens.numel()} tokens those of {exactly}, "
        f"{tokens.unique().numel()} different ones",
        flush=True,
    )


def ours(weights, sizes, ids, new, places):
    """Returns Opdock's {who: Loop}, checked."""
    model = gpt2.OpdockGPT2(weights, sizes, len(ids), places)
    model.prompt(ids)
    step = captured(model.step) if ids.is_cuda else model.step
    loop = Loop(model, step, ids, new)
    try:
        check("opdock", loop, weights, sizes)
    except ArithmeticError as error:
        raise SystemExit(str(error)) from error
    return {"opdock": loop}


def plain(weights, sizes, ids, new, places, compilers):
    """Yields PyTorch's (who, Loop), checked: eager, a graph of the eager step, and compiled
    steps."""

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
    torch._dynamo.reset()  # a step is compiled for one batch size
    for name, make in makers.items():
        begin = time.perf_counter()
        try:
            made, step = make()
            loop = Loop(made, step, ids, new)
            check(name, loop, weights, sizes)
        except Exception as error:  # wrong results, or a compiler that does not work here
            print(f"  skipped: {name}: {peers.first_line(error)}", flush=True)
            continue
        if name.startswith("torch.compile"):
            skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
            graph = f", {skips} graphs refused" if skips else ""
            print(f"    compiled in {time.perf_counter() - begin:.0f} s{graph}", flush=True)
        yield name, loop


def package(name, make, ids, tokens):
    """Returns {name: Generate} of the function that make() makes; if that cannot be used, returns
    {} and prints one line. Prints how many tokens equal those in `tokens`: after a tie all later
    ones differ."""
    try:
        function = make()
        found = function()[:, ids.shape[1] :].to(tokens.device)
        if found.shape != tokens.shape:
            raise RuntimeError(
                f"found {tuple(found.shape)} tokens, wanted {tuple(tokens.shape)}; look at what "
                "this release takes for the end"
            )
        same = (found == tokens).sum().item()
    except Exception as error:  # its import, or this release, may fail in any way
        print(f"  skipped: {name}: {peers.first_line(error)}", flush=True)
        return {}
    print(f"  {name:<28} {same} of {tokens.numel()} tokens those of opdock", flush=True)
    return {name: Generate(function)}


def deepspeed(weights, sizes, ids, new, places):
    """Returns {"DeepSpeed": Loop} with DeepSpeed's layers; if they cannot be used, returns {} and
    prints one line. Logits that are further off than Opdock's may be are reported, but the model is
    timed anyway."""
    try:
        from gpt2_deepspeed import DeepSpeedGPT2

        model = DeepSpeedGPT2(weights, sizes, len(ids), places)
        loop = Loop(model, model.step, ids, new)
        check("DeepSpeed", loop, weights, sizes)
    except ArithmeticError as error:
        print(f"  timed all the same: {peers.first_line(error)}", flush=True)
    except Exception as error:  # not installed, or cannot be compiled
        print(f"  skipped: DeepSpeed: {peers.first_line(error)}", flush=True)
        return {}
    return {"DeepSpeed": loop}


def show(name, batch, new, medians, own):
    """Prints medians, {who: (seconds of all, of a step)}, compared with `own` seconds; returns what
    to record."""
    results = []
    for who, (total, step) in medians.items():
        rate = batch * new / total
        each = "" if step is None else f", {1e6 * step:8.1f} us a step"
        print(f"  {who:<28} {rate:10.1f} tokens/s, {total / own:6.2f} x opdock's time{each}")
        result = {"name": name, "peer": who, "tokens_per_s": round(rate, 1)}
        if step is not None:
            result["step_us"] = round(1e6 * step, 1)
        results.append(result)
    return results


def run_batch(arguments, sizes, weights, batch):
    """Runs one batch size, without DeepSpeed and vLLM. Returns (the results to record, a function
    that times these two and returns their results)."""
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
    tokens, _ = whose["opdock"].found()

    def transformers_model():
        return gpt2_peers.transformers_model(weights, sizes)

    def generating():
        return gpt2_peers.generating(transformers_model(), ids, new)

    whose |= package("transformers", generating, ids, tokens)
    medians = timed(whose, arguments.runs)
    own = medians["opdock"][0]

    def vllm():
        return gpt2_peers.vllm_generating(transformers_model(), ids, new, places)

    def time_others():
        print(f"  {name}, others", flush=True)
        found = {} if arguments.no_deepspeed else deepspeed(weights, sizes, ids, new, places)
        if ids.is_cuda:
            found |= package("vLLM", vllm, ids, tokens)
        return show(name, batch, new, timed(found, arguments.runs), own)

    return show(name, batch, new, medians, own), time_others


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: no graphs")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--batch", metavar="ROWS,…", default="1,32")
    parser.add_argument("--prompt", metavar="TOKENS", type=int, default=128)
    parser.add_argument("--new", metavar="TOKENS", type=int, default=128)
    parser.add_argument("--layers", type=int, default=gpt2.Sizes.layers, help="fewer: to try it")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, minutes")
    parser.add_argument("--no-deepspeed", action="store_true", help="whose kernels are compiled")
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
    later = []
    with torch.no_grad():
        for batch in batches:
            results, time_others = run_batch(arguments, sizes, weights, batch)
            keep(arguments.record, results)
            later.append(time_others)
        # These run last: a call that fails part-way may have written to memory of others.
        for time_others in later:
            keep(arguments.record, time_others())


def keep(card, results):
    """Appends the results to the records in the folder `card`, unless it is None."""
    if card and results:
        record.append(card, "gpt2_decode", results)


if __name__ == "__main__":
    main()
