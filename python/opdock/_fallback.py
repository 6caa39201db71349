# SPDX-License-Identifier: Apache-2.0
"""Runs an op's PyTorch reference when no plugin fits: the last step of the fallback chain.

libopdock calls this through the extension module (python/src/hooks.cc). Arrays arrive as DLPack
capsules of the caller's memory, which are valid only during the call.
"""

import contextlib
import functools
import importlib.util
import json
import os
import re
import sys
import warnings
from pathlib import Path

from opdock import _opdock
from opdock._errors import FallbackWarning, UnsupportedError
from opdock._names import DTYPES

_CPU, _ROCM = 1, 10
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def packaged():
    """Returns {path: reason} for the reference files of the package, or of the build tree that it
    is in. reason: why the file must not be run (other users could have written it), or None."""
    here = Path(__file__).resolve().parent
    folders = [here / "references"]
    if (here.parents[1] / "core" / "cli" / "opdock").is_file():
        folders.append(here.parents[1] / "share" / "opdock" / "plugins-src")
    paths = [path for folder in folders for path in sorted(folder.glob("*/reference.py"))]
    return {path: _why_untrusted(path) for path in paths}


def _why_untrusted(path):
    report = json.loads(_opdock.trust_json("check", str(path)))
    return None if report["trusted"] else report["reasons"][0]["text"]


def _defines(path, op):
    """Returns whether the file's text defines a function `op`; runs none of its code."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return re.search(rf"(?m)^def {re.escape(op)}\(", text) is not None


def _find(op, file):
    own = [path for path, why in packaged().items() if why is None]
    files = own if file is None else [file]
    return next((path for path in files if _defines(path, op)), None)


def has(op, file):
    """Returns whether `file`, or for None one of Opdock's own files, has a reference of `op`."""
    return _find(op, file) is not None


# path -> (the file's identity, the names it defines, why it has none, the missing module)
_executed = {}


def _is_importable_now(module):
    """Returns whether a module that a reference could not import can be imported now."""
    try:
        return module is not None and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _execute(path):
    """Returns (the names that the file defines, why it has none).

    The file is run once, whether or not that succeeds, and again when it changes or when the module
    that it could not import appears. Leaves no __pycache__ in the plugin's folder.
    """
    status = os.stat(path)
    identity = (status.st_ino, status.st_size, status.st_mtime_ns)
    known, space, why, lacked = _executed.get(str(path), (None, None, None, None))
    if known == identity and not _is_importable_now(lacked):
        return space, why
    space = {"__name__": "opdock._references." + Path(path).parent.name, "__file__": str(path)}
    why = lacked = None
    try:
        exec(compile(Path(path).read_bytes(), str(path), "exec"), space)
    except Exception as error:
        # Keep only the text: the exception would keep this call's frames and their arrays alive.
        space, why = None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if isinstance(error, (MemoryError, OSError)):
            return None, why  # the cause may be temporary, so do not remember it
        lacked = error.name if isinstance(error, ModuleNotFoundError) else None
    _executed[str(path)] = identity, space, why, lacked
    return space, why


_announced = set()  # names of ops whose fallback the program has been warned of by other words


def announce(names):
    """Notes that the user was warned of these ops' fallback, by one warning for several ops."""
    _announced.update(names)


