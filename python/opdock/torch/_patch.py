# SPDX-License-Identifier: Apache-2.0
"""Implements opdock.torch.patch() and unpatch(): gives the layers of a model classes whose
functions call Opdock's ops where these are faster, and gives them back their own."""

import re
import types

import torch

from opdock._errors import ArgumentError
from opdock.torch import _choice, _rewrite, _swaps


class Report:
    """What patch() did. swapped: {kind: {class: number of places}}; kept: [(what, why)]; choices():
    what was measured until now; left(): calls that torch made. str() has one line for each kind."""

    def __init__(self):
        self.swapped, self.kept = {}, []
        self._classes = set()

    def _add(self, kinds, name):
        for kind in kinds:
            places = self.swapped.setdefault(kind, {})
            places[name] = places.get(name, 0) + 1

    def _remove(self, kinds, name):
        for kind in kinds:
            places = self.swapped[kind]
            places[name] -= 1
            if not places[name]:
                del places[name]
            if not places:
                del self.swapped[kind]

    def left(self):
        """Returns [(kind, reason)] of calls that were left to torch until now, for the kinds that
        tell: the arguments of attention."""
        kinds = _swaps.refused.keys() & self.swapped.keys()
        return [(kind, why) for kind in sorted(kinds) for why in sorted(_swaps.refused[kind])]

    def choices(self):
        """Returns what was measured for the kinds that were swapped, as texts."""
        return [str(c) for c in _choice.choices() if c.situation.split()[0] in self.swapped]

    def __str__(self):
        lines = []
        measured = {}
        for choice in _choice.choices():
            measured.setdefault(choice.situation.split()[0], []).append(choice)
        for kind, places in sorted(self.swapped.items()):
            count = sum(places.values())
            found = measured.get(kind, [])
            faster = sum(c.eager for c in found)
            how = f"Opdock's for {faster} of {len(found)} shapes" if found else "not measured yet"
            lines.append(f"{kind}: {count} in {', '.join(sorted(places))}: {how}")
        lines += [f"{what}: torch's: {why}" for what, why in [*self.left(), *self.kept]]
        return "\n".join(lines) if lines else "found nothing to swap"

    __repr__ = __str__


