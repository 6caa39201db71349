# SPDX-License-Identifier: Apache-2.0
"""The demo: finds and checks plugins, then runs a real model on them."""

import copy
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import dropin
import ondemand

import opdock

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import deepspeed_layer
    import formula
    import torch
    import torch.nn.functional as F
    import training
    from encoder import MAX_TOKENS, Encoder

SENTENCES = [
    "A man is eating a piece of bread.",
    "Someone is having a meal.",
    "The compiler refuses to inline this function.",
    "Link-time optimisation can make a program faster.",
    "It will rain in the mountains tomorrow afternoon, with snow above two thousand metres.",
    "The weather forecast promises a storm.",
]
PAGES = sorted((Path(__file__).resolve().parents[2] / "docs/reference").glob("*.md"))[:6]
WARM_UP = 3
SECONDS = 3  # no further run begins after so many seconds, once there are ten
BAR = 1e-5  # largest allowed difference of an embedding's element, in fp32


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def show_plugins():
    """Prints the table of the built tree's plugins and of a folder with good and unfit ones."""
    heading("1. Plugins: the built tree's, and a drop-in folder with files no host should load")
    # 12.1 is the highest architecture that every supported run-time compiler knows. Neither its
    # cubin nor its PTX runs on a lower architecture.
    absent = "12.1"
    folder = dropin.make(Path(os.environ["OPDOCK_BUILD_DIR"]) / "demo-plugins", absent)
    paths = [p for p in (os.environ.get("OPDOCK_ADD_PLUGIN_PATH"), str(folder)) if p]
    environment = dict(os.environ, OPDOCK_ADD_PLUGIN_PATH=":".join(paths))
    listed = subprocess.run(
        ["opdock", "list", "--details"], env=environment, check=False
    ).returncode
    if listed not in (0, 1):
        sys.exit(f"`opdock list` ended with status {listed}")


def opdock_softmax(scores, scale, mask):
    return opdock.ops.softmax(scores, scale=scale, mask=mask)


def opdock_add_layer_norm(x, residual, weight, bias, eps):
    return opdock.ops.add_layer_norm(x, residual, weight, bias, eps=eps)[0]


def opdock_linear_gelu(x, weight, bias):
    return opdock.ops.bias_gelu(F.linear(x, weight), bias, approximate="none")


def timed(encoders, texts, most_runs):
    """Returns each encoder's times in milliseconds. The encoders alternate, each going first
    equally often, so that other load on the machine affects all of them."""
    times = [[] for _ in encoders]
    end = time.perf_counter() + SECONDS
    for run in range(WARM_UP + most_runs):
        if run >= WARM_UP + 10 and time.perf_counter() > end:
            break
        order = range(len(encoders))
        for i in order if run % 2 else reversed(order):
            start = time.perf_counter()
            if encoders[i](texts).is_cuda:
                torch.cuda.synchronize()
            times[i].append(1e3 * (time.perf_counter() - start))
    return [taken[WARM_UP:] for taken in times]


def compare(torch_times, opdock_times):
    """Returns a text with the medians, the gain, and the spread of the runs."""
    torch_ms, opdock_ms = statistics.median(torch_times), statistics.median(opdock_times)
    gain = 100 * (torch_ms / opdock_ms - 1)
    spread = max(
        statistics.median(abs(taken / middle - 1) for taken in times)
        for times, middle in ((torch_times, torch_ms), (opdock_times, opdock_ms))
    )
    return (
        f"PyTorch {torch_ms:.2f} ms, with Opdock's plugins {opdock_ms:.2f} ms: "
        f"{abs(gain):.1f}% {'faster' if gain >= 0 else 'slower'}\n"
        f"    ({len(torch_times)} runs each, half of them within {100 * spread:.1f}% of the median)"
    )


