# SPDX-License-Identifier: Apache-2.0
"""Opdock finds, checks, loads and calls op plugins.

    import opdock
    y = opdock.ops.softmax(x, scale=0.125)      # x: a torch, NumPy, CuPy or JAX array
    softmax = opdock.load("softmax")            # the same function
    opdock.plugins()                            # what was found, with verdicts and reasons

Nothing is searched for or loaded, and no driver is called, before the first look-up. Opdock imports
neither torch nor NumPy; it uses them only if the program has imported them.
"""

from os import environ as _environ

from opdock import ops
from opdock._compile import Module, compile
from opdock._errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    DeviceLostError,
    FallbackWarning,
    IncompatibleError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OpdockError,
    OutOfMemoryError,
    UnsupportedError,
)
from opdock._formula import formula
from opdock._load import Plugin, load
from opdock._opdock import Function, Generator, Kernel, Object, Runtime
from opdock._opdock import version as _version
from opdock._reports import codes, doctor, explain, inspect, inspect_diff, plugins, trust
from opdock._runtime import configure, manual_seed

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without importing typing
if TYPE_CHECKING:
    from opdock._fuse import Fused, fuse
    from opdock._reference import reference

__version__ = _version()


def __getattr__(name):
    if name in ("Fused", "fuse"):
        from opdock import _fuse

        return getattr(_fuse, name)
    if name == "reference":
        from opdock._reference import reference

        return reference
    raise AttributeError(f"module 'opdock' has no attribute {name!r}")


if _environ.get("OPDOCK_DEEPSPEED", "0") not in ("", "0"):
    from opdock.compat.deepspeed._install import install_if_asked

    install_if_asked()

__all__ = [
    "ArgumentError",
    "CancelledError",
    "DeviceError",
    "DeviceLostError",
    "FallbackWarning",
    "Function",
    "Fused",
    "Generator",
    "IncompatibleError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "Kernel",
    "Module",
    "NotFoundError",
    "Object",
    "OpdockError",
    "OutOfMemoryError",
    "Plugin",
    "Runtime",
    "UnsupportedError",
    "codes",
    "compile",
    "configure",
    "doctor",
    "explain",
    "formula",
    "fuse",
    "inspect",
    "inspect_diff",
    "load",
    "manual_seed",
    "ops",
    "plugins",
    "reference",
    "trust",
]
