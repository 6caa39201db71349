# SPDX-License-Identifier: Apache-2.0
"""Reports about plugins and this machine, as plain dicts (docs/verdicts.md has their members)."""

import os

from opdock import _opdock
from opdock._errors import InvalidArgumentError
from opdock._runtime import default, package_folders, parse


def plugins(*, rescan=False):
    """Every plugin that discovery finds: name, version, path, verdict, ops, devices, reasons.

    rescan: look at the folders again. Loads nothing.
    """
    return parse(default().list_json(rescan))["plugins"]


def inspect(path):
    """One shared object, plugin or not: its ELF facts, GPU images, note and verdict.

    Nothing of the file is executed. Raises NotFoundError if there is no such file.
    """
    return parse(default().inspect_json(os.fspath(path)))


def explain(name):
    """How an op or a plugin is, or is not, resolved: every candidate, best first, with reasons."""
    return parse(default().explain_json(name))


def doctor():
    """What this machine has, what is missing for what, and what would bring it.

    Variables and configuration files with invalid values are findings too, where any other function
    raises InvalidArgumentError for them.
    """
    try:
        runtime = default()
    except InvalidArgumentError:
        runtime = _opdock.Runtime(package_path=":".join(package_folders()) or None, diagnose=True)
    return parse(runtime.doctor_json())


def codes():
    """Every reason code with its stage, meaning, cause and advice."""
    return parse(_opdock.codes_json())


def trust(folder):
    """Records this user's consent to load plugins from the folder."""
    _opdock.trust(os.path.abspath(folder))
