# SPDX-License-Identifier: Apache-2.0
"""Makes shared objects with GPU code, and wheels of them, for tests."""

import os
import shutil
import struct
import subprocess
import zipfile

import pytest


def cubin(arch, toolkit=126):
    """Returns a cubin's header as CUDA 12 writes it; readers look at nothing else. toolkit: 126 is
    12.6."""
    flags = arch << 16 | 0x500 | arch
    head = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, toolkit, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)
    return head + bytes(64)


def fat_binary(archs, toolkit=126):
    """Returns nvcc's container (fat binary), uncompressed, with one cubin for each architecture."""
    entries = b""
    for arch in archs:
        image = cubin(arch, toolkit)
        head = struct.pack("<HHIQ", 2, 0x101, 64, len(image)) + bytes(12) + struct.pack("<I", arch)
        entries += head + bytes(8) + struct.pack("<Q", 0x11) + bytes(16) + image
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def library(path, *, archs=(), toolkit=126, source="int found(void) { return 1; }", flags=()):
    """Compiles a shared object whose fat binary has cubins for `archs`. Returns its bytes."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    if archs:
        container = path.with_suffix(".fatbin")
        container.write_bytes(fat_binary(archs, toolkit))
        source += (
            '\n__asm__(".section .nv_fatbin, \\"a\\"\\n.balign 8\\n'
            f'.incbin \\"{container}\\"\\n.previous\\n");\n'
        )
    source_file = path.with_suffix(".c")
    source_file.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, source_file, *flags], check=True)
    for made in (source_file, path.with_suffix(".fatbin")):
        made.unlink(missing_ok=True)
    return path.read_bytes()


def wheel(path, files, *, name=None, version="1.0", requires=()):
    """Writes a wheel with these members ({name: bytes}). path: the file, or the folder for it."""
    name = name or "made"
    if path.suffix != ".whl":
        path = path / f"{name}-{version}-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(lines) + "\n\n")
        archive.writestr(f"{name}-{version}.dist-info/RECORD", "")
    return path


def install(site, name, files, *, version="1.0", record=True, requires=()):
    """Installs a package into the folder `site` as an installer such as pip leaves it."""
    lines = []
    for member, content in files.items():
        target = site / member
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        lines.append(f"{member},,")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines_of_metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines_of_metadata += [f"Requires-Dist: {one}" for one in requires]
    (info / "METADATA").write_text("\n".join(lines_of_metadata) + "\n")
    if record:
        (info / "RECORD").write_text("\n".join(lines) + "\n")
    else:
        tops = sorted({member.split(os.sep)[0].split(".")[0] for member in files})
        (info / "top_level.txt").write_text("\n".join(tops) + "\n")
