# SPDX-License-Identifier: Apache-2.0
"""Times matrix products next to PyTorch's, on a GPU: the op `linear` and opdock.gemm/1 below it.

linear is what programs call. It returns a fresh result, and is timed next to torch's linear and its
activation, which are two calls, and next to torch._addmm_activation, which has ReLU and tanh's GELU
in the product. For opdock.gemm/1 both write into the same tensor, d = a b' or d = a b: PyTorch by
torch.matmul with out=, or torch.addmm with a bias; Opdock by the op of the tests' plugin,
build/tests/gemm. With --tf32 both may round float32. Device: the median of CUDA events around each
call, alternating, with a cold L2. Host: the time of a call among 256, without the waits."""

import argparse
import os
import random
import statistics
from pathlib import Path

import peers
import record
import timing
import torch
import torch.nn.functional as F

BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))
os.environ["OPDOCK_ADD_PLUGIN_PATH"] = str(BUILD / "tests" / "gemm")

import opdock  # noqa: E402 (the line above names its plugin)

# m, n, k
SHAPES = [
    (16, 768, 768),
    (16, 3072, 768),
    (128, 768, 768),
    (512, 768, 3072),
    (1, 4096, 4096),
    (32, 4096, 4096),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (512, 11008, 4096),
    (4096, 11008, 4096),
    (512, 11008, 4096),
    (512, 4096, 11008),
    (8192, 8192, 8192),
]
GELU, GELU_TANH = 2, 3


def linear(shape, dtype, _):
    """Returns {case: {whose: function}} of the op and of what PyTorch has for it."""
    m, n, k = shape
    make = {"device": "cuda", "dtype": dtype}
    x, w, bias = (torch.randn(s, **make) for s in ((m, k), (n, k), (n,)))
    w *= k**-0.5
    turned = w.mT
    cases = {
        "linear": {
            "opdock": lambda: opdock.ops.linear(x, w),
            "torch": lambda: F.linear(x, w),
        },
        "linear + bias": {
            "opdock": lambda: opdock.ops.linear(x, w, bias),
            "torch": lambda: F.linear(x, w, bias),
        },
    }
    activations = {
        "relu": (torch.relu, {"use_gelu": False}),
        "gelu_tanh": (lambda y: F.gelu(y, approximate="tanh"), {"use_gelu": True}),
        "gelu": (F.gelu, None),
        "silu": (F.silu, None),
    }
    for name, (function, fused) in activations.items():
        cases[f"linear {name}"] = {
            "opdock": lambda name=name: opdock.ops.linear(x, w, bias, activation=name),
            "torch": lambda function=function: function(F.linear(x, w, bias)),
        }
        if fused is not None:
            cases[f"linear {name}"]["torch._addmm_activation"] = lambda fused=fused: (
                torch._addmm_activation(bias, x, turned, **fused)
            )
    return cases


def extension(shape, dtype, tf32):
    """Returns {case: {whose: function}} of opdock.gemm/1."""
    m, n, k = shape
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    b, bt = (torch.randn(s, device="cuda", dtype=dtype) for s in ((k, n), (n, k)))
    d, bias = torch.empty(m, n, device="cuda", dtype=dtype), torch.randn(n, device="cuda").to(dtype)
    gemm, flags = opdock.ops.test_gemm, int(tf32)
    turned = bt.mT
    return {
        "a b": {
            "opdock": lambda: gemm(a, b, d, flags=flags),
            "torch": lambda: torch.matmul(a, b, out=d),
        },
        "a b'": {
            "opdock": lambda: gemm(a, bt, d, transpose_b=True, flags=flags),
            "torch": lambda: torch.matmul(a, turned, out=d),
        },
        "a b' + bias": {
            "opdock": lambda: gemm(a, bt, d, bias=bias, transpose_b=True, flags=flags),
            "torch": lambda: torch.addmm(bias, a, turned, out=d),
        },
        "gelu(a b' + bias)": {
            "opdock": lambda: gemm(
                a, bt, d, bias=bias, transpose_b=True, activation=GELU_TANH, flags=flags
            ),
            "torch": lambda: torch.nn.functional.gelu(
                torch.addmm(bias, a, turned, out=d), approximate="tanh"
            ),
        },
        # The library's GELU is the tanh form: the erf form is a second kernel in both.
        "gelu by erf(a b' + bias)": {
            "opdock": lambda: gemm(
                a, bt, d, bias=bias, transpose_b=True, activation=GELU, flags=flags
            ),
            "torch": lambda: torch.nn.functional.gelu(torch.addmm(bias, a, turned, out=d)),
        },
    }


CASES = {"linear": linear, "extension": extension}


def device_us(functions, repeats):
    """Returns ({whose: median µs on the device}, whether only the device was timed). The functions
    alternate in a random order, since every second pair of events may be further apart
    (timing.middle)."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for function in functions.values():
        for _ in range(5):
            function()
    random_order, turns = random.Random(1), []
    for _ in range(repeats):
        turns += random_order.sample(list(functions), len(functions))

    def launch(i, pair):
        flush.zero_()
        pair[0].record()
        functions[turns[i]]()
        pair[1].record()

    times = {whose: [] for whose in functions}
    taken = timing.events_of(torch, launch, len(turns))
    for i, took in enumerate(taken):
        times[turns[i]].append((i, took))
    return {whose: timing.middle(of) for whose, of in times.items()}, taken.is_ahead


def measured(title, functions, repeats):
    """Returns what to record of one case, and prints it. Functions that this torch does not have
    are skipped."""
    for whose in [whose for whose in functions if whose not in ("opdock", "torch")]:
        try:
            functions[whose]()
        except Exception as error:
            print(f"  skipped: {whose} {title}: {peers.first_line(error)}")
            del functions[whose]
    on_device, is_ahead = device_us(functions, repeats)
    # For a product that takes the device longer than the host, the host's time would be that of a
    # full queue.
    small = on_device["torch"] < 20
    on_host = timing.interleaved(torch, functions, 5) if small else {}
    results = []
    for whose in functions:
        result = {"name": title, "peer": whose, "us": round(on_device[whose], 2)}
        if small:
            result["host_us"] = round(statistics.median(on_host[whose]), 2)
        results.append(result if is_ahead else result | {"host": True})
    best = min(us for whose, us in on_device.items() if whose != "opdock")
    each = "  ".join(f"{whose} {us:9.2f} us" for whose, us in on_device.items())
    host = "  ".join(f"{w} {statistics.median(t):.2f}" for w, t in on_host.items())
    late = "" if is_ahead else "  with the host's time"
    ratio = on_device["opdock"] / best
    print(f"{title:<48} {each}  {ratio:5.3f}x  host us: {host or '-'}{late}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--dtypes", default="bfloat16,float16,float32")
    parser.add_argument("--shapes", metavar="MxNxK,…", help="without it all")
    parser.add_argument("--cases", choices=CASES, help="without it both")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--repeats", type=int, default=100)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    shapes = SHAPES
    if arguments.shapes:
        shapes = [tuple(map(int, s.split("x"))) for s in arguments.shapes.split(",")]
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    results = []
    for name in arguments.dtypes.split(","):
        for shape in shapes:
            for kind in [arguments.cases] if arguments.cases else CASES:
                made = CASES[kind](shape, getattr(torch, name), arguments.tf32)
                for case, functions in made.items():
                    title = f"{case} {'x'.join(map(str, shape))} {name}"
                    title += " tf32" if arguments.tf32 and name == "float32" else ""
                    results += measured(title, functions, arguments.repeats)
    if arguments.record:
        record.append(arguments.record, "gemm", results)


if __name__ == "__main__":
    main()
