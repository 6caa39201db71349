# SPDX-License-Identifier: Apache-2.0
"""Lists the plugins of this source tree from their plugin.toml files, so that tests of all plugins
cover a new one automatically; tree_plugins.h does the same in C++."""

from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest installs tomli
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[2] / "plugins"


def declared():
    """Returns {plugin name: content of its plugin.toml}."""
    tomls = [tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*/plugin.toml"))]
    return {toml["name"]: toml for toml in tomls}


def ops(toml, device):
    """Returns the names of a plugin's ops that run on "cpu", "cuda" or "rocm"."""
    return [op["schema"].split("(")[0] for op in toml["op"] if device in op["devices"]]


def always_built():
    """Returns {name: …} of the plugins that need neither nvcc nor hipcc, which a machine may
    lack."""
    return {
        name: toml
        for name, toml in declared().items()
        if not any(source.endswith((".cu", ".hip")) for source in toml["sources"])
    }


def with_kernels(*devices):
    """Returns {name: …} of the plugins whose binaries contain kernels and that run on a device."""
    return {
        name: toml
        for name, toml in declared().items()
        if "device" in toml and any(ops(toml, device) for device in devices)
    }


def with_formulas(*devices):
    """Returns {name: …} of the plugins that have ops by formulas and run on a device."""
    return {
        name: toml
        for name, toml in declared().items()
        if any("formula" in op and {*op.get("devices", devices)} & {*devices} for op in toml["op"])
    }


def functions(toml):
    """Returns the kernels' functions without template arguments, for example
    "softmax::any_rows"."""
    return {kernel.split("<")[0] for kernel in toml["device"]["kernels"]}
