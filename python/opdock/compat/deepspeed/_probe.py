# SPDX-License-Identifier: Apache-2.0
"""Probes this machine for builders: functions in libraries, build tools, the processor."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile

from opdock import _reports
from opdock.compat.deepspeed import _environment

#: library that DeepSpeed's ops check for -> its package's names in Debian and Fedora
_PACKAGES = {"aio": "libaio-dev (Debian), libaio-devel (Fedora)"}


def why_not_linked(function, libraries, folders=()):
    """Returns None if a program that calls the function links with the libraries, else the reason.

    Runs the C compiler in a temporary folder, with CFLAGS and LDFLAGS. The program is not executed.
    """
    compiler = (
        _environment.words("CC")
        or [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
    )
    if not compiler:
        return "found no C compiler in PATH, wanted cc, gcc or clang; install one or set CC"
    with tempfile.TemporaryDirectory(prefix="opdock-") as folder:
        source = os.path.join(folder, "probe.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(f"void {function}(void);\nint main(void) {{ {function}(); return 0; }}\n")
        command = [*compiler, *_environment.words("CFLAGS"), source, "-o", source[:-2]]
        command += [*_environment.words("LDFLAGS"), *(f"-L{path}" for path in folders)]
        command += [f"-l{name}" for name in libraries]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False, cwd=folder
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{compiler[0]} cannot be run: {error}"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line]
    names = " ".join(f"-l{name}" for name in libraries)
    packages = [_PACKAGES[name] for name in libraries if name in _PACKAGES]
    advice = f"; install {', '.join(packages)}" if packages else ""
    found = (lines or done.stderr.splitlines() or ["no message"])[0].replace(folder + "/", "")
    return (
        f"found no {function} by {names} ({found.strip()}), wanted the library and what links it"
        f"{advice}, or name its folder in CFLAGS and LDFLAGS"
    )


_COMPILERS = {"CXX": ("c++", "g++", "clang++"), "MESON": ("meson",), "NINJA": ("ninja",)}


def _are_in_path():
    """Returns whether a C++ compiler, Meson and Ninja are in PATH; starts none of them."""
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    path = os.pathsep.join(folders)
    named = {name: _environment.words(name)[:1] for name in _COMPILERS}
    return all(
        any(shutil.which(program, path=path) for program in named[name] or programs)
        for name, programs in _COMPILERS.items()
    )


def why_not_built(paths, is_rocm):
    """Returns None if the tools that compile the files exist, else the reason from `opdock
    doctor`."""
    wanted = [] if _are_in_path() else ["building from source"]
    if any(path.endswith((".cu", ".hip")) for path in paths):
        wanted.append("building with hipcc" if is_rocm else "building with nvcc")
    if not wanted:
        return None
    ways = {way["name"]: way for way in _reports.doctor()["ways"]}
    for name in wanted:
        way = ways.get(name, {"verdict": "ready"})
        if way["verdict"] == "not ready":
            reasons = [f"{r['text']}; {r['advice']}" for r in way["reasons"]]
            return f"{name}: {'; '.join(reasons) or way['needs'] or 'not possible here'}"
    return None


def cpu_flags():
    """Returns the set of the processor's features by Linux's names; empty if unknown."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip().lower() in ("flags", "features"):
                    return set(value.split())
    except OSError:
        pass
    return set()


def cpu_arch():
    """Returns the compiler's argument for this processor."""
    machine = platform.machine()
    if machine.startswith("ppc"):
        return "-mcpu=native"
    return "-march=rv64gc" if machine.startswith("riscv64") else "-march=native"


def simd_width():
    """Returns the define by which DeepSpeed's sources choose their vector instructions."""
    machine, flags = platform.machine(), cpu_flags()
    if machine == "x86_64":
        if "avx512f" in flags:
            return "-D__AVX512__"
        return "-D__AVX256__" if "avx2" in flags else "-D__SCALAR__"
    if machine == "aarch64":
        return "-D__SVE__" if "sve" in flags else "-D__NEON__"
    return "-D__SCALAR__"
