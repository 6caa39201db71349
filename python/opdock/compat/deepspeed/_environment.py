# SPDX-License-Identifier: Apache-2.0
"""Reads DeepSpeed's environment variables, and reports once those that have no effect here."""

import filecmp
import os
import shlex
import site
import sys

from opdock.compat.deepspeed._say import say_once

#: variable -> its effect here, for reports
HONOURED = {
    "DS_BUILD_OPS": "which ops setup.py installs ahead of time",
    "DS_SKIP_CUDA_CHECK": "1: nvcc may be of another major version than torch's CUDA",
    "DS_IGNORE_CUDA_DETECTION": "any value: an op is served also where the GPU here is not",
    "DS_NVCC_THREADS": "nvcc's --threads",
    "DS_DEBUG_CUDA_BUILD": "1: ptxas is verbose",
    "MAX_JOBS": "how many compilers run at once",
    "CUDA_HOME": "where nvcc is",
    "TORCH_CUDA_ARCH_LIST": "the architectures for nvcc, 9.0a too",
    "PYTORCH_ROCM_ARCH": "the processors for hipcc",
    "CFLAGS": "more arguments of the C++ compiler",
    "LDFLAGS": "more arguments of the linker",
    "OPDOCK_DEEPSPEED": "1: DeepSpeed uses these builders",
    "OPDOCK_DEEPSPEED_EXCLUDE": "ops that are left to DeepSpeed's own builders",
}

#: variable -> why it has no effect
IGNORED = {
    "TORCH_EXTENSIONS_DIR": "what is built is kept in Opdock's cache; OPDOCK_CACHE_DIR moves it",
    "DS_ENABLE_NINJA": "Opdock always builds with Ninja",
}


def is_on(name):
    """Returns whether the variable is set to anything other than 0 or an empty text."""
    return os.environ.get(name, "").strip() not in ("", "0")


def number(name):
    """Returns the variable's value, an integer from 1; None without one. Reports any other text
    once."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    say_once(name, f"{name}={text} is not used: found no whole number from 1")
    return None


def words(name):
    """Returns the list of arguments in a variable such as CFLAGS."""
    try:
        return shlex.split(os.environ.get(name, ""))
    except ValueError as error:
        say_once(name, f"{name} is not used: {error}")
        return []


def wants_build_ahead(build_var):
    """Returns whether DS_BUILD_X, or without it DS_BUILD_OPS, asks to build the op ahead of
    time."""
    text = os.environ.get(build_var, os.environ.get("DS_BUILD_OPS", "0"))
    return text.strip() not in ("", "0")


def excluded():
    """Returns the names of the ops that OPDOCK_DEEPSPEED_EXCLUDE leaves to DeepSpeed."""
    text = os.environ.get("OPDOCK_DEEPSPEED_EXCLUDE", "")
    return {name.strip() for name in text.split(",") if name.strip()}


def say_ignored():
    """Prints, once for each variable that is set and has no effect, why it has none."""
    for name, why in IGNORED.items():
        if os.environ.get(name):
            say_once(name, f"{name}={os.environ[name]} is not used: {why}")


def in_use():
    """Returns (variable, value, its effect or why it has none, whether it has one) for all that are
    set."""
    found = []
    names = [*HONOURED, *sorted(n for n in os.environ if n.startswith("DS_BUILD_")), *IGNORED]
    for name in dict.fromkeys(names):
        if os.environ.get(name):
            text = (
                HONOURED.get(name) or IGNORED.get(name) or "installs the op ahead of time, or not"
            )
            found.append((name, os.environ[name], text, name not in IGNORED))
    return found


#: the folder of a sitecustomize.py, which Python executes at startup if the folder is on PYTHONPATH
START_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")
# the folder that contains the package opdock
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


def _site_folders():
    folders = site.getsitepackages()
    return [*folders, site.getusersitepackages()] if site.ENABLE_USER_SITE else folders


def _path_folders():
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def start_hook():
    """Returns the file that makes Python read OPDOCK_DEEPSPEED at startup: opdock_deepspeed.pth in
    a site folder, or Opdock's sitecustomize.py on PYTHONPATH; None without one."""
    paths = [os.path.join(folder, "opdock_deepspeed.pth") for folder in _site_folders()]
    found = next(filter(os.path.isfile, paths), None)
    if found is not None:
        return found
    paths = [os.path.join(folder, "sitecustomize.py") for folder in _path_folders()]
    first = next(filter(os.path.isfile, paths), None)  # the one that Python executes
    ours = os.path.join(START_FOLDER, "sitecustomize.py")
    is_ours = first is not None and os.path.isfile(ours) and filecmp.cmp(first, ours, shallow=False)
    return first if is_ours else None


def serve_children():
    """Makes Python programs that this one starts read OPDOCK_DEEPSPEED at their startup, where no
    file does that yet, by PYTHONPATH. Returns a warning if they would not find the package."""
    if start_hook() is not None:
        return ""
    folders = map(os.path.realpath, [*_path_folders(), *_site_folders()])
    if os.path.realpath(_ROOT) not in folders:
        return (
            "OPDOCK_DEEPSPEED=1 counts only in programs that import opdock, and in no process that "
            f"they start: found opdock in {_ROOT}, wanted it in a folder on PYTHONPATH, or "
            "installed (pip install)"
        )
    os.environ["PYTHONPATH"] = os.pathsep.join([START_FOLDER, *_path_folders()])
    return ""


def says_without_hook():
    """Returns a warning if OPDOCK_DEEPSPEED=1 counts only from the first program on that imports
    opdock; an empty text if Python reads the variable at startup."""
    if start_hook() is not None:
        return ""
    return (
        "OPDOCK_DEEPSPEED=1 counts only in programs that import opdock, and in those that they "
        f"start: found no opdock_deepspeed.pth in {sys.prefix}'s site folders, wanted it there, as "
        "Python reads no .pth file of a folder on PYTHONPATH; install the package (pip install), "
        f"or put {START_FOLDER} on PYTHONPATH too"
    )
