#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lays out the build tree as an installation, by links: share/opdock, bin and libexec/opdock.

    build_tree.py SOURCE_ROOT BUILD_ROOT

Prints the folders of plugins/ that have a plugin.toml, one per line. After each folder's name come
the names of its files that are not part of its source (tests and Python's leftovers), separated by
tabs.
"""

import os
import sys
from pathlib import Path

# Maps the path of a program in an installation to its path in the build tree.
PROGRAMS = {
    "bin/opdock": "core/cli/opdock",
    "bin/opdock-pack": "core/pack/opdock-pack",
    "libexec/opdock/opdock-probe": "core/facts/opdock-probe",
    "libexec/opdock/opdock-guard": "core/build/opdock-guard",
    "libexec/opdock/opdock-compile": "core/jit/worker/opdock-compile",
    "libexec/opdock/opdock-soft-code": "core/softgpu/code/opdock-soft-code",
    "libexec/opdock/softgpu": "core/softgpu/driver",
}


def link(path, target):
    """Makes `path` a relative link to `target`, replacing whatever is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = os.path.relpath(target, path.parent)
    if path.is_symlink() and os.readlink(path) == text:
        return
    if path.is_symlink() or path.exists():
        path.unlink()
    path.symlink_to(text)


def is_no_source(name):
    return name.startswith(("test_", "bench_", ".")) or name in ("conftest.py", "__pycache__")


def main():
    source, build = (Path(argument).resolve() for argument in sys.argv[1:3])
    share = build / "share" / "opdock"
    link(share / "include", source / "core" / "include")
    link(share / "device", source / "core" / "device")
    link(share / "templates", source / "core" / "cli" / "templates")
    wrapper = share / "plugin-build"
    for name in ("meson.build", "meson_options.txt"):
        link(wrapper / name, source / "core" / "pack" / "plugin-build" / name)
    for name in ("meson.build", "opdock-plugin.map"):
        link(wrapper / "plugins" / name, source / "plugins" / name)
    for name, place in PROGRAMS.items():
        link(build / name, build / place)
    sources = share / "plugins-src"
    sources.mkdir(exist_ok=True)
    folders = sorted(path.parent for path in (source / "plugins").glob("*/plugin.toml"))
    for old in sources.iterdir():
        if old.name not in {folder.name for folder in folders}:
            old.unlink()
    for folder in folders:
        link(sources / folder.name, folder)
        others = sorted(path.name for path in folder.iterdir() if is_no_source(path.name))
        print("\t".join([folder.name, *others]))


if __name__ == "__main__":
    main()
