# SPDX-License-Identifier: Apache-2.0
"""What builders of DeepSpeed's own ops answer: by Opdock's verdicts, else as DeepSpeed's do."""

import os

from opdock._errors import IncompatibleError, NotFoundError
from opdock.compat.deepspeed import _environment
from opdock.compat.deepspeed._own import no_stale_lock, own_builder
from opdock.compat.deepspeed._say import say_once
from opdock.compat.deepspeed._verdict import SERVED, Verdict, module_of, verdict


def say_own(name, why):
    """The line about an op that goes to DeepSpeed's own builder."""
    say_once(("own", name), f"{name}: DeepSpeed's own builder serves it: {why}")


class ServedOp:
    """The methods of a builder for an op of DeepSpeed's: mixed into the op's class.

    NAME, BUILD_VAR: as DeepSpeed has them. MODULE: what the op is installed as.
    """

    NAME = BUILD_VAR = MODULE = ""

    def __init__(self, name=None):
        super().__init__(name or self.NAME)

    def absolute_name(self):
        """The module that DeepSpeed installs the op as."""
        return self.MODULE

    def _has_own_sources(self):
        """Whether a subclass brings sources of its own, which are then what is built."""
        return type(self).sources is not ServedOp.sources

    def verdict(self):
        """The Verdict of Opdock's plugins on this op; an excluded one is not served."""
        if self.name in _environment.excluded():
            return Verdict(False, "OPDOCK_DEEPSPEED_EXCLUDE names it")
        return verdict(self.name)

    def is_compatible(self, verbose=False):
        """Whether a plugin serves the op here, or else DeepSpeed's own builder can build it.

        error_log says why no plugin does, as opdock.explain() has it; verbose: it is printed.
        """
        if self._has_own_sources():
            return super().is_compatible(verbose)
        found = self.verdict()
        if found.serves:
            self.error_log = None
            return True
        self._refuse(found.text, verbose)
        own = self._own_if_there()
        return own is not None and bool(own.is_compatible(verbose))

    def _own_if_there(self):
        """DeepSpeed's builder where DeepSpeed is installed and has it, else None."""
        try:
            return own_builder(type(self).__name__, self.name)
        except LookupError as error:
            self.error_log = str(error)
            return None

    def load(self, verbose=False):
        """The module with the op's functions: over Opdock's plugin, or DeepSpeed's own.

        Raises IncompatibleError with the plugin's reasons if neither is there.
        """
        if self._has_own_sources():
            return super().load(verbose)
        found = self.verdict()
        if found.serves:
            return module_of(self.name)
        own = self._own_if_there()
        if own is None:
            error = IncompatibleError(f"{self.name}: {found.text}. {self.error_log}")
            error.reasons = found.reasons
            raise error
        say_own(self.name, found.text)
        with no_stale_lock():
            return own.load(verbose)

    def jit_load(self, verbose=True):
        """As load(): a plugin is not compiled where a binary fits."""
        return super().jit_load(verbose) if self._has_own_sources() else self.load(verbose)

    def builder(self):
        """A setuptools Extension; of an op that has no plugin, DeepSpeed's own."""
        if self.name in SERVED or self._has_own_sources():
            return super().builder()
        own = self._own_if_there()
        if own is None:
            raise NotFoundError(self.error_log)
        return own.builder()

    def sources(self):
        """The files of the plugin's source, where it is installed; else DeepSpeed's own."""
        if self.name in SERVED:
            return plugin_sources(self.name)
        own = self._own_if_there()
        return own.sources() if own is not None else []

    def include_paths(self):
        """Folders of DeepSpeed's own source; a plugin names its folders in its plugin.toml."""
        own = None if self.name in SERVED else self._own_if_there()
        return own.include_paths() if own is not None else []


def plugin_sources(name):
    """The files of the source plugins behind DeepSpeed's op of that name, sorted; may be none."""
    folders = {folder for folder in map(plugin_folder, SERVED[name][1]) if folder is not None}
    found = [
        os.path.join(at, file) for one in folders for at, _, files in os.walk(one) for file in files
    ]
    return sorted(path for path in found if path.endswith((".cc", ".cu", ".cuh", ".h")))


def plugin_folder(op):
    """The folder of the source plugin with an op of Opdock's, or None."""
    import opdock

    for candidate in opdock.explain(op)["candidates"]:
        if candidate["kind"] == "source":
            return candidate["path"]
    return None
