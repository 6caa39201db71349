# SPDX-License-Identifier: Apache-2.0
"""Times torch.compile(model, backend="opdock") beside inductor and eager mode, on ten models.

Of each model (tests/pytorch/small_models.py, with random weights) there are these rows:

    NAME, training step     a forward and a backward pass: µs
    NAME, inference         a forward pass without gradients: µs
    NAME, compilation       what the backend itself takes for the training graphs: ms. For inductor
                            that is compile_fx_inner, with its caches off; for Opdock all of
                            compile_graph, the compilation of its kernels included, with a cache
                            that is empty at the beginning. Neither has Dynamo's or AOTAutograd's
                            time.
    NAME, first step        from torch.compile() to the end of the first training step: ms

Bars: compilation within 0.1 of inductor's; a training step of BERT, GPT-2 and Llama within 1.05 of
inductor's, and less on two of them.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "pytorch"))
_cache = None
if "OPDOCK_CACHE_DIR" not in os.environ:  # before opdock is imported, which reads it
    _cache = tempfile.TemporaryDirectory()
    os.environ["OPDOCK_CACHE_DIR"] = _cache.name

import record  # noqa: E402
import small_models as models  # noqa: E402
import torch  # noqa: E402

from opdock.torch.backend import _log  # noqa: E402

PEERS = ("opdock", "torch.compile", "torch")
BARRED = ("bert", "gpt2", "llama")
WITHIN, SOONER = 1.05, 0.1


def _ids(batch, length, words=30000):
    return torch.randint(0, words, (batch, length))


def sizes_of(size):
    """Returns {name: (keywords of the model, function that makes its arguments)}."""
    if size == "tiny":
        return {name: ({}, lambda make=make: make(6)) for name, (_, make) in models.MODELS.items()}
    large = size == "large"
    width, heads, layers, length = (768, 12, 12, 512) if large else (512, 8, 4, 256)
    batch, words = (16, 30000)
    text = {"width": width, "heads": heads, "layers": layers, "words": words, "length": length}
    pixels = {"width": width, "heads": heads, "layers": layers, "patch": 16, "size": 224}
    image = (batch, 3, 224, 224)
    return {
        "mlp": ({"width": 2048}, lambda: (torch.randn(4096, 2048),)),
        "cnn": ({"channels": 64}, lambda: (torch.randn(batch, 3, 64, 64),)),
        "bert": (text, lambda: (_ids(batch, length), torch.rand(batch, length) > 0.2)),
        "gpt2": (text, lambda: (_ids(batch, length), _ids(batch, length))),
        "llama": (text, lambda: (_ids(batch, length),)),
        "vit": (pixels, lambda: (torch.randn(image),)),
        "mixture": ({"width": width, "experts": 8}, lambda: (torch.randn(4096, width),)),
        "lstm": ({"width": width, "words": words}, lambda: (_ids(256, 8),)),
        "diffusion": (
            {"channels": 128},
            lambda: (torch.randn(batch, 128, 32, 32), torch.rand(batch)),
        ),
        "autoencoder": (
            {"width": 2048, "latent": 256},
            lambda: (torch.randn(4096, 2048), torch.randn(4096, 256)),
        ),
    }


class Inductor:
    """torch.compile's own compiler, whose inner calls are timed."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self, graph_module, inputs):
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        def inner(*args, **keywords):
            start = time.perf_counter()
            try:
                return compile_fx_inner(*args, **keywords)
            finally:
                self.seconds += time.perf_counter() - start

        with torch._inductor.config.patch(force_disable_caches=True):
            return compile_fx(graph_module, inputs, inner_compile=inner)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def training(model, args):
    """Returns a function that makes one step: the gradients of all parameters."""
    parameters = list(model.parameters())

    def step(call):
        result = call(*args)
        torch.autograd.grad(result.float().square().mean(), parameters)

    return step


def inference(args):
    def step(call):
        with torch.no_grad():
            call(*args)

    return step


def times_of(calls, step, device, repeats):
    """Returns {peer: the median µs of a step}; the peers take turns."""
    found = {peer: [] for peer in calls}
    for peer in calls:
        for _ in range(3):
            step(calls[peer])
    for _ in range(repeats):
        for peer, call in calls.items():
            wait(device)
            start = time.perf_counter()
            step(call)
            wait(device)
            found[peer].append((time.perf_counter() - start) * 1e6)
    return {peer: statistics.median(times) for peer, times in found.items()}


