# SPDX-License-Identifier: Apache-2.0
"""Which CUDA and ROCm are here, and whether torch's goes with them. Starts no CUDA."""

import functools
import os
import re
import subprocess
from pathlib import Path

from opdock._errors import IncompatibleError, NotFoundError
from opdock.compat.deepspeed._environment import is_on
from opdock.compat.deepspeed._say import say_once


class MissingCUDAException(NotFoundError):
    """No nvcc, or a torch without CUDA."""


class CUDAMismatchException(IncompatibleError):
    """nvcc and torch are for different major versions of CUDA."""


_PLACES = ("PATH", "CUDA_HOME", "CUDA_PATH", "CUDACXX", "ROCM_PATH", "HIPCXX")


@functools.lru_cache(maxsize=4)
def _tools(_):
    import opdock

    found = opdock.doctor()["tools"]
    return {one["name"]: (one["path"], one["version"]) for one in found if one["path"]}


def tool(name):
    """(path, version) of a tool as `opdock doctor` finds it; (None, None) if there is none.

    Asked once for each set of the variables that say where tools are: it starts some of them.
    """
    return _tools(tuple(map(os.environ.get, _PLACES))).get(name, (None, None))


@functools.lru_cache(maxsize=8)
def _ask(program, question):
    """What the program prints, asked once; an empty text if it cannot be run."""
    try:
        done = subprocess.run(
            [program, question], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def installed_cuda_version(name=""):
    """(major, minor) of the nvcc that a build would use. name: of the op, for the message.

    Raises MissingCUDAException if there is none, or none that says its version.
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
    """(major, minor) of the CUDA that torch was built for; None without CUDA or without torch."""
    try:
        import torch
    except ImportError:
        return None
    numbers = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def assert_no_cuda_mismatch(name=""):
    """True if what nvcc makes goes with torch: the same major version, which keeps its interface.

    Another minor version is said once. Raises CUDAMismatchException for another major version,
    unless DS_SKIP_CUDA_CHECK=1, and MissingCUDAException where there is nothing to compare.
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


def is_rocm_pytorch():
    """Whether torch is built for ROCm."""
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
    """(major, minor) of the ROCm here, (0, 0) if there is none. Reads files, starts nothing."""
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
    """What nvcc compiles for: {(major, minor)}; empty if it does not say."""
    text = _ask(nvcc, "--list-gpu-arch")
    numbers = (int(found) for found in re.findall(r"compute_(\d+)\b", text))
    return frozenset(divmod(number, 10) for number in numbers)
