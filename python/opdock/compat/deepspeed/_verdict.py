# SPDX-License-Identifier: Apache-2.0
"""Decides, from Opdock's verdicts, whether Opdock's plugins serve one of DeepSpeed's ops.

Loads, builds and starts nothing: only opdock.explain() is asked.
"""

import importlib
import importlib.util
import os

from opdock import _fallback, _reports
from opdock._errors import FallbackWarning, IncompatibleError, NotFoundError
from opdock.compat.deepspeed._plugin_ops import LEFT, SERVED, WITHOUT_PLUGIN

_TORCH = "PyTorch's own functions"
_CPU_ONLY = {"async_io", "cpu_adagrad", "cpu_adam", "cpu_lion", "utils"}
_CPU_OPS = {"ragged/build_atoms"}  # of Opdock's, on whatever device the others run


class Verdict:
    """The result for an op: whether a plugin serves it (`serves`), by what or why not (`text`), and
    the `reasons` against it.

    reference: of an op that is not served, what becomes of its references in PyTorch: "warn" or
    "silent" (they stand in, with a warning or without), "error" (they are switched off), or None
    (there are none).
    """

    def __init__(self, serves, text, reasons=(), reference=None):
        self.serves, self.text, self.reasons = serves, text, list(reasons)
        self.reference = reference

    @property
    def stands_in(self):
        """Whether load() gives the module over the references."""
        return self.reference in ("warn", "silent")


def _story(reason):
    """Returns one of explain()'s reasons as one line."""
    parts = [f"{reason['code']}: found {reason['found']}"]
    if reason["wanted"]:
        parts.append(f"wanted {reason['wanted']}")
    return ", ".join(parts) + (f"; {reason['advice']}" if reason["advice"] else "")


def _way(device):
    """Returns the text of the chain's step that serves this device; None if no plugin does."""
    for step in device["steps"]:
        if step["outcome"] == "used":
            return None if step["step"] == "reference" else step["text"]
    return None


def _reference(op, policy, devices):
    """Returns Verdict.reference of one of Opdock's ops. policy: the value of OPDOCK_FALLBACK."""
    steps = [step for device in devices for step in device["steps"] if step["step"] == "reference"]
    if any(step["outcome"] == "used" for step in steps):
        return policy
    # A step that is switched off has looked for no file.
    is_off = policy == "error" and bool(steps)
    return policy if is_off and _fallback.has(op.rpartition("/")[2], None) else None


def _judge(op, for_gpu):
    """Returns the Verdict on one of Opdock's ops. for_gpu: judge the GPUs here, if there are
    any."""
    try:
        report = _reports.explain(op)
    except NotFoundError as error:
        return Verdict(False, str(error))
    devices = report["chain"]
    gpus = [device for device in devices if device["device"] != "cpu"]
    if for_gpu and gpus and not os.environ.get("DS_IGNORE_CUDA_DETECTION"):
        devices = gpus
    for device in devices:
        way = _way(device)
        if way is not None:
            return Verdict(True, f"{device['device']}: {way}")
    reasons = [r for device in devices for step in device["steps"] for r in step["reasons"]]
    reasons = [r for r in reasons if r["severity"] == "reject"] or reasons
    text = _story(reasons[0]) if reasons else f"nothing serves {op} here"
    policy = report.get("policy", {}).get("fallback", {}).get("value")
    return Verdict(False, text, reasons, _reference(op, policy, devices))


def verdict(name):
    """Returns the Verdict on DeepSpeed's op `name`. A reference in PyTorch does not count as
    serving it."""
    if name in LEFT:
        return Verdict(False, f"no plugin of Opdock's has {name}: {LEFT[name]}")
    if name not in SERVED:
        return Verdict(False, f"no plugin of Opdock's has {name} yet")
    module, ops = SERVED[name]
    if importlib.util.find_spec("torch") is None:
        return Verdict(False, f"found no torch, wanted it for the tensors of {name}; install it")
    judged = [_judge(op, name not in _CPU_ONLY and op not in _CPU_OPS) for op in ops]
    refused = [one for one in judged if not one.serves]
    if refused:
        policies = {one.reference for one in refused}
        # A module is replaced as a whole or not at all.
        reference = None if None in policies else refused[0].reference
        return Verdict(False, refused[0].text, refused[0].reasons, reference)
    return (
        judged[0]
        if judged
        else Verdict(True, f"cpu: {WITHOUT_PLUGIN.get(name, _TORCH)} ({module})")
    )


def module_of(name):
    """Imports and returns the module with the functions of a served op."""
    return importlib.import_module(f"opdock.compat.deepspeed.{SERVED[name][0]}")


_warned = set()  # ops of DeepSpeed's


def stand_in(name, found):
    """Returns the module of an op that no plugin serves, over its references, and warns once.

    found: the Verdict, whose reference is not None. Raises IncompatibleError, with its reasons, if
    the references are switched off.
    """
    if not found.stands_in:
        error = IncompatibleError(
            f"{name}: {found.text}. Its references in PyTorch could stand in, and are switched "
            "off: found OPDOCK_FALLBACK=error, or the same in a program or a configuration file, "
            f"wanted warn or silent; OPDOCK_DEEPSPEED_EXCLUDE={name} leaves the op to DeepSpeed's "
            "own builder"
        )
        error.reasons = found.reasons
        raise error
    _fallback.announce(op.rpartition("/")[2] for op in SERVED[name][1])
    if found.reference == "warn" and name not in _warned:
        _warned.add(name)
        warning = FallbackWarning(
            f"{name}: no plugin serves it here, so its references in PyTorch stand in: correct, "
            f"and slower. The reason: {found.text}. OPDOCK_DEEPSPEED_EXCLUDE={name} leaves the op "
            "to DeepSpeed's own builder; OPDOCK_FALLBACK=silent says nothing of it, "
            "OPDOCK_FALLBACK=error refuses"
        )
        warning.reasons = found.reasons
        _fallback.warn_caller(warning)
    return module_of(name)
