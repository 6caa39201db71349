# SPDX-License-Identifier: Apache-2.0
"""The exceptions. Each is an OpdockError and the built-in exception that fits best."""


class OpdockError(Exception):
    """What everything that opdock raises derives from.

    reasons: a list of dicts {"step", "plugin", "path", "code", "stage", "severity", "text",
    "found", "wanted", "advice"}, one for each thing that speaks against each plugin and each way
    to make one; empty for errors that have no such record.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.reasons = []


class FallbackWarning(UserWarning):
    """No plugin fits, and the op's reference implementation stands in: correct, and slower.

    reasons: as OpdockError.reasons, of every step that failed before.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.reasons = []


def add_reasons(error, text):
    """Puts the reasons of opdock_take_reasons_json into an exception."""
    import json

    error.reasons = json.loads(text)


class ArgumentError(OpdockError, TypeError):
    """An argument of a wrong type, an unknown name, too many, or one that is missing."""


class InvalidArgumentError(OpdockError, ValueError):
    """An argument whose value breaks the op's contract: shape, dtype, device, layout, range."""


class UnsupportedError(OpdockError, NotImplementedError):
    """A legal argument that this implementation does not handle."""


class OutOfMemoryError(OpdockError, MemoryError):
    """No memory on the host or on the device."""


class DeviceError(OpdockError, RuntimeError):
    """The device's driver reported an error; the device can still be used."""


class DeviceLostError(DeviceError):
    """A sticky device error: this process must not use the device again."""


class NotFoundError(OpdockError, LookupError):
    """No such op, plugin, file, kernel or symbol."""


class IncompatibleError(OpdockError, RuntimeError):
    """Something of that name exists, but its verdict is not "usable": see `reasons`."""


class CancelledError(OpdockError, RuntimeError):
    """A hook of the program asked to stop."""


class InternalError(OpdockError, RuntimeError):
    """A defect in opdock or in the plugin: please report it."""


class IoError(OpdockError, OSError):
    """A file, or the operating system below it, refuses. It has no errno: the text says it."""


for _class in [OpdockError, FallbackWarning, *OpdockError.__subclasses__(), DeviceLostError]:
    _class.__module__ = "opdock"  # where users find it
