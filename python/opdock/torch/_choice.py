# SPDX-License-Identifier: Apache-2.0
"""Knows whether Opdock's op or torch's function is faster for a call: measured once for each class
of shapes, and kept in the cache in which `opdock bench --tune` keeps its results.

A class has one op, dtype, kind of device and length of the last dimension, numbers of rows between
two powers of two, and either with or without a backward pass. `opdock bench --forget PLUGIN`
forgets its choices too. A choice holds for one build of the plugin and one version of torch.
"""

import contextlib
import hashlib
import os
import statistics
import threading
import time
from pathlib import Path

import torch
from torch.autograd import forward_ad

from opdock import _reports
from opdock._author.choose import OWN, choose
from opdock._author.stored import tuning
from opdock._errors import OpdockError

ROUNDS = 7
SECONDS = 1e-3  # of calls, in each round
TORCH, OPDOCK = 0, 1  # choices as they are stored

_lock = threading.RLock()
_known = {}  # key of a call -> Choice
_latest = {}  # the part of a key that a graph knows -> Choice
_stored = None  # {(plugin, version, build, device, question): result}, as read from the cache
_scopes = {}  # (op, device) -> scope


class Choice:
    """What was measured for one class of shapes. times: {"eager" or "graph": (torch's µs,
    Opdock's µs)}; why: the error of an op that cannot be called."""

    def __init__(self, situation, eager, graph, times, why=""):
        self.situation, self.eager, self.graph = situation, eager, graph
        self.times, self.why = times, why

    def __str__(self):
        if self.why:
            return f"{self.situation}: torch's ({self.why})"
        who = "Opdock's" if self.eager else "torch's"
        theirs, ours = self.times["eager"]
        text = f"{self.situation}: {who} (torch {theirs:.1f} µs, Opdock {ours:.1f})"
        if self.graph != self.eager:
            text += f"; in graphs {'Opdock' if self.graph else 'torch'}'s"
        return text


def choices():
    """Returns the choices of this process in the order in which they were first needed."""
    with _lock:
        return list(_known.values())


def forget():
    """Forgets what this process knows, not what is stored."""
    global _stored
    with _lock:
        _known.clear()
        _latest.clear()
        _scopes.clear()
        _stored = None


def is_slower(swap):
    """Returns whether the op of `swap` was needed and found slower at all that it was called with
    last."""
    with _lock:
        found = [choice for key, choice in _latest.items() if key[0] == swap.number]
    return bool(found) and not any(choice.eager or choice.graph for choice in found)


def is_faster(swap, x, args, keywords):
    """Returns whether Opdock's function of `swap` is the faster one for this call, whose first
    argument is x, and measures both if it is not known. While torch.compile makes a graph, a GPU's
    stream is captured or a dispatch mode sees the calls nothing is measured: of a class that is
    unknown then, torch's function counts as the faster one. So it does in torch.func's transforms
    and in forward mode, which the ops know only in part."""
    length = x.shape[-1]
    is_training = torch.is_grad_enabled() and _has_gradient(args, keywords)
    if torch.compiler.is_compiling():
        return _in_graphs(swap.number, x.dtype, x.device.type, int(length), is_training)
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return False
    device = x.device
    is_cast = torch.is_autocast_enabled(device.type)
    rows = (x.numel() // max(length, 1)).bit_length()
    key = swap.kind, x.dtype, device, length, rows, swap.more(args, keywords), is_training, is_cast
    choice = _known.get(key)
    is_capturing = x.is_cuda and torch.cuda.is_current_stream_capturing()
    if choice is None:
        if is_capturing or torch._C._len_torch_dispatch_stack():
            return False
        with _lock:
            choice = _find(swap, key, args, keywords)
    if swap.last is not choice:
        swap.last = _latest[swap.number, x.dtype, device.type, length, is_training] = choice
    return choice.graph if is_capturing else choice.eager


def _has_gradient(args, keywords):
    for x in (*args, *keywords.values()):
        if isinstance(x, torch.nn.Module):
            x = getattr(x, "weight", None)
        if isinstance(x, torch.Tensor) and x.requires_grad:
            return True
    return False


def _in_graphs(number, dtype, device, length, is_training):
    """Returns the choice for rows of this length, of the number of rows for which it was needed
    last: a graph serves several numbers."""
    choice = _latest.get((number, dtype, device, length, is_training))
    return choice is not None and choice.graph


# The decorator torch.compiler.assume_constant_result() sets this too, but it imports Dynamo, which
# takes more than a second of every process that imports opdock.torch.
_in_graphs._dynamo_marked_constant = True


def _find(swap, key, args, keywords):
    if key in _known:  # another thread was faster
        return _known[key]
    kind, dtype, device, length, rows, more, is_training, is_cast = key
    parts = [kind, f"{1 << rows >> 1}x{length}", str(dtype).removeprefix("torch."), device.type]
    parts += [str(more)] * (more is not None) + ["training"] * is_training + ["autocast"] * is_cast
    situation = " ".join(parts)
    choice = _from_cache(swap, situation, device)
    if choice is None:
        choice = _measured(swap, situation, device, args, keywords)
        if not choice.why:
            _store(swap, device, choice)
    _known[key] = choice
    return choice


# Measuring


def _measured(swap, situation, device, args, keywords):
    found, times = {}, {}
    with contextlib.ExitStack() as stack:
        # Hooks of the caller, such as a checkpoint's, must not see what the measured calls save.
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is))
        # A measured call may draw random numbers; the caller's must stay the same.
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        try:
            calls = {who: _call(f, args, keywords) for who, f in swap.both()}
            for mode in ("eager", "graph") if device.type == "cuda" else ("eager",):
                measured = _times(calls, device, mode)
                found[mode] = choose([measured]) == OPDOCK
                times[mode] = tuple(statistics.median(measured[who]) for who in (OWN, OPDOCK))
        except OpdockError as error:  # no kernel for this GPU, for instance
            return Choice(situation, False, False, {}, str(error))
    return Choice(situation, found["eager"], found.get("graph", found["eager"]), times)


