# SPDX-License-Identifier: Apache-2.0
"""Times chains of operations that are one formula each, beside peers that fuse plain code.

The chains are in formulas_chains.py, the peers in formulas_peers.py, and what is wanted of the
times in formulas_bars.py: the last lines say which of these bars hold. Every result is compared
with float64 first, and a peer whose results are wrong is left out. What is left out is printed, and
recorded with the reason.

Three parts. `times`: a call's time, of a copy that moves as many bytes: on a GPU by CUDA events
with a cold L2, as gpu_ops.py measures it; on the CPU of calls in turns, on one thread and on all
cores. MLX has no events on torch's stream; the wall time of many calls in a row is divided by their
number, which its rows say ("wall"). `first`: milliseconds from the text to the first result, in a
process that has imported everything and done other work: with empty caches (opening the compiler
counts), with empty caches but the compiler open, and with the caches that such a process has left.
`host`: the CPU time of a call that launches one small kernel."""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import formulas_bars as bars
import formulas_chains as chains
import formulas_peers
import peers
import record
import timing
import torch
from cpu_ops import keep_freed_memory
from gpu_ops import DTYPES, copy_of, timed_ms

HERE = Path(__file__).resolve()
BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", HERE.parents[2] / "build"))
SHAPES = {
    "cuda": ["8192x8192", "65536x1024", "2048x32768"],
    "cpu": ["1024x1024", "8192x1024", "64x32768"],
}
PARTS = {"cuda": ["times", "first", "host"], "cpu": ["times", "first"]}
FIRST_SHAPE, HOST_SHAPE = (1024, 1024), (16, 1024)
ROUNDS = 3  # in which the peers of a case take turns on the GPU
SECONDS = 0.25  # for each peer of a case on the CPU


class Run:
    """Prints and keeps what was measured. card: the folder of its records, or None."""

    def __init__(self, card):
        self.card, self.rows, self.written = card, [], 0

    def add(self, name, peer, unit, value, **more):
        """Keeps one time; unit: us or ms."""
        self.rows.append({"name": name, "peer": peer, unit: round(value, 3), **more})
        shown = "".join(f", {key} {more[key]}" for key in more)
        units = {"us": "µs", "ms": "ms"}
        print(f"  {name:<46} {peer:<18} {value:>11.2f} {units[unit]}{shown}", flush=True)

    def leave_out(self, name, peer, why):
        """Keeps why a peer has no time for the cases of this name."""
        row = {"name": name, "peer": peer, "left_out": why}
        if row not in self.rows:  # other numbers of threads have the same reason
            self.rows.append(row)
            print(f"  left out: {peer}, {name}: {why}", flush=True)

    def write(self):
        """Records what is new, so that an interrupted run keeps its results."""
        if self.card and self.written < len(self.rows):
            record.append(self.card, "formulas", self.rows[self.written :])
        self.written = len(self.rows)


def usable(run, makers):
    """Returns those of the peers whose modules can be imported; leaves out the others."""
    found = {}
    for peer, make in makers.items():
        module, _ = formulas_peers.NEEDS.get(peer, (None, ()))
        try:
            if module:
                importlib.import_module(module)
            found[peer] = make
        except Exception as error:  # a dependency may also fail, in any way
            run.leave_out("all cases", peer, peers.first_line(error))
    return found


def of_dtype(run, makers, dtype):
    """Returns those of the peers that have a dtype; leaves out the others."""
    found = {}
    for peer, make in makers.items():
        _, dtypes = formulas_peers.NEEDS.get(peer, (None, (dtype,)))
        if dtype in dtypes:
            found[peer] = make
        else:
            run.leave_out(f"all cases of {dtype}", peer, f"has no {dtype}")
    return found


def checked(run, makers, chain, shape, dtype, device, name):
    """Returns ({peer: Peer} of those whose results are right, the bytes that a call moves). Exits
    if Opdock's are wrong."""
    kind = getattr(torch, dtype)
    # Compiles each case separately, without reaching the recompile limit.
    torch._dynamo.reset()
    tensors = chains.tensors_of(chain, shape, kind, device)
    wanted, found, moved = chains.expected(chain, tensors), {}, 0
    for who, make in makers.items():
        try:
            peer = make(chain, tensors)
            results = peer.results(peer.call())
            wrong = chains.problem(results, wanted, kind, who == "opdock")
        except Exception as error:
            if who in ("opdock", "torch"):
                raise
            run.leave_out(name, who, peers.first_line(error))
            continue
        if who == "opdock":
            if wrong:
                sys.exit(f"formula {name}: {wrong}")
            moved = chain.moved(tensors, results)
        if wrong:
            run.leave_out(name, who, f"wrong results: {wrong}")
        else:
            found[who] = peer
    return found, moved


def text_of(shape):
    return "x".join(map(str, shape))


# ---- times


