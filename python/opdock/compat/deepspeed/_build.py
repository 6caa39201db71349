# SPDX-License-Identifier: Apache-2.0
"""Builds a Python module from a builder's sources by Opdock's build, and imports it.

Results are cached by the content of all files, arguments and versions. The build's locks are kernel
locks, which end with the process that holds them. Files that a killed process leaves behind are
never used.
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
    """A built module: its file, the name to import it by, and Opdock's build report."""

    def __init__(self, path, module, report):
        self.path, self.module, self.report = path, module, report


def _options(archs):
    options = {"cuda_archs": ";".join(archs)} if archs else {}
    jobs = _environment.number("MAX_JOBS")
    if jobs is not None:
        options["jobs"] = jobs
    return json.dumps(options)


def refuse(name, report, original=str):
    """Raises IncompatibleError, with its reasons, for the report of a failed build. original(text):
    converts a reason's text for the user."""
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
    """Builds the builder's sources, or finds the result in the cache; returns a Built. May take
    minutes.

    module: the name to import it by; the builder's name by default. Raises IncompatibleError, with
    `reasons`, if it cannot be built, and the errors of recipe().
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
    """Returns whether loading the file despite this reason could crash the process or run foreign
    code. Other reasons are left to the dynamic linker, which reports them itself."""
    return reason["stage"] in ("trust", "file") or reason["code"] in ("cpu-arch", "cpu-level")


def _check(built):
    """Checks, as Opdock's loader does for a plugin, that no other user could have written the file,
    that it is whole, and that it is for this processor. Raises IncompatibleError."""
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
    """Imports the file and returns the module. Raises IncompatibleError for a file that other users
    could have written or that does not fit this machine, and ImportError as Python's own import
    does."""
    _check(built)
    import torch  # noqa: F401 (loads the libraries that define the module's symbols)

    loader = importlib.machinery.ExtensionFileLoader(built.module, built.path)
    spec = importlib.util.spec_from_file_location(built.module, built.path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
