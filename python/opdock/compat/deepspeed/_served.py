# SPDX-License-Identifier: Apache-2.0
"""Builders for DeepSpeed's own ops: Opdock's plugins serve them, or else DeepSpeed's own
builders."""

import os

from opdock import _reports
from opdock._errors import IncompatibleError, NotFoundError
from opdock.compat.deepspeed import _environment
from opdock.compat.deepspeed._own import is_installed, no_stale_lock, own_builder
from opdock.compat.deepspeed._plugin_ops import SERVED
from opdock.compat.deepspeed._say import say_once
from opdock.compat.deepspeed._verdict import Verdict, module_of, stand_in, verdict


def say_own(name, why):
    """Prints, once for each op, that DeepSpeed's own builder serves it."""
    say_once(("own", name), f"{name}: DeepSpeed's own builder serves it: {why}")


class ServedOp:
    """A mixin with the methods of a builder for one of DeepSpeed's ops.

    NAME, BUILD_VAR: DeepSpeed's. MODULE: the name that the op's module is installed by.
    """

    NAME = BUILD_VAR = MODULE = ""

    def __init__(self, name=None):
        super().__init__(name or self.NAME)

    def absolute_name(self):
        """Returns the name of the module that DeepSpeed installs the op as."""
        return self.MODULE

    def _has_own_sources(self):
        """Returns whether a subclass defines its own sources(), which are then built."""
        return type(self).sources is not ServedOp.sources

    def verdict(self):
        """Returns the Verdict whether Opdock's plugins serve this op; an excluded op is not
        served."""
        if self.name in _environment.excluded():
            return Verdict(False, "OPDOCK_DEEPSPEED_EXCLUDE names it")
        return verdict(self.name)

    def is_compatible(self, verbose=False):
        """Returns whether a plugin serves the op here, or else DeepSpeed's own builder can build
        it.

        error_log has the reason, from opdock.explain(), if no plugin does; verbose: also print it.
        """
        if self._has_own_sources():
            return super().is_compatible(verbose)
        found = self.verdict()
        if found.serves:
            self.error_log = None
            return True
        self._refuse(found.text, verbose)
        if found.reference is not None:
            return False  # load() answers without DeepSpeed's own builder
        own = self._own_if_there()
        return own is not None and bool(own.is_compatible(verbose))

    def _own_if_there(self):
        """Returns DeepSpeed's own builder if DeepSpeed is installed and has it, else None."""
        try:
            return own_builder(type(self).__name__, self.name)
        except LookupError as error:
            self.error_log = str(error)
            return None

    def load(self, verbose=False):
        """Returns the module with the op's functions, which call Opdock's plugin, or DeepSpeed's
        module.

        Where no plugin serves the op but the plugins' references in PyTorch can, they stand in, and
        one FallbackWarning has the reason; OPDOCK_FALLBACK=error refuses that. A module that was
        compiled when DeepSpeed was installed comes before them. Raises IncompatibleError with the
        plugin's reasons if nothing is available.
        """
        if self._has_own_sources():
            return super().load(verbose)
        found = self.verdict()
        if found.serves:
            return module_of(self.name)
        if found.reference is not None and not is_installed(self):
            return stand_in(self.name, found)
        own = self._own_if_there()
        if own is None:
            error = IncompatibleError(f"{self.name}: {found.text}. {self.error_log}")
            error.reasons = found.reasons
            raise error
        say_own(self.name, found.text)
        with no_stale_lock():
            return own.load(verbose)

    def jit_load(self, verbose=True):
        """Does the same as load(): a plugin is not compiled if a binary fits."""
        return super().jit_load(verbose) if self._has_own_sources() else self.load(verbose)

    def builder(self):
        """Returns a setuptools Extension; DeepSpeed's own one for an op that has no plugin."""
        if self.name in SERVED or self._has_own_sources():
            return super().builder()
        own = self._own_if_there()
        if own is None:
            raise NotFoundError(self.error_log)
        return own.builder()

    def hipify_extension(self):
        """Translates a subclass's own sources for ROCm; a plugin's sources need no translation."""
        return super().hipify_extension() if self._has_own_sources() else {}

    def sources(self):
        """Returns the files of the plugin's sources, if installed; DeepSpeed's for an op without
        plugin."""
        if self.name in SERVED:
            return plugin_sources(self.name)
        own = self._own_if_there()
        return own.sources() if own is not None else []

    def include_paths(self):
        """Returns the folders of DeepSpeed's own source; none for a plugin, whose plugin.toml names
        them."""
        own = None if self.name in SERVED else self._own_if_there()
        return own.include_paths() if own is not None else []


def plugin_sources(name):
    """Returns the sorted files of the source plugins behind DeepSpeed's op `name`; may be empty."""
    folders = {folder for folder in map(plugin_folder, SERVED[name][1]) if folder is not None}
    found = [
        os.path.join(at, file) for one in folders for at, _, files in os.walk(one) for file in files
    ]
    return sorted(path for path in found if path.endswith((".cc", ".cu", ".cuh", ".h")))


def plugin_folder(op):
    """Returns the folder of the source plugin that has Opdock's op `op`, or None."""
    for candidate in _reports.explain(op)["candidates"]:
        if candidate["kind"] == "source":
            return candidate["path"]
    return None