def gpu_us(found, moved):
    """Returns {peer: (µs of a call, how it was measured)}, and the same for "copy"."""
    taken, how = defaultdict(list), defaultdict(dict)
    copy = formulas_peers.Peer(copy_of(moved))
    for _ in range(ROUNDS):
        for who, peer in {"copy": copy, **found}.items():
            if peer.wall:
                taken[who].append(peer.wall(20) / 20 * 1e6)
                how[who] = {"wall": True}
                continue
            ms, is_ahead = timed_ms(peer.call, 24)
            taken[who].append(ms * 1e3)
            if not is_ahead:
                how[who] = {"host": True}
    return {who: (statistics.median(us), how[who]) for who, us in taken.items()}


def cpu_us(found, moved, clock):
    """Returns the same of calls in turns."""
    source = torch.zeros(moved // 2, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = formulas_peers.Peer(lambda: target.copy_(source))
    every, taken = {"copy": copy, **found}, defaultdict(list)
    for peer in every.values():
        for _ in range(3):
            peer.call()
    end = time.perf_counter() + SECONDS * len(every)
    while time.perf_counter() < end or len(taken["copy"]) < 5:
        for who, peer in every.items():
            start = clock()
            peer.call()
            taken[who].append(clock() - start)
    return {who: (1e6 * statistics.median(seconds), {}) for who, seconds in taken.items()}


def time_cases(run, arguments, measure, ending=""):
    """Times the chains in all shapes and dtypes. measure(peers, bytes) returns the times."""
    all_makers = formulas_peers.ON_GPU if arguments.device == "cuda" else formulas_peers.ON_CPU
    makers = usable(run, {who: m for who, m in all_makers.items() if who in arguments.peers})
    for dtype in arguments.dtypes:
        own = of_dtype(run, makers, dtype)
        for shape in arguments.shapes:
            for chain in arguments.chains:
                name = f"{chain.name} {text_of(shape)} {dtype}{ending}"
                found, moved = checked(run, own, chain, shape, dtype, arguments.device, name)
                times = measure(found, moved)
                copy, _ = times.pop("copy")
                for who, (us, how) in times.items():
                    run.add(name, who, "us", us, of_copy=round(copy / us, 3), **how)
                run.write()


def times(run, arguments):
    if arguments.device == "cuda":
        time_cases(run, arguments, gpu_us)
        return
    keep_freed_memory(of_any_size=True)  # 8192x1024 in float32 and malloc's header exceed 32 MiB
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    for threads in arguments.threads:
        torch.set_num_threads(threads)  # Opdock uses the same number
        ending = f", {threads} thread{'s' if threads > 1 else ''}"
        time_cases(run, arguments, lambda found, moved: cpu_us(found, moved, clock), ending)


# ---- first results


def child(peer, name, device, dtype, is_open):
    """Computes a chain's first result in this process, and prints the milliseconds."""
    import opdock

    chain = chains.BY_NAME[name]
    tensors = chains.tensors_of(chain, FIRST_SHAPE, getattr(torch, dtype), device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wanted = chains.expected(chain, tensors)  # creates the context, loads torch's own kernels
    opdock.plugins()
    if is_open:
        opdock.formula("x - 0.5")(tensors[-1])
    wait()
    start = time.perf_counter()
    made = (formulas_peers.ON_GPU | formulas_peers.ON_CPU)[peer](chain, tensors)
    value = made.call()
    wait()
    ms = (time.perf_counter() - start) * 1e3
    results = made.results(value)
    wrong = chains.problem(results, wanted, getattr(torch, dtype), peer == "opdock")
    if wrong:
        sys.exit(f"formula {name}: {wrong}")
    print(json.dumps(ms))


def child_ms(folder, arguments, peer, chain, *more):
    """Returns (the milliseconds of a process with the caches in a folder, None), or (None, why it
    failed)."""
    env = {**os.environ, "OPDOCK_CACHE_DIR": f"{folder}/opdock"}
    env |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch", "TRITON_CACHE_DIR": f"{folder}/triton"}
    # Python's own cache of bytecode would otherwise make every import a slow one.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(HERE), "--child", peer, "--chains", chain.name]
    command += ["--device", arguments.device, "--dtypes", arguments.dtypes[0], *more]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        return None, "".join(last) or f"status {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1]), None


def first_results(run, arguments, peer, chain, repeats):
    """Measures the first results of one chain and peer: of `repeats` folders of caches, each used
    by a process that finds it empty, and then by one that finds what the first has left."""
    found = defaultdict(list)
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="formulas-", dir=BUILD) as folder:
            (Path(folder) / "opdock").mkdir(mode=0o700)
            kinds = {bars.FIRST: (folder, [])}
            if peer == "opdock" and arguments.device == "cuda":
                (Path(folder) / "open" / "opdock").mkdir(mode=0o700, parents=True)
                kinds[bars.OPEN] = (f"{folder}/open", ["--open"])
            kinds[bars.WARM] = (folder, [])
            for kind, (caches, more) in kinds.items():
                if kind == bars.WARM and peer == "opdock":
                    time.sleep(
                        2.1
                    )  # files as young as that are read again: docs/reference/cache.md
                ms, why = child_ms(caches, arguments, peer, chain, *more)
                if why:
                    run.leave_out(f"{chain.name}, {kind}", peer, why)
                    return
                found[kind].append(ms)
    for kind, all_ms in found.items():
        run.add(f"{chain.name}, {kind}", peer, "ms", statistics.median(all_ms))


def first(run, arguments):
    wanted = {"opdock": arguments.processes, "torch.compile": 1}
    for chain in arguments.chains:
        for peer, repeats in wanted.items():
            if peer in arguments.peers:
                first_results(run, arguments, peer, chain, repeats)
        run.write()


# ---- the host's time


def host(run, arguments):
    """Measures calls that are enqueued; waits for the GPU are outside the time."""
    makers = {who: formulas_peers.ON_GPU[who] for who in ("opdock", "torch", "torch.compile")}
    makers = {who: make for who, make in makers.items() if who in arguments.peers}
    dtype = arguments.dtypes[0]
    for chain in arguments.chains:
        name = f"{chain.name}, {bars.HOST_TIME}"
        found, _ = checked(run, makers, chain, HOST_SHAPE, dtype, "cuda", name)
        calls = {who: peer.call for who, peer in found.items()}
        for who, us in timing.interleaved(torch, calls, arguments.repeats).items():
            run.add(name, who, "us", statistics.median(us))
        run.write()


# ---- arguments


def some_of(text, known, what, parser):
    """Returns the words of a comma-separated list, all of which must be known."""
    words = text.split(",") if text else list(known)
    if unknown := [word for word in words if word not in known]:
        parser.error(f"found {what} {', '.join(unknown)}, wanted some of {', '.join(known)}")
    return words


def shapes_of(text, device, parser):
    words = text.split(",") if text else SHAPES[device]
    try:
        shapes = [tuple(int(n) for n in word.split("x")) for word in words]
    except ValueError:
        shapes = []
    # Rotary has heads of 128 elements.
    if not shapes or any(len(s) != 2 or s[0] < 1 or s[1] < 1 or s[1] % 128 for s in shapes):
        parser.error(f"found --shapes {text}, wanted ROWSxCOLUMNS,… with multiples of 128 columns")
    return shapes


def parse(given=None):
    """Returns the arguments, with lists made of those that are comma-separated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="a GPU if there is one")
    parser.add_argument("--parts", metavar="PART,…", help="of times, first, host")
    parser.add_argument("--chains", metavar="CHAIN,…", help="of " + ", ".join(chains.BY_NAME))
    parser.add_argument("--shapes", metavar="SHAPE,…", help="as 8192x8192")
    parser.add_argument("--dtypes", metavar="DTYPE,…", help="of " + ", ".join(DTYPES))
    parser.add_argument("--peers", metavar="PEER,…", help='as "torch,torch.compile max"')
    parser.add_argument("--threads", metavar="N,…", help="on the CPU; by default all, and 1")
    parser.add_argument(
        "--processes", type=int, default=3, help="for each of Opdock's first results"
    )
    parser.add_argument("--repeats", type=int, default=40, help="of the host's time")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure the process's CPU time instead of the time that passes: for a machine that "
        "others use; of one thread, and not for records",
    )
    parser.add_argument("--child", metavar="PEER", help=argparse.SUPPRESS)
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    arguments.device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = arguments.device
    names = some_of(arguments.chains, chains.BY_NAME, "--chains", parser)
    arguments.chains = [chains.BY_NAME[name] for name in names]
    arguments.parts = some_of(arguments.parts, PARTS[device], "--parts", parser)
    arguments.dtypes = some_of(arguments.dtypes, DTYPES, "--dtypes", parser)
    arguments.shapes = shapes_of(arguments.shapes, device, parser)
    known = formulas_peers.ON_GPU if device == "cuda" else formulas_peers.ON_CPU
    arguments.peers = ["opdock", *some_of(arguments.peers, known, "--peers", parser)]
    cores = len(os.sched_getaffinity(0))
    given_threads = arguments.threads or ",".join(str(n) for n in sorted({1, cores}))
    arguments.threads = [int(n) for n in given_threads.split(",")]
    if arguments.cpu_time and (arguments.record or device != "cpu" or arguments.threads != [1]):
        parser.error("--cpu-time is for --device cpu --threads 1, without --record")
    return arguments


def main():
    arguments = parse()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    if arguments.child:
        (chain,) = arguments.chains
        child(arguments.child, chain.name, arguments.device, arguments.dtypes[0], arguments.open)
        return
    run = Run(arguments.record)
    for part, measure in {"times": times, "first": first, "host": host}.items():
        if part in arguments.parts:
            measure(run, arguments)
    if arguments.device == "cpu":
        run.leave_out("host time", "all", "on the CPU a call has no time of the host's alone")
    run.write()
    print("\n".join(bars.lines(run.rows, arguments.device)))


if __name__ == "__main__":
    main()
