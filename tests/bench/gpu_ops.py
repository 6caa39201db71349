# SPDX-License-Identifier: Apache-2.0
"""Times memory-bound ops on the GPU next to a device copy of the same shape, and their peers.

Each plugin's bench_*.py lists what is timed, in candidates(x) and extra_cases(dtype); PyTorch's
functions are also timed with torch.compile, and other packages' functions come from peers.py. Bytes
are those that the op must move: each input read once, each output written once. GB/s is bytes over
the median time of one call, by CUDA events around each call, with none of the call's data in the
L2. A record with "host" includes time in which the device waited for the host."""

import argparse
import fnmatch
import importlib.util
from pathlib import Path

import peers
import record
import timing
import torch

import opdock

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"

SHAPES = ["8192x8192", "65536x1024", "2048x32768"]
MORE = [
    "8192x4096",
    "4096x14432",
    "65536x1000",
    "32768x256",
    "65536x1023",
    "4096x14431",
    "512x131072",
]
DTYPES = ["float32", "bfloat16", "float16"]


def timed_ms(function, repeats=50, before=lambda: None):
    """Returns (median time of one call on the current stream with a cold L2, in milliseconds;
    whether only the device was timed, as in timing.Times). before: does what each call needs
    beforehand, outside of the measured time."""
    for _ in range(5):
        before()
        function()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def launch(_, pair):
        before()
        flush.zero_()
        pair[0].record()
        function()
        pair[1].record()

    times = timing.events_of(torch, launch, repeats)
    return timing.middle(list(enumerate(times))) / 1000, times.is_ahead


def benches():
    """Yields the bench_*.py of the plugins that can be used here, as modules."""
    usable = {plugin["name"] for plugin in opdock.plugins() if plugin["usable"]}
    for path in sorted(PLUGINS.glob("*/bench_*.py")):
        if path.parent.name in usable:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            yield module


def copy_of(moved):
    """Returns a function that makes a device copy moving as many bytes."""
    source = torch.zeros(int(moved) // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def with_peers(packages, op, x, functions, compilers=peers.MODES):
    """Yields (whose, function that makes the function to time) for {whose: function} and for its
    peers. If torch has two ways ("torch, no mask"), both are compiled as well."""
    for whose, function in functions.items():
        yield whose, lambda function=function: function
        if whose.startswith("torch"):
            for compiler, compiled in peers.compiled(op, function, compilers).items():
                name = compiler + whose.removeprefix("torch")
                yield name, lambda compiled=compiled: compiled
        if whose == "opdock":
            yield from peers.makers(packages, op, x).items()


class Run:
    """Times functions; prints and keeps their rates. card: the folder of its records, or None."""

    def __init__(self, card, compilers=peers.MODES):
        self.card, self.compilers = card, compilers
        self.results = []
        self.copy = 0.0  # GB/s of the copy for the case that is being timed

    def time(self, op, case, whose, moved, make):
        """Times one function of an op that moves `moved` bytes. Cases that a peer cannot do are
        skipped."""
        name = f"{op} {case}"
        try:
            ms, is_ahead = timed_ms(make())
        except Exception as error:
            if whose in ("opdock", "torch"):
                raise
            print(f"  skipped: {whose} {name}: {peers.first_line(error)}")
            return
        rate = moved / ms / 1e6
        if op == "copy":
            self.copy = rate
        share = f"{rate / self.copy:6.1%} of copy" + ("" if is_ahead else ", with the host's time")
        print(f"  {name:<48} {whose:<18} {rate:7.0f} GB/s {share}")
        row = {"name": name, "peer": whose, "gb_per_s": round(rate, 1), "l2": "cold"}
        self.results.append(row if is_ahead else row | {"host": True})

    def write(self):
        """Records what was timed since the last call, so that an interrupted run keeps its results.
        Copies without other results are not recorded, since nothing is compared with them."""
        if self.card and any(not row["name"].startswith("copy ") for row in self.results):
            record.append(self.card, "gpu_ops", self.results)
        self.results = []


def is_wanted(op, patterns):
    """Returns whether an op's name matches one of the comma-separated patterns."""
    return any(fnmatch.fnmatch(op, pattern) for pattern in patterns.split(","))


def time_shape(run, modules, packages, wanted, shape, dtype):
    """Times all ops of one shape and dtype."""
    # Compiles each shape and dtype separately, without reaching the recompile limit.
    torch._dynamo.reset()
    x = torch.randn([int(n) for n in shape.split("x")], device="cuda", dtype=getattr(torch, dtype))
    size, case = x.numel() * x.element_size(), f"{shape} {dtype}"
    run.time("copy", case, "torch", 2 * size, lambda: copy_of(2 * size))
    for module in modules:
        for op, whose, tensors, function in module.candidates(x):
            if is_wanted(op, wanted):
                for who, make in with_peers(packages, op, x, {whose: function}, run.compilers):
                    run.time(op, case, who, tensors * size, make)


def time_extra(run, modules, packages, wanted, shapes, dtype):
    """Times the extra cases. shapes: the wanted ones, or None for all."""
    for module in modules:
        for op, case, moved, functions, x in getattr(module, "extra_cases", lambda _: ())(
            getattr(torch, dtype)
        ):
            shape, *rest = case.split()
            if (shapes and shape not in shapes) or not is_wanted(op, wanted):
                continue
            torch._dynamo.reset()
            case = f"{case} {dtype}"
            run.time("copy", case, "torch", moved, lambda moved=moved: copy_of(moved))
            name = " ".join([op, *rest])
            for whose, make in with_peers(packages, name, x, functions, run.compilers):
                run.time(op, case, whose, moved, make)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--all", action="store_true", help="all shapes, and the extra cases")
    parser.add_argument("--ops", metavar="PATTERN,…", default="*", help="as file names: 'add_*'")
    parser.add_argument("--dtypes", metavar="DTYPE,…", help="of " + ", ".join(DTYPES))
    parser.add_argument("--shapes", metavar="SHAPE,…", help="as 8192x8192; also of extra cases")
    parser.add_argument(
        "--compilers",
        metavar="NAME,…",
        default=",".join(peers.MODES),
        help='those of torch.compile that are timed: "torch.compile", "torch.compile max"; "" none',
    )
    arguments = parser.parse_args()
    dtypes = arguments.dtypes.split(",") if arguments.dtypes else DTYPES
    shapes = arguments.shapes.split(",") if arguments.shapes else None
    compilers = tuple(filter(None, arguments.compilers.split(",")))
    if set(compilers) - set(peers.MODES):
        wanted = ", ".join(peers.MODES)
        parser.error(f"found --compilers {arguments.compilers}, wanted some of {wanted}")
    if set(dtypes) - set(DTYPES):
        parser.error(f"found --dtypes {arguments.dtypes}, wanted some of {', '.join(DTYPES)}")
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    modules, packages = list(benches()), peers.available()
    run = Run(arguments.record, compilers)
    plain = [s for s in shapes if s.count("x") == 1] if shapes else SHAPES
    for shape in plain + MORE if arguments.all and not shapes else plain:
        for dtype in dtypes:
            time_shape(run, modules, packages, arguments.ops, shape, dtype)
            run.write()
    if arguments.all or shapes:
        for dtype in dtypes:
            time_extra(run, modules, packages, arguments.ops, shapes, dtype)
            run.write()


if __name__ == "__main__":
    main()