def _as_it_is(x):
    return x


def _call(function, args, keywords):
    """Returns a function without arguments that makes the call on copies, with its backward pass
    if the original would be recorded."""
    copies = []

    def copy(x):
        if not isinstance(x, torch.Tensor):
            return x
        one = x.detach().clone(memory_format=torch.preserve_format)
        one.requires_grad_(x.requires_grad and torch.is_grad_enabled())
        copies.append(one)
        return one

    args = [copy(x) for x in args]
    keywords = {name: copy(x) for name, x in keywords.items()}
    layers = [x for x in args if isinstance(x, torch.nn.Module)]
    with_grad = [x for x in copies if x.requires_grad]
    if torch.is_grad_enabled():
        with_grad += [p for layer in layers for p in layer.parameters() if p.requires_grad]
    if not with_grad:
        return lambda: function(*args, **keywords)

    def train():
        found = function(*args, **keywords)
        found = found if isinstance(found, tuple) else (found,)
        torch.autograd.grad(found, with_grad, [*map(torch.ones_like, found)], allow_unused=True)

    return train


def _times(calls, device, mode):
    """Returns {who: [µs of a call in each round]}; both are measured in each round, in turns."""
    clock = _clock_of_device if mode == "graph" else _clock
    counts = {}
    for who, call in calls.items():
        for _ in range(2):
            call()
        counts[who] = max(1, min(200, int(SECONDS / max(_clock(call, 2, device), 1e-7))))
    times = {who: [] for who in calls}
    for turn in range(ROUNDS):
        for who in sorted(calls, reverse=turn % 2 == 1):
            times[who].append(clock(calls[who], counts[who], device) * 1e6)
    return times


def _clock(call, count, device):
    """Returns the seconds of a call among others, by the host's clock: what takes longer of the
    host's time and the device's."""
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    if is_gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def _clock_of_device(call, count, device):
    """Returns the seconds of a call on the GPU alone: calls wait there until all are enqueued."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)  # about 10 ms
    begin.record()
    for _ in range(min(count, 50)):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3 / min(count, 50)


# The cache


def _scope(op, device):
    """Returns the plugin that serves an op here, and the device, as results are kept for them."""
    key = op, device
    if key not in _scopes:
        report = _reports.explain(op)
        kind = "rocm" if device.type == "cuda" and torch.version.hip else device.type
        chosen = report.get("chosen", {})  # by "cpu", and by "cuda:0" or only "cuda"
        path = chosen.get(kind) or chosen.get(f"{kind}:{device.index or 0}")
        used = next((one for one in report["candidates"] if one.get("path") == path), {})
        is_file = path is not None and os.path.isfile(path)
        _scopes[key] = {
            "plugin": used.get("name") or op,
            "version": used.get("version") or "",
            "build": _digest(path) if is_file else "",
            "device": _text_of(device),
        }
    return _scopes[key]


def _digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _text_of(device):
    """Returns the kind of device: all of one kind share their choices."""
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        arch = getattr(facts, "gcnArchName", None) if torch.version.hip else None
        arch = arch or f"sm_{facts.major}{facts.minor}"
        return f"{facts.name}, {arch}, {facts.multi_processor_count} multiprocessors"
    checks = {one["name"]: one["found"] for one in _reports.doctor()["checks"]}
    return f"CPU {checks.get('CPU', '')}, {torch.get_num_threads()} threads"


def _question(situation, mode):
    text = f"opdock.torch.patch {torch.__version__} {situation} {mode}"
    return "0x" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _read():
    global _stored
    if _stored is None:
        _stored = {}
        with contextlib.suppress(OpdockError):  # without a cache each process measures
            for one in tuning("list")["stored"]:
                scope = tuple(one[k] for k in ("plugin", "version", "build", "device"))
                for result in one["results"]:
                    _stored[(*scope, int(result["question"], 16))] = result
    return _stored


def _from_cache(swap, situation, device):
    scope = tuple(_scope(swap.op, device).values())
    modes = ("eager", "graph") if device.type == "cuda" else ("eager",)
    found = [_read().get((*scope, int(_question(situation, mode), 16))) for mode in modes]
    if not all(found):
        return None
    times = {
        mode: (one["default_us"], one["best_us"]) for mode, one in zip(modes, found, strict=True)
    }
    chosen = [one["choice"] == OPDOCK for one in found]
    return Choice(situation, chosen[0], chosen[-1], times)


def _store(swap, device, choice):
    results = [
        {
            "question": _question(choice.situation, mode),
            "choice": OPDOCK if getattr(choice, mode) else TORCH,
            "count": 2,
            "situation": f"{choice.situation}, {mode}, torch {torch.__version__}",
            "default_us": theirs,
            "best_us": ours,
        }
        for mode, (theirs, ours) in choice.times.items()
    ]
    with contextlib.suppress(OpdockError):
        tuning("store", **_scope(swap.op, device), results=results)
