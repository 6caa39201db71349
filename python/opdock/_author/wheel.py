# SPDX-License-Identifier: Apache-2.0
"""Implements `opdock wheel PATH`: packs a built plugin as a Python package that announces it
(docs/guide/python.md)."""

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

#: ELF machine numbers -> names in wheel tags.
MACHINES = {62: "x86_64", 183: "aarch64"}
#: Libraries that every distribution with the glibc of a manylinux tag has (PEP 600).
LIBRARIES = {"libc", "libm", "libdl", "libpthread", "librt", "libgcc_s", "libstdc++", "ld-linux"}
#: For each prefix of symbol versions: (last version number, N), where 2.N is the oldest glibc of
#: distributions that have versions up to that number.
OLDEST = {
    "GLIBCXX_3.4.": [
        (19, 17),
        (22, 24),
        (25, 28),
        (28, 31),
        (29, 34),
        (30, 35),
        (32, 38),
        (33, 39),
    ],
    "CXXABI_1.3.": [(7, 17), (10, 24), (11, 28), (12, 31), (13, 34), (14, 38), (15, 39)],
    "GCC_": [(4, 17), (7, 28), (12, 35), (13, 38), (14, 39)],
}


def glibc_for(version):
    """Returns N of the oldest glibc 2.N of distributions with this symbol version; None if
    unknown."""
    if found := re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", version):
        return max(int(found[1]), 17)
    if version in ("GLIBCXX_3.4", "CXXABI_1.3", "CXXABI_FLOAT128"):
        return 17
    for prefix, known in OLDEST.items():
        if version.startswith(prefix):
            number = int(version[len(prefix) :].split(".")[0])
            return next((glibc for most, glibc in known if number <= most), None)
    return None


def platform_tag(report):
    """Returns the platform tag for a file's inspect() report, and why it is no manylinux tag or
    None."""
    arch = MACHINES[report["machine"]]
    for library in report["needed"]:
        if re.match(r"ld-linux|[^.]*", library)[0] not in LIBRARIES:
            return f"linux_{arch}", f"it needs {library}, which not every distribution has"
    oldest = 17
    for version in report["symbol_versions"]:
        glibc = glibc_for(version)
        if glibc is None:
            return f"linux_{arch}", f"it needs the symbol version {version}"
        oldest = max(oldest, glibc)
    return f"manylinux_2_{oldest}_{arch}", None


def python_tag(report):
    """Returns this Python's tag for a plugin that calls Python's C API, else that of any Python
    3."""
    if any(re.match(r"_?Py[A-Z_]", name) for name in report["undefined"]):
        cpython = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        return f"{cpython}-{cpython}"
    return "py3-none"


def digest(data):
    text = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"sha256={text},{len(data)}"


def write(plugin, report, out):
    """Writes the wheel and returns its path. plugin: the built file; report: what inspect()
    returned; out: a folder, which is created if needed. The same plugin gives the same bytes."""
    note = report["note"]
    package = f"opdock_plugin_{note['name']}"
    version = note["version"]
    platform, problem = platform_tag(report)
    tag = f"{python_tag(report)}-{platform}"
    info = f"{package}-{version}.dist-info"
    ops = ", ".join(report["ops"])
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {package.replace('_', '-')}",
        f"Version: {version}",
        f"Summary: The ops {ops} for Opdock",
        *([f"License: {note['license']}"] if note.get("license") else []),
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: opdock", "Root-Is-Purelib: false", f"Tag: {tag}"]
    entry = ["[opdock.plugins]", f"{note['name']} = {package}"]
    files = {
        f"{package}/__init__.py": f'"""The ops {ops}, which `import opdock` finds."""\n'.encode(),
        f"{package}/{note['name']}.so": Path(plugin).read_bytes(),
        f"{info}/METADATA": "\n".join([*metadata, ""]).encode(),
        f"{info}/WHEEL": "\n".join([*wheel, ""]).encode(),
        f"{info}/entry_points.txt": "\n".join([*entry, ""]).encode(),
    }
    record = [f"{name},{digest(data)}" for name, data in files.items()] + [f"{info}/RECORD,,", ""]
    files[f"{info}/RECORD"] = "\n".join(record).encode()
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{package}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name)  # dated 1980: the same bytes at any time
            member.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)
    print(path)
    if problem:
        print(f"Only for machines like this one ({platform}): {problem}.")
    return path
