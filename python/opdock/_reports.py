# SPDX-License-Identifier: Apache-2.0
"""Reports about plugins and this machine, as plain dicts (docs/verdicts.md has their members)."""

import os
import sys

from opdock import _opdock
from opdock._errors import InvalidArgumentError
from opdock._runtime import default, package_folders, parse


def plugins(*, rescan=False):
    """Every plugin that discovery finds: name, version, path, verdict, ops, devices, reasons.

    rescan: look at the folders again. Loads nothing.
    """
    return parse(default().list_json(rescan))["plugins"]


def inspect(
    what=None,
    *,
    gpu=None,
    driver=None,
    cuda=None,
    rocm=None,
    glibc=None,
    libstdcxx=None,
    arch=None,
    cpu=None,
    with_=(),
):
    """Whether native code will run, and if not, why. Nothing of it is executed.

    what: a path, or the name of an installed package; None: every package that this interpreter
    would import. gpu: "sm_100", "gfx90a", or a list of such; driver: "570"; glibc: "2.28"; …: a
    machine to judge for instead of this one (docs/inspect.md). with_: names of installed packages
    that count as imported before, such as ["torch"].

    One shared object, plugin or not, comes to its ELF facts, GPU images, note and verdict; a wheel,
    a folder, a virtual environment and a package to {"machine", "packages", "skipped", "reasons",
    "summary"}. Raises NotFoundError if there is no such file or package, and InvalidArgumentError
    for a machine that cannot be.
    """
    gpus = [gpu] if isinstance(gpu, str) else list(gpu or ())
    texts = {
        "driver": driver,
        "cuda": cuda,
        "rocm": rocm,
        "glibc": glibc,
        "libstdcxx": libstdcxx,
        "arch": arch,
        "cpu": cpu,
    }
    machine = {name: _text(name, value) for name, value in texts.items() if value is not None}
    if gpus:
        machine["gpus"] = gpus
    if with_:
        machine["with"] = [with_] if isinstance(with_, str) else list(with_)
    if what is None:
        return _survey({"environment": True, **machine})
    what = os.fspath(what)
    exists = os.path.exists(what)
    if not exists and os.sep not in what:
        return _survey({"packages": [what], **machine})
    if os.path.isdir(what) or what.endswith(".whl"):
        return _survey({"paths": [what], **machine})
    if exists and not machine:
        return parse(default().inspect_json(what))
    if not exists and ".whl/" not in what:
        return parse(default().inspect_json(what))  # which says that it is not there
    report = _survey({"paths": [what], "whole": True, **machine})
    return report["packages"][0]["files"][0]


def inspect_diff(a, b):
    """What differs between two native files, such as two builds of one library (docs/inspect.md).

    Raises NotFoundError if there is no such file.
    """
    return parse(default().inspect_diff_json(os.fspath(a), os.fspath(b)))


def _text(name, value):
    """A version as a text: 570 is as good as "570", but 2.30 is not "2.30"."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f'{name}: found {value!r}, wanted a text such as "2.28"')


def _survey(request):
    """The report on many files. Packages are those of this interpreter."""
    import json

    request["sites"] = [
        os.path.abspath(folder)
        for folder in sys.path
        if folder.endswith("-packages") and os.path.isdir(folder)
    ]
    return parse(default().survey_json(json.dumps(request)))


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
