# SPDX-License-Identifier: Apache-2.0
"""Times reading and writing a file: opdock's async_io next to DeepSpeed's aio.

Both run in one process on the same array and file. The figure is GB/s (10^9 bytes) from the
submission to the end of the wait, as the median of interleaved rounds; writes overwrite. The memory
is DeepSpeed's own locked buffer where there is one, otherwise whole pages. DeepSpeed is measured
where --deepspeed (or OPDOCK_BENCH_DEEPSPEED) names its version and a folder with its extension
modules async_io*.so and pin_memory*.so, which its sources build; otherwise it is skipped with that
reason."""

import argparse
import ctypes
import importlib.util
import mmap
import os
import statistics
import tempfile
import time
from pathlib import Path

import record
import torch

import opdock

BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))
BLOCK, DEPTH = 1 << 20, 32
BACKENDS = ["io_uring", "aio", "threads"]


def load_module(folder, name):
    """Returns the extension module `name` of a file below `folder`."""
    path = next(Path(folder).rglob(f"{name}*.so"))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_deepspeed(folder):
    """Returns DeepSpeed's module async_io, or None with the reason printed."""
    if not folder:
        print("  skipped: DeepSpeed (no --deepspeed=VERSION:FOLDER says where its modules are)")
        return None
    try:
        # async_io uses functions of pin_memory without declaring the library as needed.
        ctypes.CDLL(load_module(folder, "pin_memory").__file__, mode=ctypes.RTLD_GLOBAL)
        return load_module(folder, "async_io")
    except (ImportError, OSError, StopIteration) as error:
        print(f"  skipped: DeepSpeed ({type(error).__name__}: {error})")
        return None


def opdock_round(handle, write):
    submit = opdock.ops.aio_submit_write if write else opdock.ops.aio_submit_read

    def once(x, path):
        opdock.ops.aio_wait(handle, submit(handle, x, path))

    return once


def deepspeed_round(handle, write):
    submit = handle.async_pwrite if write else handle.async_pread

    def once(x, path):
        submit(x, path, 0)
        handle.wait()

    return once


def rows(peer, version, threads, write):
    """Returns {row: function of the array and the path}."""
    table = {}
    for backend in BACKENDS:
        try:
            handle = opdock.ops.aio_open(BLOCK, DEPTH, threads=threads, backend=backend)
        except opdock.IoError as error:
            print(f"  skipped: {backend} ({error})")
            continue
        table[f"opdock {backend}"] = opdock_round(handle, write)
    for overlap in (False, True) if peer else ():
        handle = peer.aio_handle(BLOCK, DEPTH, False, overlap, threads)
        name = f"DeepSpeed {version}" + (", overlap" if overlap else "")
        table[name] = deepspeed_round(handle, write)
    return table


def make_array(peer, size):
    """Returns an array that both may read and write with direct I/O, and the object that owns
    it."""
    if peer is None:
        return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8), None
    handle = peer.aio_handle(BLOCK, DEPTH, False, False, 1)
    return handle.new_cpu_locked_tensor(size, torch.empty(0, dtype=torch.uint8)), handle


def check(x, path, function, write):
    """Checks once, before anything is timed, that the bytes arrive."""
    pattern = torch.arange(x.numel(), dtype=torch.int32).to(torch.uint8)
    if write:
        x.copy_(pattern)
        function(x, path)
        assert Path(path).read_bytes() == pattern.numpy().tobytes()
    else:
        x.zero_()
        function(x, path)
        assert torch.equal(x, pattern)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument(
        "--deepspeed", metavar="VERSION:FOLDER", default=os.environ.get("OPDOCK_BENCH_DEEPSPEED")
    )
    parser.add_argument(
        "--folder", default=str(BUILD), help="where the file is made, on which disk"
    )
    parser.add_argument("--mib", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    version, _, modules = (arguments.deepspeed or "").partition(":")
    peer = load_deepspeed(modules)
    size = arguments.mib << 20
    x, kept = make_array(peer, size)
    results = []
    with tempfile.NamedTemporaryFile(dir=arguments.folder, prefix="async-io-") as file:
        for threads in (1, 2):
            for write in (True, False):
                table = rows(peer, version, threads, write)
                for function in table.values():
                    check(x, file.name, function, write)
                times = {row: [] for row in table}
                for _ in range(arguments.repeats):
                    for row, function in table.items():
                        start = time.perf_counter()
                        function(x, file.name)
                        times[row].append(time.perf_counter() - start)
                for row, seconds in times.items():
                    rate = size / statistics.median(seconds) / 1e9
                    name = f"{'write' if write else 'read'}, threads {threads}, {row}"
                    print(f"  {name:<44} {rate:>8.2f} GB/s")
                    results.append({"name": name, "gb_s": round(rate, 2), "mib": arguments.mib})
    if kept is not None:
        kept.free_cpu_locked_tensor(x)
    if arguments.record:
        record.append(arguments.record, "async_io", results)


if __name__ == "__main__":
    main()
