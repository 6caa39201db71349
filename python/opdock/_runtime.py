# SPDX-License-Identifier: Apache-2.0
"""The process's own runtime, made on first use."""

import os
import threading
import warnings

from opdock import _opdock

_lock = threading.Lock()
_default = None


def package_folders():
    """Folders of plugins that installed Python packages announce, in a stable order.

    A package announces one by an entry point of the group "opdock.plugins" whose value is the
    package in whose folder the plugin files lie. The package itself is not imported (its parents
    are, if it is a subpackage).
    """
    from importlib import metadata, util

    folders = []
    for entry in sorted(metadata.entry_points(group="opdock.plugins"), key=lambda e: e.value):
        try:
            spec = util.find_spec(entry.value)
        except (ImportError, ValueError):
            spec = None
        found = [
            os.path.abspath(folder)
            for folder in getattr(spec, "submodule_search_locations", None) or ()
        ]
        if not found:
            warnings.warn(
                f"entry point {entry.name!r} of the group opdock.plugins names {entry.value!r}, "
                "which is no package here; reinstall or remove the package that declares it",
                stacklevel=2,
            )
        folders += [folder for folder in found if folder not in folders]
    return folders


def default():
    """The runtime that opdock.load() and opdock.ops use; never destroyed."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = _opdock.Runtime(package_path=":".join(package_folders()) or None)
    return _default