def warn_caller(warning):
    """Issues the warning at the line of the program that called into the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


def _warn(report):
    warning = FallbackWarning(
        f"{report['op']}: no plugin serves {report['device']}, so its reference implementation "
        f"stands in: correct, and slower. What was tried:\n{report['story']}\n"
        "OPDOCK_FALLBACK=silent says nothing of it, OPDOCK_FALLBACK=error refuses"
    )
    for step in report["steps"]:
        for reason in step["reasons"]:
            warning.reasons.append({"step": step["step"], **reason})
    warn_caller(warning)


class _Reference:
    def __init__(self, call, params, returned):
        self.call, self.params, self.returned = call, params, returned


def open_reference(description, device, file, record):
    """Returns a _Reference that is ready to run, and warns the user about the fallback.

    Raises if the reference cannot be run here. Returns a text with the reason instead if executing
    its file failed.

    description: (parameters as (name, keyword only, is the generator), results as parameter index
    or -1). record: the JSON of opdock_references.open.
    """
    report = json.loads(record)
    op = report["op"]
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"the reference of {op} needs PyTorch, which cannot be imported: {error}"
        ) from error
    kind = report["device"].partition(":")[0]
    if kind != "cpu":
        reaches = torch.cuda.is_available() and (kind == "rocm") == (torch.version.hip is not None)
        if not reaches:
            raise RuntimeError(
                f"the PyTorch here, {torch.__version__}, does not reach {report['device']}. "
                f"Install one that does for the reference of {op}, or use the CPU"
            )
    path = _find(op, file)
    if path is None:
        raise LookupError(f"{file} has no function {op}, which its reference must have")
    space, why = _execute(path)
    if why is not None:
        return why
    if op not in space:
        raise LookupError(f"{path} has no function {op} once it was run")
    if report["warn"] and op not in _announced:
        _warn(report)
    params, returned = description
    return _Reference(space[op], params, returned)


def _to_torch(value):
    import torch

    if isinstance(value, list):
        return [_to_torch(item) for item in value]
    if type(value).__name__ == "PyCapsule":
        return torch.from_dlpack(value)
    if not isinstance(value, tuple):
        return value
    kind, *numbers = value
    if kind == "dtype":
        for name, known in DTYPES.items():
            if known == tuple(numbers) and hasattr(torch, name):
                return getattr(torch, name)
    elif kind == "device":
        number, index = numbers
        return torch.device("cpu") if number == _CPU else torch.device("cuda", index)
    raise UnsupportedError(f"found a {kind} {tuple(numbers)}, wanted one that torch has")


def _torch_generator(seed, offset):
    """Returns a torch generator for a range of the call's random numbers.

    It draws other numbers than the plugins' generator does, and distinct ranges get distinct seeds.
    """
    import torch

    golden = 0x9E3779B97F4A7C15  # odd: distinct offsets give distinct seeds
    return torch.Generator().manual_seed((seed + offset * golden) % 2**64)


def _on_stream(device, stream):
    """Returns a context in which torch uses the call's stream (torch calls ROCm devices "cuda"
    too)."""
    import torch

    kind, index = device
    if kind == _CPU:
        return contextlib.nullcontext()
    if stream == 0:
        return torch.cuda.stream(torch.cuda.default_stream(index))
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=index))


def _storages(values):
    """Yields the address of the storage of each tensor in `values`, also in lists."""
    for value in values:
        if isinstance(value, list):
            yield from _storages(value)
        elif hasattr(value, "untyped_storage"):
            yield value.untyped_storage().data_ptr()


def _clone_if_alias(result, arguments):
    """Returns a reference's result, or a copy of it if it is a view of an argument: an output may
    be an argument, and writing it would change results that are still to be read."""
    if isinstance(result, list):
        return [_clone_if_alias(one, arguments) for one in result]
    return result if arguments.isdisjoint(_storages([result])) else result.clone()


def _write(number, result, capsule):
    """Copies a tensor that a reference returned into the call's output `capsule`."""
    import torch

    target = torch.from_dlpack(capsule)
    if result.shape != target.shape or result.dtype != target.dtype:
        raise RuntimeError(
            f"result {number} of the reference: found {tuple(result.shape)} of {result.dtype}, "
            f"wanted {tuple(target.shape)} of {target.dtype}, as the op's shape rule says; report "
            "it to the plugin's author"
        )
    target.copy_(result)


def run(reference, values, outputs, device, stream, random):
    """Runs the reference on the call's arrays and writes its results into the outputs.

    outputs: for each result a DLPack capsule, a list of them, or None. random: the (seed, first
    position) of the random numbers that the call reserved, or None. Returns a list with one element
    for each result: its value if it is a number or a bool, else None.
    """
    import torch

    numbers = []
    with torch.no_grad(), _on_stream(device, stream):
        positional, named = [], {}
        for (name, keyword_only, is_generator), value in zip(reference.params, values, strict=True):
            value = _torch_generator(*random) if is_generator else _to_torch(value)
            if keyword_only:
                named[name] = value
            else:
                positional.append(value)
        found = reference.call(*positional, **named)
        if len(reference.returned) == 1:
            found = (found,)
        arguments = set(_storages([*positional, *named.values()]))
        found = [
            _clone_if_alias(result, arguments) if index < 0 else result
            for result, index in zip(found or (), reference.returned, strict=True)
        ]
        results = zip(found, reference.returned, outputs, strict=True)
        for number, (result, index, output) in enumerate(results):
            is_number = isinstance(result, (bool, int, float))
            numbers.append(result if is_number else None)
            if index >= 0 or is_number or (output is None and result is None):
                continue
            pairs = [(result, output)]
            if isinstance(output, list):
                pairs = list(zip(result, output, strict=True))
            for one, capsule in pairs:
                _write(number, one, capsule)
    return numbers
