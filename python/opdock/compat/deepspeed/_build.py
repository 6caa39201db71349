# SPDX-License-Identifier: Apache-2.0
"""Builds a module from a builder's sources through Opdock's build, and imports it.

Opdock's build is cached by the content of all files, arguments and versions; its locks are the
kernel's and end with the process that holds them; what a killed process leaves is never used.
"""

import importlib.machinery
import importlib.util
import json
import tempfile

from opdock import _opdock
from opdock._errors import IncompatibleError
from opdock._runtime import default, parse
from opdock.compat.deepspeed import _environment
from opdock.compat.deepspeed._folder import PREFIX, write
from opdock.compat.deepspeed._recipe import recipe


class Built:
    """A module that is built: its file, the name to import it by, and Opdock's report."""

    def __init__(self, path, module, report):
        self.path, self.module, self.report = path, module, report


def _options(archs):
    options = {"cuda_archs": ";".join(archs)} if archs else {}
    jobs = _environment.number("MAX_JOBS")
    if jobs is not None:
        options["jobs"] = jobs
    return json.dumps(options)


def refuse(name, report, original=str):
    """Raises IncompatibleError for a build's report, with its reasons; original(text): as they are
    shown."""
    lines = []
    for reason in report["reasons"]:
        if reason["severity"] != "notice":
            advice = f"\n    -> {reason['advice']}" if reason["advice"] else ""
            lines.append("  " + original(f"{reason['code']}: {reason['text']}{advice}"))
    log = f"\n  the whole log is {report['log']}" if report.get("log") else ""
    error = IncompatibleError(f"{name} could not be built:\n" + "\n".join(lines) + log)
    error.reasons = report["reasons"]
    raise error


def build(builder, module=None):
    """The Built of the builder's sources, made now or found in the cache. May take minutes.

    module: what it is imported as; the builder's name. Raises IncompatibleError, whose `reasons`
    say why, if it cannot be built, and what recipe() raises.
    """
    _environment.say_ignored()
    wanted = recipe(builder, module)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        written = write(wanted, folder)
        report = parse(default().build_json(folder, _options(wanted.archs)))
        if report["path"] is None:
            refuse(builder.name, report, written.original)
    return Built(report["path"], wanted.module, report)


def _is_fatal(reason):
    """Whether loading the file would end the process; what the dynamic linker refuses it says."""
    return reason["stage"] in ("trust", "file") or reason["code"] in ("cpu-arch", "cpu-level")


def _check(built):
    """That others cannot have written the file and that it is whole and for this processor, as
    Opdock's loader wants of a plugin."""
    reasons = parse(_opdock.trust_json("check", built.path))["reasons"]
    reasons = reasons or parse(default().inspect_json(built.path))["reasons"]
    against = [one for one in reasons if one["severity"] == "reject" and _is_fatal(one)]
    if against:
        error = IncompatibleError(
            f"{built.module}: {built.path} was built and is not loaded: {against[0]['code']}: "
            f"{against[0]['text']}"
        )
        error.reasons = against
        raise error


def load(built):
    """Imports the file. Raises IncompatibleError for one that others could have written or that
    does not fit this machine, ImportError as Python's own import does."""
    _check(built)
    import torch  # noqa: F401  (its libraries are what the module's symbols are found in)

    loader = importlib.machinery.ExtensionFileLoader(built.module, built.path)
    spec = importlib.util.spec_from_file_location(built.module, built.path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
