# SPDX-License-Identifier: Apache-2.0
"""Looking functions up by name."""

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
    """The names of the ops of the plugins called `plugin_name`, in the order found."""
    found = {}
    for plugin in parse(default().list_json())["plugins"]:
        if plugin.get("name") == plugin_name:
            for op in plugin.get("ops", []):
                found[op if isinstance(op, str) else op["name"]] = True
    return list(found)


def load(name, device=None):
    """The function of an op, the same as in opdock.ops, or a Plugin with the functions of a plugin.

    name: an op ("softmax"), "plugin/op" to insist on one plugin, or a plugin with several ops
    ("norm"). device: such as "cpu" or "cuda:0"; the plugin is loaded and prepared for it now, so
    that the first call there does no more than any other. Without it that happens in the first
    call. Raises NotFoundError if nothing has that name, IncompatibleError if only plugins that do
    not fit this machine do: its `reasons` say why.
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
    """The names of the ops that plugins found here provide, or would once they are built."""
    names = set()
    for plugin in parse(default().list_json())["plugins"]:
        if plugin.get("usable") or plugin.get("verdict") == "buildable":
            for op in plugin.get("ops", []):
                names.add(op if isinstance(op, str) else op["name"])
    return sorted(names)
