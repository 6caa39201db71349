# SPDX-License-Identifier: Apache-2.0
"""A folder in which small libraries are made with the C compiler and patchelf."""

import hashlib
import subprocess
from pathlib import Path

from elf_edit import Elf

# Key of what a linked file depends on -> (its bytes, its mode). Hundreds of cases begin with the
# same few libraries, and most of their time went into the compiler.
_linked = {}


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
        self.link(path, [*command, *words, *[self.folder / need for need in needs]])
        return path

    def link(self, path, command):
        """Runs the command, which makes the file at `path`. If it has been run before beside the
        same files, its result is copied. Files outside of the box are known by their paths."""
        key = hashlib.sha256()
        for word in command:
            key.update(f"{str(word).replace(str(self.folder), '$BOX')}\n".encode())
        for file in sorted(self.folder.rglob("*")):
            key.update(f"{file.relative_to(self.folder)}\n".encode())
            if file.is_file():
                key.update(hashlib.sha256(file.read_bytes()).digest())
        key = key.digest()
        if key not in _linked:
            self.run(*command)
            _linked[key] = path.read_bytes(), path.stat().st_mode
            return
        if not path.is_symlink():  # the linker too replaces a file, and writes through a link
            path.unlink(missing_ok=True)
        path.write_bytes(_linked[key][0])
        path.chmod(_linked[key][1])

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
