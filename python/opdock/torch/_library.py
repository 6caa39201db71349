# SPDX-License-Identifier: Apache-2.0
"""Has libopdock_torch implement the operators, so that their calls do not enter Python.

An operator has the library's kernels on the CPU and on GPUs. For autograd it has the library's
guard: a call with plain tensors, from none of which a gradient is recorded, in a thread without any
mode or transform of torch, goes to the op at once; each other call goes to the operator of the same
name in the namespace opdock_python, whose only kernel is the one in Python (_autograd.py). Calls
that need no more than a record for backward() are recorded in C++ instead, where a library for
exactly this build of torch is there (_recorder.py). Where it is, the kernels are its own, which
torch's dispatcher calls without the stable interface: they take less time, leave only symbolic
sizes to Python, and draw random numbers. What tells plain tensors is read from torch's
memory, so the guard is used only if it finds there what torch itself reports; without it the kernel
in Python sees each call.
"""

import functools
from typing import NamedTuple

import torch

from opdock import _opdock
from opdock.torch import _autograd, _recorder

# Never destroyed: torch crashes in a call of an operator whose library is gone.
_namespace = torch.library.Library("opdock_python", "FRAGMENT")


def _raise_left(x):
    raise _opdock.torch_take_error()


_namespace.define("raise_left(Tensor x) -> ()")
_namespace.impl("raise_left", _raise_left, "CompositeImplicitAutograd")


class Done(NamedTuple):
    """Of which dispatch keys the library has implemented the kernels."""

    device: bool
    autograd: bool


@functools.cache
def problem():
    """Returns why libopdock_torch cannot be used, or None."""
    return _opdock.torch_open_library()


def _allowed_keys():
    """Returns the dispatch keys that plain tensors on the CPU and on GPUs have."""
    keys = torch._C._dispatch_keys(torch.empty(1, device="cpu")).raw_repr()
    for name in ("CUDA", "AutogradCUDA", "AutocastCUDA"):
        keys |= torch._C.DispatchKeySet(torch._C._dispatch_key_parse(name)).raw_repr()
    return keys


def _thread_is_shown():
    """Returns whether the thread's keys, as the library reads them, follow what torch is told."""
    keys = _opdock.torch_thread_keys
    if keys() is None or keys()[0] != 0:
        return False
    for name in ("Python", "Functionalize", "FuncTorchBatched", "Tracer"):
        key = torch._C._dispatch_key_parse(name)
        bit = torch._C.DispatchKeySet(key).raw_repr()
        with torch._C._IncludeDispatchKeyGuard(key):
            if keys()[0] & bit != bit:
                return False
    return keys()[0] == 0


@functools.cache
def has_guard():
    """Returns whether the library can tell the calls that only the op has to see."""
    if problem() is not None:
        return False
    from torch.utils._python_dispatch import _disable_current_modes

    try:
        _opdock.torch_calibrate()
        with _disable_current_modes(), torch.inference_mode(False):
            return _thread_is_shown() and _opdock.torch_set_allowed_keys(_allowed_keys())
    except (AttributeError, RuntimeError, TypeError):
        return False


def implement(op, schema, kernel):
    """Implements the operator of `op`, which is defined, as far as that can be done without Python.

    schema: the operator's, as it was defined. kernel: its kernel for autograd in Python.
    """
    if problem() is not None:
        return Done(False, False)
    # torch's stable interface turns symbolic sizes into numbers, so they must not pass the guard of
    # the kernels on that. A flat list tells the lengths of the results only if it has one result's
    # tensors.
    is_flat = len(op.fresh) == 1 or not op.has_list_results
    sees_symbols = _recorder.problem() is None
    guarded = has_guard() and is_flat and (sees_symbols or not op.has_sizes)
    if _opdock.torch_implement(op.function, op.name, guarded, op.formula is not None) is not None:
        return Done(False, False)
    if guarded:
        parameters = schema[: schema.rindex(" -> ")]
        _namespace.define(f"{parameters} -> Tensor?[]")
        _namespace.impl(op.name, _leaving(kernel), "Autograd", with_keyset=True)
    return Done(True, guarded)


def _leaving(kernel):
    """Returns a kernel that returns a list of all results, and leaves its exceptions to C++: torch
    would print and drop those that pass through its stable interface."""

    def leave(keyset, *args, **keywords):
        try:
            return _autograd.flatten(kernel(keyset, *args, **keywords))
        except BaseException as error:
            _opdock.torch_leave_error(error)
            return []

    return leave
