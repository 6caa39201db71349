# SPDX-License-Identifier: Apache-2.0
"""Reads files with readelf, ldd and cuobjdump."""

import dataclasses
import functools
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from loader import Answer

THIS_MACHINE = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}[platform.machine()]
CLEAN = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
# cuobjdump reads a whole file several times and keeps it in memory, so it is not run on larger
# files.
CUOBJDUMP_MAX_BYTES = 300 << 20


@dataclasses.dataclass
class Facts:
    """What readelf reports, with the names of `opdock inspect --json`."""

    machine: str = ""
    type: str = ""
    soname: str = ""
    rpath: str = ""
    runpath: str = ""
    needed: list = dataclasses.field(default_factory=list)
    versions: dict = dataclasses.field(default_factory=dict)  # library -> set of names
    undefined: set = dataclasses.field(default_factory=set)
    executable_stack: bool = False
    static_tls: bool = False
    unique_symbols: bool = False
    sections: set = dataclasses.field(default_factory=set)
    interpreter: bool = False

    @property
    def is_program(self):
        return self.type.startswith("EXEC") or "Executable" in self.type


def readelf(path):
    """Returns the Facts of an ELF file, or None if readelf fails or does not end."""
    command = ["readelf", "-W", "-h", "-l", "-S", "-d", "-V", "--dyn-syms", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, env=CLEAN, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return None
    facts = Facts()
    library = None
    part = ""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("Symbol table '.dynsym'"):
            part = "symbols"
        elif line.startswith("Version needs section"):
            part = "needs"
        elif line.startswith(("Version definition section", "Version symbols section")):
            part = "versions"
        elif line.startswith("Program Headers:"):
            part = "segments"
        elif line.startswith("Dynamic section"):
            part = "dynamic"
        elif part == "symbols":
            read_symbol(line, facts)
        elif part == "needs":
            if found := re.search(r"Version: \d+  File: (\S+)  Cnt:", line):
                library = facts.versions.setdefault(found[1], set())
            elif found := re.search(r"Name: (\S+)  Flags:", line):
                library.add(found[1])
        elif found := re.match(r"\s+(Machine|Type):\s+(.*)", line):
            setattr(facts, found[1].lower(), found[2])
        elif part == "segments" and "Requesting program interpreter" in line:
            facts.interpreter = True
        elif part == "segments" and "GNU_STACK" in line:
            facts.executable_stack = "RWE" in line
        elif found := re.match(r"\s+\[\s*\d+\] (\S+)\s", line):
            facts.sections.add(found[1])
        elif found := re.search(r"\((NEEDED|SONAME|RPATH|RUNPATH)\)[^\[]*\[(.*)\]$", line):
            if found[1] == "NEEDED":
                facts.needed.append(found[2])
            else:
                setattr(facts, found[1].lower(), found[2])
        elif "(FLAGS)" in line and "STATIC_TLS" in line:
            facts.static_tls = True
    return facts


SYMBOL = re.compile(r"\s*\d+: [0-9a-f]+\s+\w+ \S+\s+(\S+|<[^>]*>: \d+)\s+\w+\s+(.*)")


def read_symbol(line, facts):
    if not (found := SYMBOL.match(line)):
        return
    binding, rest = found[1], re.sub(r"\[[^]]*\]\s*", "", found[2]).split()
    if len(rest) < 2:
        return
    if rest[0] == "UND":
        if binding != "LOCAL":
            facts.undefined.add(rest[1].split("@")[0])
    # The number means this only if EI_OSABI is System V.
    elif binding == "UNIQUE" or binding.endswith(": 10"):
        facts.unique_symbols = True


@dataclasses.dataclass
class Resolution:
    missing: set = dataclasses.field(default_factory=set)  # libraries
    undefined: dict = dataclasses.field(default_factory=dict)  # file -> set of symbols
    versions: set = dataclasses.field(default_factory=set)  # "version (library)"
    with_libc: bool = False  # the C library is loaded, as in every process that opens a file


UNDEFINED = re.compile(
    r"(?:undefined symbol: |symbol (?=\S+, version \S+ not defined in file ))([^\s,]+).*\((.*)\)"
)


def ldd(path, cwd):
    """Runs `ldd -r`; returns what it finds missing, or None if it fails (as it does for files that
    do not load)."""
    try:
        done = subprocess.run(
            ["ldd", "-r", str(path)],
            capture_output=True,
            cwd=cwd,
            timeout=120,
            env={**CLEAN, "HOME": str(cwd)},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    if "not a dynamic executable" in text or done.returncode < 0:
        return None
    found = Resolution(with_libc="libc.so.6 => /" in text)
    for line in text.splitlines():
        if match := re.match(r"\s*(\S+) => not found", line):
            found.missing.add(match[1])
        elif match := UNDEFINED.match(line):
            found.undefined.setdefault(os.path.realpath(match[2]), set()).add(match[1])
        elif match := re.search(r"(\S+): version `(\S+)' not found", line):
            found.versions.add(f"{match[2]} ({os.path.basename(match[1])})")
    return found


def start(path, facts, cwd):
    """Returns the Answer to whether a program would start. ldd gives it, because asking the program
    would run it."""
    if facts.machine != THIS_MACHINE:
        return Answer("refused", f"{path}: cannot open shared object file: for another machine")
    if not facts.interpreter:
        return Answer("loaded", "needs no loader")
    found = ldd(path, cwd)
    if found is None:
        return Answer("no-answer", "ldd says nothing")
    for library in found.missing:
        return Answer("refused", f"{library}: cannot open shared object file")
    for version in found.versions:
        return Answer("refused", f"version `{version.split()[0]}' not found")
    for symbols in found.undefined.values():
        return Answer("refused", f"undefined symbol: {min(symbols)}")
    return Answer("loaded")


@functools.cache
def cuobjdump():
    """Returns the path of cuobjdump, from the PATH or from the package nvidia-cuda-cuobjdump; else
    None."""
    import sysconfig

    places = Path(sysconfig.get_paths()["purelib"], "nvidia").glob("*/bin/cuobjdump")
    return shutil.which("cuobjdump") or next(map(str, places), None)


def cuda_images(path):
    """Returns {"sm_80", "compute_90", …} as cuobjdump lists them; None if it cannot be run."""
    if cuobjdump() is None or os.path.getsize(path) > CUOBJDUMP_MAX_BYTES:
        return None
    images = set()
    for option, kind in (("-lelf", r"sm_(\w+)\.cubin"), ("-lptx", r"(?:sm|compute)_(\w+)\.ptx")):
        try:
            done = subprocess.run(
                [cuobjdump(), option, str(path)],
                capture_output=True,
                text=True,
                timeout=120,
                errors="replace",
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0 and "No PTX file" not in done.stdout + done.stderr:
            return None
        prefix = "sm_" if option == "-lelf" else "compute_"
        images |= {prefix + arch for arch in re.findall(kind, done.stdout)}
    return images


def hip_images(path):
    """Returns the processors of the code objects whose bundle entries are in a file; None if
    bundles are compressed."""
    data = Path(path).read_bytes()
    if b"CCOB" in data:
        return None
    names = re.findall(rb"amdgcn-amd-amdhsa-{1,4}(gfx[0-9a-z-]+(?::\w+[+-])*)", data)
    return {name.decode() for name in names}
