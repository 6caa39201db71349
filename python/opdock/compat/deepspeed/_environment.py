# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's variables: which count here, and which do not, said once."""

import os
import shlex

from opdock.compat.deepspeed._say import say_once

#: variable -> what it does here, for reports
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
    """Whether the variable is set to something other than 0 or nothing."""
    return os.environ.get(name, "").strip() not in ("", "0")


def number(name):
    """The whole number from 1 that the variable has; None for none, another text said once."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    say_once(name, f"{name}={text} is not used: found no whole number from 1")
    return None


def words(name):
    """The arguments that a variable such as CFLAGS has."""
    try:
        return shlex.split(os.environ.get(name, ""))
    except ValueError as error:
        say_once(name, f"{name} is not used: {error}")
        return []


def wants_build_ahead(build_var):
    """Whether DS_BUILD_X, or without it DS_BUILD_OPS, asks for the op ahead of time."""
    text = os.environ.get(build_var, os.environ.get("DS_BUILD_OPS", "0"))
    return text.strip() not in ("", "0")


def excluded():
    """The names of the ops that OPDOCK_DEEPSPEED_EXCLUDE leaves to DeepSpeed."""
    text = os.environ.get("OPDOCK_DEEPSPEED_EXCLUDE", "")
    return {name.strip() for name in text.split(",") if name.strip()}


def say_ignored():
    """Says once of each variable that is set and has no effect why not."""
    for name, why in IGNORED.items():
        if os.environ.get(name):
            say_once(name, f"{name}={os.environ[name]} is not used: {why}")


def in_use():
    """(variable, value, what it does or why it does nothing, whether it counts) of those set."""
    found = []
    names = [*HONOURED, *sorted(n for n in os.environ if n.startswith("DS_BUILD_")), *IGNORED]
    for name in dict.fromkeys(names):
        if os.environ.get(name):
            text = (
                HONOURED.get(name) or IGNORED.get(name) or "installs the op ahead of time, or not"
            )
            found.append((name, os.environ[name], text, name not in IGNORED))
    return found