def run_model():
    """Encodes texts in PyTorch and on Opdock's plugins; returns the largest difference."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    heading(f"2. A sentence encoder, all-MiniLM-L6-v2, fp32, on {name}")
    encoder = Encoder(device)
    with_plugins = copy.copy(encoder)  # shares the weights
    with_plugins.softmax, with_plugins.add_layer_norm = opdock_softmax, opdock_add_layer_norm
    with_plugins.linear_gelu = opdock_linear_gelu
    print("Similarity of the sentences (softmax, add_layer_norm, bias_gelu by Opdock's plugins):\n")
    embedded = with_plugins(SENTENCES)
    for i, row in enumerate((embedded @ embedded.T).tolist()):
        print("  " + " ".join(f"{value:5.2f}" for value in row) + f"   {SENTENCES[i]}")
    # The encoder reads only the first MAX_TOKENS tokens, and a word has at least one.
    pages = [" ".join(page.read_text().split()[:MAX_TOKENS]) for page in PAGES]
    batches = {
        f"{len(SENTENCES)} sentences": (SENTENCES, 100),
        f"{len(pages)} pages of docs/reference/, {MAX_TOKENS} tokens each": (pages, 12),
    }
    difference = max(
        (with_plugins(texts).double() - encoder(texts).double()).abs().max().item()
        for texts, _ in batches.values()
    )
    print(
        f"\nLargest difference of the embeddings from PyTorch's: {difference:.2e} (bar {BAR:.0e})"
    )
    print("Time, medians of runs in turns:")
    for what, (texts, most_runs) in batches.items():
        times = timed([encoder, with_plugins], texts, most_runs)
        print(f"  {what}: {compare(*times)}", flush=True)
    return difference


def run_layer():
    """Runs a transformer layer on DeepSpeed's functions; returns (its largest error, the bar)."""
    heading("3. DeepSpeed: its builder loads a transformer layer's functions")
    return deepspeed_layer.show(compare)


def run_formula():
    """Makes an op of a formula; returns its largest error."""
    heading("4. A formula: a line of mathematics becomes an op with a gradient")
    return formula.show("cuda" if torch.cuda.is_available() else "cpu")


def run_training():
    """Trains a patched model for some steps; returns the largest difference of its losses."""
    heading("5. PyTorch: a small GPT trains, its layers and optimizer on Opdock's ops")
    return training.show("cuda" if torch.cuda.is_available() else "cpu")


def say_that_torch_is_missing():
    """Prints a note in place of the chapters that need torch."""
    heading("2. A sentence encoder, 3. DeepSpeed, 4. A formula, and 5. PyTorch: skipped")
    print("Found no torch, whose tensors they use; install it with `pip install torch`")


def main():
    show_plugins()
    difference, error, bar, formula_error, loss_error = 0.0, 0.0, 0.0, 0.0, 0.0
    if HAS_TORCH:
        difference = run_model()
        error, bar = run_layer()
        formula_error = run_formula()
        loss_error = run_training()
    else:
        say_that_torch_is_missing()
    heading("6. On demand: a source plugin is built on first use")
    ondemand.show(os.environ["OPDOCK_BUILD_DIR"])
    heading("7. What to try next")
    print("""\
./dev opdock inspect build/plugins/softmax.so    what a plugin carries, read without loading it
./dev opdock explain softmax                     which plugin would serve an op, and why
./dev opdock doctor                              what this machine has, and what is missing
./dev python -c 'import opdock; help(opdock.ops.softmax)'
docs/guide/write-a-plugin.md                     your own op in ten minutes
docs/guide/fuse.md                               one kernel of a function over arrays
docs/guide/pytorch.md                            train, compile and patch models of PyTorch
docs/concepts/build-on-demand.md                 what happens if no plugin fits
docs/reference/deepspeed.md                      an unmodified DeepSpeed on Opdock's plugins""")
    if not difference <= BAR:
        sys.exit(f"the embeddings differ by {difference:.2e}, wanted at most {BAR:.0e}")
    if not error <= bar:
        sys.exit(f"the layer's error is {error:.2e}, wanted at most {bar:.0e}")
    if HAS_TORCH and not formula_error <= formula.BAR:
        sys.exit(f"the formula's error is {formula_error:.2e}, wanted at most {formula.BAR:.0e}")
    if HAS_TORCH and not loss_error <= training.BAR:
        sys.exit(f"the losses differ by {loss_error:.2e}, wanted at most {training.BAR:.0e}")


if __name__ == "__main__":
    main()
