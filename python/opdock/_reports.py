# SPDX-License-Identifier: Apache-2.0
"""Reports about plugins and this machine, as plain dicts.

docs/reference/verdicts.md lists their members.
"""

import os
import sys

from opdock import _names, _opdock
from opdock._errors import ArgumentError, InvalidArgumentError
from opdock._runtime import default, package_folders, parse


def plugins(*, rescan=False):
    """Returns a list of dicts, one for each plugin found, without loading any.

    Each has name, version, path, verdict, ops, devices and reasons, among others. rescan: search
    the folders again, instead of returning what the process has found before.
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
    """Reports whether native code will run, and if not, why. Executes none of it.

    what: a path, or the name of an installed package; None means every package that this
    interpreter would import. gpu: "sm_100", "gfx90a", or a list of them; driver: "570"; glibc:
    "2.28"; …: these describe another machine to judge for (docs/reference/inspect.md). with_: names
    of installed packages to treat as imported earlier, such as ["torch"].

    For one shared object, plugin or not, returns its ELF facts, GPU images, note and verdict. For a
    wheel, a folder, a virtual environment or a package, returns {"machine", "packages", "skipped",
    "reasons", "summary"}. Raises NotFoundError if there is no such file or package,
    InvalidArgumentError for a machine that cannot exist.
    """
    several = gpu if isinstance(gpu, (list, tuple)) else [gpu] if gpu else []
    gpus = [_text("gpu", one) for one in several]
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
    what = _names.path("inspect", "what", what)
    exists = os.path.exists(what)
    if not exists and os.sep not in what:
        return _survey({"packages": [what], **machine})
    if os.path.isdir(what) or what.endswith(".whl"):
        return _survey({"paths": [what], **machine})
    if exists and not machine:
        return parse(default().inspect_json(what))
    if not exists and ".whl/" not in what:
        return parse(default().inspect_json(what))  # raises NotFoundError
    report = _survey({"paths": [what], "whole": True, **machine})
    return report["packages"][0]["files"][0]


def inspect_diff(a, b):
    """Returns the differences of two native files, such as two builds of a library
    (docs/reference/inspect.md).

    Raises NotFoundError if there is no such file.
    """
    paths = [_names.path("inspect_diff", name, path) for name, path in (("a", a), ("b", b))]
    return parse(default().inspect_diff_json(*paths))


def _text(name, value):
    """Returns a version as text. An int such as 570 is accepted, but no float: 2.30 would be
    "2.3"."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return _names.text("inspect", name, str(value))
    raise ArgumentError(
        f"inspect(): argument {name!r}: found {value!r}, wanted a text such as '2.28'"
    )


def _survey(request):
    """Returns libopdock's report on many files. Packages are looked up in this interpreter's
    folders."""
    import json

    request["sites"] = [
        os.path.abspath(folder)
        for folder in sys.path
        if folder.endswith("-packages") and os.path.isdir(folder)
    ]
    return parse(default().survey_json(json.dumps(request)))


def explain(name):
    """Reports how the op or plugin `name` is resolved: every candidate, best first, with
    reasons."""
    return parse(default().explain_json(_names.text("explain", "name", name)))


def doctor():
    """Reports what this machine has, what it lacks, which features need it, and how to get it.

    Environment variables and configuration files with invalid values are findings here; every other
    function raises InvalidArgumentError for them.
    """
    try:
        runtime = default()
    except InvalidArgumentError:
        runtime = _opdock.Runtime(package_path=":".join(package_folders()) or None, diagnose=True)
    return parse(runtime.doctor_json())


def codes():
    """Returns every reason code with its stage, meaning, cause and advice."""
    return parse(_opdock.codes_json())


def trust(folder):
    """Records that this user agrees to load plugins from `folder`."""
    _opdock.trust(os.path.abspath(_names.path("trust", "folder", folder)))
