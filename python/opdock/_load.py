# SPDX-License-Identifier: Apache-2.0
"""Looks up ops and plugins by name."""

from opdock import _names, _opdock
from opdock._errors import ArgumentError, NotFoundError
from opdock._runtime import default, function, parse


class Plugin:
    """The functions of a plugin with several ops, as attributes: opdock.load("norm").layer_norm."""

    def __init__(self, name, functions):
        self.__name__ = name
        self.__dict__.update(functions)

    def __repr__(self):
        ops = ", ".join(key for key in vars(self) if key != "__name__")
        return f"<opdock plugin {self.__name__}: {ops}>"


def _op_names(plugin_name):
    """Returns the names of the ops of all plugins called `plugin_name`, in the order of
    discovery."""
    found = {}
    for plugin in parse(default().list_json())["plugins"]:
        if plugin.get("name") == plugin_name:
            for op in plugin.get("ops", []):
                found[op if isinstance(op, str) else op["name"]] = True
    return list(found)


def load(name, device=None):
    """Returns the function of an op, the same object as in opdock.ops, or a Plugin with several.

    name: an op ("softmax"), "plugin/op" to insist on one plugin, or a plugin with several ops
    ("norm"), which gives a Plugin. device: such as "cpu" or "cuda:0"; loads the plugin and prepares
    it for that device now, so that the first call there is as fast as any other. Without it the
    first call does that. Any thread.

    Raises NotFoundError if nothing has that name, IncompatibleError if only plugins that do not fit
    this machine have it (its `reasons` say why), ArgumentError if `device` is not a device.
    """
    _names.text("load", "name", name, "a str such as 'softmax'")
    try:
        found = function(name)
        functions = [found]
    except NotFoundError:
        names = _op_names(name) if "/" not in name else []
        if not names:
            raise
        functions = [function(f"{name}/{op}") for op in names]
        found = Plugin(name, {one.__name__: one for one in functions})
    if device is not None:
        _prepare(functions, device)
    return found


def _prepare(functions, device):
    numbers = _names.device(device)
    if numbers is None:
        raise ArgumentError(
            f"load(): argument 'device': found {device!r}, wanted a device such as 'cpu' or "
            "'cuda:0'"
        )
    for one in functions:
        _opdock.prepare(one, *numbers)


def op_names():
    """Returns the sorted names of the ops of plugins that are usable here or can be built here."""
    names = set()
    for plugin in parse(default().list_json())["plugins"]:
        if plugin.get("usable") or plugin.get("verdict") == "buildable":
            for op in plugin.get("ops", []):
                names.add(op if isinstance(op, str) else op["name"])
    return sorted(names)
