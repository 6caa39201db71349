# SPDX-License-Identifier: Apache-2.0
"""The plugins of this tree by what their plugin.toml declares, so that tests of all plugins
include a new one; tree_plugins.h is the same in C++."""

from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings it
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[2] / "plugins"


def declared():
    """{a plugin's name: what its plugin.toml has}."""
    tomls = [tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*/plugin.toml"))]
    return {toml["name"]: toml for toml in tomls}


def ops(toml, device):
    """The names of a plugin's ops that run on "cpu", "cuda" or "rocm"."""
    return [op["schema"].split("(")[0] for op in toml["op"] if device in op["devices"]]


def always_built():
    """{name: …} of those that need neither nvcc nor hipcc, which a machine may lack."""
    return {
        name: toml
        for name, toml in declared().items()
        if not any(source.endswith((".cu", ".hip")) for source in toml["sources"])
    }


def with_kernels(*devices):
    """{name: …} of those whose kernels are in their binary, and that run on one of the devices."""
    return {
        name: toml
        for name, toml in declared().items()
        if "device" in toml and any(ops(toml, device) for device in devices)
    }


def functions(toml):
    """The kernels' functions, without their templates' arguments: "softmax::any_rows"."""
    return {kernel.split("<")[0] for kernel in toml["device"]["kernels"]}
