# SPDX-License-Identifier: Apache-2.0
"""A folder in which small libraries are made with the C compiler and patchelf."""

import subprocess
from pathlib import Path

from elf_edit import Elf


class Box:
    """Makes files below `folder`. Names of libraries are paths relative to it."""

    def __init__(self, folder, compiler="cc"):
        self.folder = Path(folder)
        self.compiler = compiler

    def path(self, name):
        """Returns the path of a file in the box, after making its folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def run(self, *command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stderr}{done.stdout}")
        return done.stdout

    def lib(self, name, code="", *words, soname=None, needs=(), rpath=None, runpath=None):
        """Makes a shared object of C code; `needs` are paths of libraries in the box, linked by
        path but named by their sonames. The object lists all of them, even those of which it uses
        nothing."""
        path = self.path(name)
        source = path.with_suffix(path.suffix + ".c")
        source.write_text(code + "\n")
        command = [self.compiler, "-shared", "-fPIC", "-O1", "-w", "-o", path, source]
        command += ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
        command += [f"-Wl,-soname,{soname or path.name}"] if soname != "" else []
        if rpath is not None:
            command += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"]
        if runpath is not None:
            command += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"]
        self.run(*command, *words, *[self.folder / need for need in needs])
        return path

    def script(self, text):
        """Returns the linker's argument for a version script with this text."""
        path = self.path(f"script-{len(list(self.folder.glob('script-*')))}.map")
        path.write_text(text)
        return f"-Wl,--version-script={path}"

    def stub(self, soname, versions):
        """Makes a library that only the linker sees, in a folder of its own: {version:
        [function…]}."""
        code = "\n".join(f"void {f}(void) {{}}" for names in versions.values() for f in names)
        text = "\n".join(f"{v} {{ global: {'; '.join(n)}; }};" for v, n in versions.items())
        return self.lib(f"stubs/{soname}", code, "-nostdlib", self.script(text), soname=soname)

    def patchelf(self, path, *words):
        self.run("patchelf", *words, path)
        return path

    def edit(self, name):
        return Elf(self.folder / name)