def rows_of(name, peers, arguments):
    """Yields the rows of one model."""
    keywords, make = sizes_of(arguments.size)[name]
    torch.manual_seed(1)
    dtype, device = getattr(torch, arguments.dtype), arguments.device
    model = models.MODELS[name][0](**keywords).to(device, dtype)
    args = [x.to(device, dtype if x.is_floating_point() else None) for x in make()]
    steps = {"training step": training(model, args), "inference": inference(args)}
    calls = {}
    for peer in peers:
        torch._dynamo.reset()
        if peer == "torch":
            calls[peer] = model
            continue
        inductor = Inductor()
        start = time.perf_counter()
        with _log.listening() as graphs:
            calls[peer] = torch.compile(
                model, backend="opdock" if peer == "opdock" else inductor, dynamic=False
            )
            steps["training step"](calls[peer])
            wait(device)
        first = time.perf_counter() - start
        own = sum(graph.seconds for graph in graphs) if peer == "opdock" else inductor.seconds
        yield {"name": f"{name}, compilation", "peer": peer, "ms": round(own * 1e3, 2)}
        yield {"name": f"{name}, first step", "peer": peer, "ms": round(first * 1e3, 1)}
        if graphs:
            counts = {"kernels": [len(graph.kernels) for graph in graphs]}
            yield {"name": f"{name}, kernels", "peer": peer, **counts}
    for kind, step in steps.items():
        for peer, time_us in times_of(calls, step, device, arguments.repeats).items():
            yield {"name": f"{name}, {kind}", "peer": peer, "us": round(time_us, 1)}


def bars(rows):
    """Returns lines that say which bars hold."""
    found = {}
    for row in rows:
        found.setdefault(row["name"], {})[row["peer"]] = row.get("us", row.get("ms"))
    ratios = {
        name: of["opdock"] / of["torch.compile"]
        for name, of in found.items()
        if isinstance(of.get("opdock"), float) and isinstance(of.get("torch.compile"), float)
    }
    lines = []
    compiling = {n: r for n, r in ratios.items() if n.endswith("compilation")}
    if compiling:
        worst = max(compiling, key=compiling.get)
        lines.append(_verdict(compiling[worst] <= SOONER, f"compilation within {SOONER}",
                              f"{worst}: {compiling[worst]:.3f}"))  # fmt: skip
    steps = {n: r for n, r in ratios.items()
             if n.endswith("training step") and n.split(",")[0] in BARRED}  # fmt: skip
    if steps:
        worst = max(steps, key=steps.get)
        ahead = sum(ratio < 1 for ratio in steps.values())
        holds = steps[worst] <= WITHIN and ahead >= 2
        text = f"training step within {WITHIN}, ahead on two of {', '.join(BARRED)}"
        lines.append(_verdict(holds, text, f"{worst}: {steps[worst]:.3f}; ahead on {ahead}"))
    return lines


def _verdict(holds, text, worst):
    return f"  bar {'holds' if holds else 'DOES NOT HOLD'}: {text}; worst: {worst}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="a GPU if there is one")
    parser.add_argument("--size", choices=["tiny", "small", "large"], default="large")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--models", metavar="MODEL,…", help="of " + ", ".join(models.MODELS))
    parser.add_argument("--peers", metavar="PEER,…", help="of " + ", ".join(PEERS))
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    arguments.device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = arguments.device == "cuda"
    arguments.dtype = arguments.dtype or ("bfloat16" if on_gpu else "float32")
    chosen = arguments.models.split(",") if arguments.models else list(models.MODELS)
    peers = arguments.peers.split(",") if arguments.peers else list(PEERS)
    unknown = (set(chosen) - set(models.MODELS)) | (set(peers) - set(PEERS))
    if unknown:
        parser.error(f"found {', '.join(sorted(unknown))}, wanted names of the lists above")
    torch.set_float32_matmul_precision("high")
    settings = {"size": arguments.size, "dtype": arguments.dtype, "device": arguments.device}
    rows = []
    for name in chosen:
        for row in rows_of(name, peers, arguments):
            rows.append({**row, **settings})
            print(json.dumps(rows[-1]), flush=True)
    print("\n".join(bars(rows)))
    if arguments.record:
        record.append(arguments.record, "torch_backend", rows)


if __name__ == "__main__":
    main()
