# SPDX-License-Identifier: Apache-2.0
"""Decides, from Opdock's verdicts, whether Opdock's plugins serve one of DeepSpeed's ops.

Loads, builds and starts nothing: only opdock.explain() is asked.
"""

import importlib
import importlib.util
import os

from opdock import _reports
from opdock._errors import NotFoundError
from opdock.compat.deepspeed._plugin_ops import SERVED

_CPU_ONLY = {"async_io", "cpu_adagrad", "cpu_adam", "cpu_lion", "utils"}


class Verdict:
    """The result for an op: whether it is served (`serves`), by what or why not (`text`), and the
    `reasons` against it."""

    def __init__(self, serves, text, reasons=()):
        self.serves, self.text, self.reasons = serves, text, list(reasons)


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
    return Verdict(False, text, reasons)


def verdict(name):
    """Returns the Verdict on DeepSpeed's op `name`. A reference in PyTorch does not count."""
    if name not in SERVED:
        return Verdict(False, f"no plugin of Opdock's has {name} yet")
    module, ops = SERVED[name]
    if importlib.util.find_spec("torch") is None:
        return Verdict(False, f"found no torch, wanted it for the tensors of {name}; install it")
    judged = [_judge(op, name not in _CPU_ONLY) for op in ops]
    for one in judged:
        if not one.serves:
            return one
    return judged[0] if judged else Verdict(True, f"cpu: PyTorch's own functions ({module})")


def module_of(name):
    """Imports and returns the module with the functions of a served op."""
    return importlib.import_module(f"opdock.compat.deepspeed.{SERVED[name][0]}")
