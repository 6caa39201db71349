# SPDX-License-Identifier: Apache-2.0
"""Unpacks wheels, and finds the native files in them."""

import os
import zipfile
from pathlib import Path, PurePosixPath

# Suffixes of native files that are not ELF.
NATIVE_NAMES = (".so", ".dll", ".pyd", ".dylib", ".a", ".o", ".lib", ".exe")
MAX_BYTES = 12 << 30


# Destinations for the folders of NAME.data, relative to the environment's folder.
SITE = "lib/python3/site-packages"
SCHEMES = {"purelib": SITE, "platlib": SITE, "scripts": "bin", "data": "."}


def installed_path(name):
    """Returns the path of a wheel's member once installed, relative to the environment's folder."""
    parts = PurePosixPath(name).parts
    if parts[0].endswith(".data") and parts[1] in SCHEMES:
        return str(PurePosixPath(SCHEMES[parts[1]], *parts[2:]))
    return str(PurePosixPath(SITE, *parts))


def unpack(wheel, folder):
    """Unpacks a wheel into an environment, as an installer lays it out.

    Members that would be outside `folder` are refused (ValueError), links are written as files."""
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if sum(member.file_size for member in members) > MAX_BYTES:
            raise ValueError(f"{wheel}: unpacks to more than {MAX_BYTES >> 30} GiB")
        for member in members:
            parts = PurePosixPath(member.filename).parts
            if not parts or parts[0] == "/" or ".." in parts:
                raise ValueError(f"{wheel}: a member lies outside: {member.filename!r}")
            path = Path(folder, installed_path(member.filename))
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as target:
                while piece := source.read(1 << 20):
                    target.write(piece)


def native_files(folder):
    """Returns the paths of files that are ELF or have the name of a native file, sorted."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with open(path, "rb") as file:
                is_elf = file.read(4) == b"\x7fELF"
            if is_elf or path.suffix in NATIVE_NAMES or ".so." in name:
                found.append(path)
    return sorted(found)
