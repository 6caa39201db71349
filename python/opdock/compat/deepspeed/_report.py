# SPDX-License-Identifier: Apache-2.0
"""Implements `opdock doctor --deepspeed`: lists DeepSpeed's ops that Opdock serves here, and why it
does not serve the others."""

import importlib.metadata
import json
import platform
import sys

from opdock.compat.deepspeed import _environment, _versions
from opdock.compat.deepspeed._install import installed
from opdock.compat.deepspeed._ops import ALL_OPS
from opdock.compat.deepspeed._plugin_ops import versions


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def report():
    """Returns a dict that describes which of DeepSpeed's ops Opdock serves here.

    Its members are "ops" (a list of {"name", "builder", "served", "by", "text", "reasons",
    "stands_in", "versions"}; the last are whether references in PyTorch stand in for a missing
    plugin, and which of DeepSpeed's versions 0.7.7 and 0.19.8 have the op),
    "environment" (a list of {"variable", "value", "text", "counts"}), "versions", "installed"
    (whether install() is in effect) and "start_hook" (the file that makes Python read
    OPDOCK_DEEPSPEED at startup, or None). Loads and builds nothing, and imports neither torch nor
    DeepSpeed.
    """
    ops = []
    for name, builder in sorted(ALL_OPS.items()):
        found = builder.verdict()
        ops.append(
            {
                "name": name,
                "builder": type(builder).__name__,
                "served": found.serves,
                "by": found.text if found.serves else None,
                "text": found.text,
                "reasons": found.reasons,
                "stands_in": found.stands_in,
                "versions": versions(name),
            }
        )
    nvcc, nvcc_version = _versions.tool("nvcc")
    return {
        "ops": ops,
        "environment": [
            dict(zip(("variable", "value", "text", "counts"), row, strict=True))
            for row in _environment.in_use()
        ],
        "versions": {
            "deepspeed": _version("deepspeed"),
            "torch": _version("torch"),
            "python": platform.python_version(),
            "nvcc": nvcc_version,
            "nvcc_path": nvcc,
            "rocm": ".".join(map(str, _versions.installed_rocm_version())),
        },
        "installed": installed(),
        "start_hook": _environment.start_hook(),
    }


def _print(found):
    for op in found["ops"]:
        more = "; its references in PyTorch stand in" if op["stands_in"] else ""
        print(f"{'yes' if op['served'] else 'no ':<4} {op['name']:<24} {op['text']}{more}")
    print("\nAn op with `no` is left to DeepSpeed's own builder, unless references stand in.")
    versions = found["versions"]
    for name in ("deepspeed", "torch", "python", "nvcc"):
        print(f"{name:<10} {versions[name] or 'not found'}")
    for row in found["environment"]:
        counts = "" if row["counts"] else "no effect: "
        print(f"{row['variable']}={row['value']}: {counts}{row['text']}")
    if found["start_hook"] is None:
        print(_environment.says_without_hook())
    if not found["installed"]:
        print(
            "DeepSpeed uses them with OPDOCK_DEEPSPEED=1, or after opdock.compat.deepspeed."
            "install()"
        )


def main(arguments):
    """Prints the report, with --json as one object. Returns 0 if any op is served, else 1."""
    found = report()
    if "--json" in arguments:
        print(json.dumps(found))
    else:
        _print(found)
    return 0 if any(op["served"] for op in found["ops"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
