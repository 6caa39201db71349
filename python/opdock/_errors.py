# SPDX-License-Identifier: Apache-2.0
"""Opdock's exceptions: each derives from OpdockError and from a fitting built-in exception."""


class OpdockError(Exception):
    """The base class of all exceptions that opdock raises.

    reasons: a list of dicts {"step", "plugin", "path", "code", "stage", "severity", "text",
    "found", "wanted", "advice"}, one for each problem of each plugin and of each step that could
    have made one available; empty for errors without such a record.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.reasons = []


class FallbackWarning(UserWarning):
    """No plugin fits, so the op's reference implementation runs: correct, but slower.

    reasons: as OpdockError.reasons, for every step that failed before the fallback.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.reasons = []


def add_reasons(error, text):
    """Sets error.reasons from the JSON text that opdock_take_reasons_json returned."""
    import json

    error.reasons = json.loads(text)


class ArgumentError(OpdockError, TypeError):
    """An argument has the wrong type, an unknown name, is missing, or is one too many."""


class InvalidArgumentError(OpdockError, ValueError):
    """An argument whose value breaks the op's contract: shape, dtype, device, layout, range."""


class UnsupportedError(OpdockError, NotImplementedError):
    """The argument is legal, but this implementation does not handle it."""


class OutOfMemoryError(OpdockError, MemoryError):
    """The host or the device has no memory left."""


class DeviceError(OpdockError, RuntimeError):
    """The device's driver reported an error; the device can still be used."""


class DeviceLostError(DeviceError):
    """A sticky device error: this process must not use the device again."""


class NotFoundError(OpdockError, LookupError):
    """No such op, plugin, file, kernel or symbol."""


class IncompatibleError(OpdockError, RuntimeError):
    """Something of that name exists, but its verdict is not "usable": see `reasons`."""


class CancelledError(OpdockError, RuntimeError):
    """A hook of the program cancelled the operation."""


class InternalError(OpdockError, RuntimeError):
    """Opdock or the plugin has a defect; please report it."""


class IoError(OpdockError, OSError):
    """The operating system reported an error of a file. `errno` is not set: the text has the
    cause."""


for _class in [OpdockError, FallbackWarning, *OpdockError.__subclasses__(), DeviceLostError]:
    _class.__module__ = "opdock"  # the module's name in tracebacks and help()
