# SPDX-License-Identifier: Apache-2.0
"""Finds the CUDA and ROCm versions here and compares them with torch's. Does not start CUDA."""

import functools
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from opdock import _reports
from opdock._errors import IncompatibleError, NotFoundError
from opdock.compat.deepspeed._environment import is_on
from opdock.compat.deepspeed._say import say_once


class MissingCUDAException(NotFoundError):
    """nvcc is missing, or torch has no CUDA."""


class CUDAMismatchException(IncompatibleError):
    """nvcc and torch are for different major versions of CUDA."""


_PLACES = ("PATH", "CUDA_HOME", "CUDA_PATH", "CUDACXX", "ROCM_PATH", "HIPCXX")


@functools.lru_cache(maxsize=4)
def _tools(_):
    found = _reports.doctor()["tools"]
    return {one["name"]: (one["path"], one["version"]) for one in found if one["path"]}


def tool(name):
    """Returns (path, version) of a tool as `opdock doctor` finds it; (None, None) if there is none.

    Cached for each value of the variables that say where tools are, since the search starts some of
    the tools.
    """
    return _tools(tuple(map(os.environ.get, _PLACES))).get(name, (None, None))


@functools.lru_cache(maxsize=8)
def _ask(program, question):
    """Returns the program's output; an empty text if it cannot be run. Cached."""
    try:
        done = subprocess.run(
            [program, question], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def installed_cuda_version(name=""):
    """Returns (major, minor) of the nvcc that a build would use. name: the op's, for the message.

    Raises MissingCUDAException if there is no nvcc, or if it does not print its version.
    """
    path, version = tool("nvcc")
    said = re.search(r"release (\d+\.\d+)", _ask(path, "--version")) if path else None
    numbers = re.match(r"(\d+)\.(\d+)", said[1] if said else version or "")
    if path is None or numbers is None:
        found = "no nvcc" if path is None else f"{path}, which does not say its version"
        home = os.environ.get("CUDA_HOME")
        raise MissingCUDAException(
            f"{name or 'a CUDA op'}: found {found}{f' (CUDA_HOME={home})' if home else ''}, wanted "
            "the CUDA Toolkit's nvcc; install the toolkit or name its folder in CUDA_HOME"
        )
    return int(numbers[1]), int(numbers[2])


def torch_cuda_version():
    """Returns (major, minor) of the CUDA that torch was built for; None without CUDA or without
    torch."""
    try:
        import torch
    except ImportError:
        return None
    numbers = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def assert_no_cuda_mismatch(name=""):
    """Returns True if nvcc's output works with torch: within a major version CUDA is compatible.

    Prints a line once for another minor version. Raises CUDAMismatchException for another major
    version, unless DS_SKIP_CUDA_CHECK=1, and MissingCUDAException if there is nothing to compare.
    """
    nvcc, torch = installed_cuda_version(name), torch_cuda_version()
    if torch is None:
        raise MissingCUDAException(
            f"{name or 'a CUDA op'}: found a torch without CUDA, wanted one that was built for "
            f"CUDA {nvcc[0]}; install that, or build for the CPU"
        )
    if nvcc == torch:
        return True
    has, was = (f"{major}.{minor}" for major, minor in (nvcc, torch))
    if nvcc[0] == torch[0]:
        say_once(
            "minor", f"nvcc {has} is used with torch for CUDA {was}: minor versions go together"
        )
        return True
    if is_on("DS_SKIP_CUDA_CHECK"):
        say_once("major", f"DS_SKIP_CUDA_CHECK: nvcc {has} is used with torch for CUDA {was}")
        return True
    raise CUDAMismatchException(
        f"{name or 'a CUDA op'}: Installed CUDA version {has} does not match the version torch was "
        f"compiled with {was}: found nvcc {has}, wanted {torch[0]}.x; name such a toolkit in "
        "CUDA_HOME, install a torch for this one, or set DS_SKIP_CUDA_CHECK=1 if the op does not "
        "link libtorch's CUDA part"
    )


class _Minors(Sequence):
    """The versions of CUDA with one major number, "12.0" to "12.9", as an element of
    cuda_minor_mismatch_ok. NVIDIA promises that the minor versions go together, so that whatever
    begins with "12." is in it."""

    def __init__(self, major):
        self._major = major

    def __contains__(self, version):
        return re.fullmatch(rf"{self._major}\.\d+", str(version)) is not None

    def __getitem__(self, index):
        listed = [f"{self._major}.{minor}" for minor in range(len(self))]
        return listed[index]

    def __len__(self):
        return 10  # no major version has had more minor ones

    def __repr__(self):
        return repr(list(self))


class _ByRule(Mapping):
    """A mapping with the name and the shape of DeepSpeed's table of versions of CUDA that go
    together, {12: ["12.0", …]}. Any major version from 10 on is in it, also one that is newer than
    this file."""

    def __getitem__(self, major):
        if not isinstance(major, int) or major < 10:
            raise KeyError(major)
        return _Minors(major)

    def __iter__(self):
        return iter(range(10, 14))

    def __len__(self):
        return 4

    def __repr__(self):
        return repr(dict(self))


cuda_minor_mismatch_ok = _ByRule()


def is_rocm_pytorch():
    """Returns whether torch is built for ROCm."""
    try:
        import torch
    except ImportError:
        return False
    return getattr(torch.version, "hip", None) is not None


def _rocm_folders():
    for name in ("ROCM_HOME", "ROCM_PATH", "HIP_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield Path("/opt/rocm")


def installed_rocm_version():
    """Returns (major, minor) of the installed ROCm; (0, 0) if there is none. Reads files first,
    then asks `opdock doctor` for hipcc's version."""
    for folder in _rocm_folders():
        for name in ("version", "version-rocm"):
            try:
                text = (folder / ".info" / name).read_text()
            except OSError:
                continue
            numbers = re.match(r"(\d+)\.(\d+)", text)
            if numbers:
                return int(numbers[1]), int(numbers[2])
    for header in (
        *(f / "include/rocm-core/rocm_version.h" for f in _rocm_folders()),
        Path("/usr/include/rocm_version.h"),
    ):
        try:
            found = dict(re.findall(r"ROCM_VERSION_(MAJOR|MINOR)\s+(\d+)", header.read_text()))
        except OSError:
            continue
        if len(found) == 2:
            return int(found["MAJOR"]), int(found["MINOR"])
    _, version = tool("hipcc")
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def nvcc_archs(nvcc):
    """Returns the architectures that nvcc supports, {(major, minor)}; empty if it does not list
    them."""
    text = _ask(nvcc, "--list-gpu-arch")
    numbers = (int(found) for found in re.findall(r"compute_(\d+)\b", text))
    return frozenset(divmod(number, 10) for number in numbers)
