# SPDX-License-Identifier: Apache-2.0
"""Fixtures and helpers for plugins' tests and benches: devices and dtypes to run on, references,
tolerances, gradients and timings.

This is a pytest plugin, which `opdock test PATH` loads. Elsewhere use `pytest -p opdock.testing`,
or import the fixtures into a conftest.py. Needs pytest and torch.

Tests hold CPU torch tensors and call ops through `on(device, op)`, which copies the arguments to
the device and the results back. It uses torch if torch has the device, and else, as on the software
GPU (docs/guide/testing-kernels.md), the driver library.
"""

import importlib.util
import os
import statistics
import time

import pytest

try:
    import torch
except ImportError:
    torch = None

from opdock._author import driver
from opdock._author.stored import with_each_choice

if torch is not None:
    from opdock._author.on_device import move, on, to_cpu, torch_has

__all__ = [
    "assert_close",
    "check_gradients",
    "cuda",
    "device",
    "dtype",
    "move",
    "on",
]
__all__ += ["reference", "to_cpu", "with_each_choice"]

#: pytest then leaves this module's lines out of tracebacks.
__tracebackhide__ = True

# Kinds of devices that failed with a sticky error -> the test in which that happened.
_lost = {}

# Half a unit in the last place: the error of rounding only the result.
HALF_ULP = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU that torch reaches")


def _is_lost(kind):
    """Returns whether the device has a sticky error, as after an access outside of its memory."""
    try:
        torch.cuda.synchronize() if torch_has(kind) else driver.gpu(kind).synchronize()
    except RuntimeError:
        return True
    return False


def pytest_exception_interact(node, call, report):
    """After a sticky error, marks the device as lost, so that its remaining tests are skipped."""
    arguments = getattr(node, "funcargs", {})
    kind = arguments.get("device") or arguments.get("cuda")
    is_new = isinstance(kind, str) and kind in driver.DEVICE_TYPES and kind not in _lost
    if is_new and _is_lost(kind):
        _lost[kind] = node.name


def _why_not(name):
    """Returns why nothing can be run on this device; None if it can be used."""
    if name in _lost:
        return f"not run: {name} was lost in {_lost[name]}"
    claimed = os.environ.get("OPDOCK_TEST_DEVICES")  # set by `opdock test`
    if claimed is not None and name not in claimed.split(","):
        return f"the plugin has no ops for {name}"
    if name == "cpu" or torch_has(name):
        return None
    found, problem = driver.count(name)
    return None if found else f"no {name} GPU ({problem})"


def devices():
    """Returns those of "cpu" and "cuda" that the plugin and this machine have; for benches."""
    return [n for n in ("cpu", "cuda") if _why_not(n) is None and (n == "cpu" or torch_has(n))]


def _kinds():
    if claimed := os.environ.get("OPDOCK_TEST_DEVICES"):
        return claimed.split(",")  # so that no test is skipped for another device
    return ["cpu", "cuda", "rocm"] if torch and torch.version.hip else ["cpu", "cuda"]


@pytest.fixture(params=_kinds())
def device(request):
    """Each device in turn ("cpu", "cuda", "rocm") that the plugin of `opdock test` has ops for.
    Without `opdock test`, "rocm" only with a ROCm torch. Skips the test if the device is missing
    here. Use it with on() and move(), which also work where torch does not know the device."""
    if reason := _why_not(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def cuda():
    """ "cuda", if torch can use it, else skips: for tests of torch's streams and graphs."""
    if reason := _why_not("cuda"):
        pytest.skip(reason)
    if not torch_has("cuda"):
        pytest.skip("no CUDA GPU that torch reaches")
    return "cuda"


@pytest.fixture(params=["float32", "float16", "bfloat16"])
def dtype(request):
    return getattr(torch, request.param)


@pytest.fixture
def reference(request):
    """The module reference.py in the test's folder."""
    path = request.path.parent / "reference.py"
    spec = importlib.util.spec_from_file_location(f"reference_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def assert_close():
    """The function check(found, oracle, computed, scale=None), which fails the test unless `found`,
    a floating tensor, agrees with `oracle`, the float64 result of the same shape. The allowed
    difference is the rounding of the result plus `computed`, an error relative to `scale` (default:
    abs(oracle))."""

    def check(found, oracle, computed, scale=None):
        name = str(found.dtype).removeprefix("torch.")
        scale = oracle.abs() if scale is None else scale
        smallest = {"float16": 2.0**-25, "bfloat16": 2.0**-134}.get(name, 2.0**-149)
        allowed = HALF_ULP[name] * 1.001 * oracle.abs() + computed * scale + smallest
        wrong = (found.double() - oracle).abs() > allowed
        wrong |= found.isnan() != oracle.isnan()
        count = int(wrong.sum())
        if count:
            at = tuple(int(i) for i in wrong.nonzero()[0])
            text = f"{count} of {wrong.numel()} elements differ; at {at} found {found[at].item()!r}"
            pytest.fail(f"{text}, wanted {oracle[at].item()!r}, allowed {allowed[at].item():.3g}")

    return check


def check_gradients(name, *args, **keywords):
    """Checks the gradients that an op declares in plugin.toml, on the CPU.

    name: the op, as for opdock.load(). The other arguments are those of one call, with NumPy arrays
    of float64 for all tensors that have a gradient. Keep these small: the op is called twice for
    each of their elements. The declared formulas are compared with central differences of a
    weighted sum of the op's floating results; the weights are random. An op with a parameter of
    type Generator draws the same numbers in each of these calls.

    Raises AssertionError for a wrong gradient, ValueError if these arguments check none.
    """
    import opdock
    from opdock._author.gradients import check

    plugin = name.rpartition("/")[0]
    check(opdock.load(name), lambda op: opdock.load(f"{plugin}/{op}".lstrip("/")), args, keywords)


def _cpu_us(function, seconds):
    """Returns the median microseconds of a call; each sample runs as many as fill a millisecond."""
    function()
    begin = time.perf_counter()
    function()
    calls = max(1, int(1e-3 / max(time.perf_counter() - begin, 1e-9)))
    samples = []
    end = time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        samples.append((time.perf_counter() - begin) / calls)
    return statistics.median(samples) * 1e6


def _cuda_us(function, repeats=50):
    """Returns the median microseconds of a call, by events around it, after five warm-up calls."""
    for _ in range(5):
        function()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for begin, end in events:
        begin.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events) * 1e3


def bench(label, device, functions, *, seconds=0.2):
    """Times `functions` ({name: callable without arguments}) one after the other; prints one line.

    Returns {name: median time of one call in microseconds}. On CUDA that is the device time on the
    current stream; elsewhere it is wall-clock time, sampled for `seconds`.
    """
    on_cuda = str(device).startswith("cuda")
    times = {n: _cuda_us(f) if on_cuda else _cpu_us(f, seconds) for n, f in functions.items()}
    print(f"{label:32} {device:5}", *(f"{n} {us:9.2f} us" for n, us in times.items()), sep="  ")
    return times