def patch(model, measure=None):
    """Swaps the layers and functions of a model for Opdock's where these are faster; returns a
    report, which tells what was swapped, and why the rest was not.

    model: a torch.nn.Module. Its parameters, state_dict and hooks stay what they are; the classes
    of its layers become subclasses of their own. For each op and class of shapes the first call
    measures Opdock's op and torch's function, which takes some milliseconds, and the faster one
    makes all later calls; `opdock bench --forget` forgets that. torch.compile cannot measure:
    measure before.
    measure: arguments of the model (a tensor, a tuple, or a dict of keywords) with which to measure
    now. The model is run once, with gradients if it is in training mode; its buffers and torch's
    random numbers are afterwards as before. Layers of which torch's functions were all the faster
    ones get their class back: without `measure` each of their calls asks again, which takes some
    microseconds.

    Not from several threads. Call it again after layers were added. Raises ArgumentError.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"patch(): argument 'model': found an object of type {type(model).__name__}, wanted a "
            "torch.nn.Module; pass the model, not its function"
        )
    report = Report()
    classes = {}
    for layer in model.modules():
        _patch_layer(layer, classes, report)
    if measure is not None:
        _run(model, measure)
        _give_back(model, report)
    report.kept = sorted({*report.kept})
    return report


def unpatch(model):
    """Gives the layers of a model back the classes that they had before patch(); returns how many
    had others. Then the model can be pickled."""
    count = 0
    for layer in model.modules():
        before = vars(type(layer)).get("_opdock_original")
        if before is not None:
            layer.__class__ = before
            count += 1
    return count


def _patch_layer(layer, classes, report):
    cls = type(layer)
    known = vars(cls).get("_opdock_kinds")
    if known is not None:  # patched before
        report._add(known, cls.__name__)
        return
    if isinstance(layer, torch.jit.ScriptModule):
        return
    if "forward" in vars(layer):
        if _swaps.norm_of(layer):
            report.kept.append((cls.__name__, "its forward() was replaced in the layer itself"))
        return
    key = cls, tuple((name, _signature(one)) for name, one in layer._modules.items())
    if key not in classes:
        classes[key] = _patched_class(layer, cls, report)
    made = classes[key]
    if made is not None:
        layer.__class__ = made
        report._add(made._opdock_kinds, cls.__name__)


def _signature(layer):
    """Returns what rewriting depends on in a layer that another one calls."""
    if layer is None:
        return None
    inner = tuple((name, _signature(one)) for name, one in layer._modules.items())
    hooked = not _swaps._is_unhooked(layer)
    return _swaps.original(layer), _swaps.norm_of(layer), _swaps.activation_of(layer), hooked, inner


def _patched_class(layer, cls, report):
    """Returns the class that a layer gets, or None if it keeps its own."""
    standins, functions, kinds = _rewrite.Standins(), {}, []
    is_torchs = cls in (torch.nn.LayerNorm, torch.nn.RMSNorm)
    if not is_torchs and _swaps.norm_of(layer) == "rms":
        standins.norm = _swaps.rms_norm_of_class(cls)
        functions["forward"] = _forward_of_norm(standins.norm)
        kinds.append("rms_norm")
    elif not is_torchs and re.search("Norm", cls.__name__) and not layer._modules:
        report.kept.append((cls.__name__, "no op computes what it does"))
    for name, function in _functions_of(cls):
        if name in functions:
            continue
        used = _rewrite.Standins()
        try:
            made, found = _rewrite.rewritten(function, layer, used)
        except _rewrite.Unknown as error:
            report.kept.append((f"{cls.__name__}.{name}", str(error)))
            continue
        if made is not None:
            functions[name] = made
            vars(standins).update(vars(used))
            kinds += found
    if not functions:
        return None
    members = {
        **functions,
        _rewrite.SWAPS: standins,
        "_opdock_original": cls,
        "_opdock_kinds": kinds,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    return type(cls)(cls.__name__, (cls,), members)


def _functions_of(cls):
    """Yields (name, function) of a class and its bases up to torch.nn.Module."""
    seen = set()
    for base in cls.__mro__:
        if base in (torch.nn.Module, object):
            break
        for name, function in vars(base).items():
            if name in seen or name.startswith("__"):
                continue
            seen.add(name)
            if isinstance(function, types.FunctionType):
                yield name, function


def _give_back(model, report):
    """Restores the layers all of whose stand-ins were called and found slower."""
    for layer in model.modules():
        cls = type(layer)
        standins = vars(cls).get(_rewrite.SWAPS)
        if standins is not None and all(map(_choice.is_slower, vars(standins).values())):
            layer.__class__ = cls._opdock_original
            report._remove(cls._opdock_kinds, cls.__name__)
            kinds = ", ".join(sorted({*cls._opdock_kinds}))
            report.kept.append((f"{kinds} in {cls.__name__}", "faster at the measured shapes"))


def _forward_of_norm(swap):
    """Returns forward() for a class that computes rms_norm in its own way."""

    def forward(self, hidden_states):
        return swap(hidden_states, self)

    return forward


def _run(model, arguments):
    """Runs the model once, so that its calls are measured, and restores what that changes."""
    if isinstance(arguments, dict):
        args, keywords = (), arguments
    else:
        args = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
        keywords = {}
    buffers = [(b, b.clone()) for b in model.buffers()]
    devices = sorted({x.device.index for x in model.parameters() if x.is_cuda})
    with torch.random.fork_rng(devices), torch.set_grad_enabled(model.training):
        model(*args, **keywords)
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
