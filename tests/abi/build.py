# SPDX-License-Identifier: Apache-2.0
"""Builds the ABI tests' plugins and programs with several compilers and header generations.

Writes `variants.txt` into the output folder, with one line each: "plugin NAME PATH", "program NAME
PATH" or "skipped NAME WHY". The older header lacks the last members of several extensible structs;
the newer header adds members to each that this host does not know.
"""

import argparse
import platform
import re
import shutil
import subprocess
from pathlib import Path

PACKED = "abi_axpy"


def structs(text):
    """Yields (name, body start, body end) of each struct that begins with struct_size."""
    for found in re.finditer(
        r"typedef struct (\w+) \{(\s*uint32_t struct_size;.*?)\n\} \1;", text, re.S
    ):
        yield found.group(1), found.start(2), found.end(2)


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def newer(text):
    """Appends a member to every extensible struct."""
    for _, _, end in reversed(list(structs(text))):
        text = text[:end] + "\n  uint64_t opdock_later[4];" + text[end:]
    return text


def older(text, names):
    """Removes from each struct as many last members as its name occurs in `names`."""
    for name, start, end in reversed(list(structs(text))):
        body = text[start:end].rstrip()
        for _ in range(names.count(name)):
            body = body[: body.rstrip(";").rfind(";") + 1]
        text = text[:start] + body + text[end:]
    return text


def headers(source, target, change):
    """Writes a folder of public headers with `change` applied to the C headers."""
    folder = target / "opdock"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (source / "opdock").iterdir():
        text = file.read_text()
        if file.suffix == ".h":
            text = change(without_comments(text))
        (folder / file.name).write_text(text)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pack", "include", "device", "map", "library", "out", "source"):
        parser.add_argument("--" + name, required=True, type=Path)
    parser.add_argument("--compiler", action="append", default=[], help="gcc=PATH, g++=…, clang=…")
    parser.add_argument("--sanitize", default="", help="what the library was built with")
    parser.add_argument("--sanitizer", help="whose runtime that is: gcc or clang")
    args = parser.parse_args()
    compilers = dict(one.split("=", 1) for one in args.compiler)
    source, include = args.source.resolve(), args.include.resolve()
    out = args.out.resolve() / "variants"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    lines = []
    machine = platform.machine()

    subprocess.run(
        [
            args.pack.resolve(),
            "--toml",
            source / "plugin.toml",
            "--out-dir",
            out,
            "--prefix",
            PACKED + ".",
            "--include",
            args.device.resolve(),
            "--toolchain",
            "test",
            "--cpu-arch",
            machine,
            "--cpu-level",
            "1" if machine == "x86_64" else "0",
            "--no-device",
        ],
        check=True,
    )
    generations = {
        "now": include,
        "newer": headers(include, out / "include-newer", newer),
        "older": headers(
            include,
            out / "include-older",
            lambda text: older(
                text,
                [
                    "opdock_generator",
                    "opdock_object",
                    "opdock_device_facts",
                    "opdock_host",
                    "opdock_launch",
                    *["opdock_plan"] * 3,  # removes room, flags and state
                ],
            ),
        ),
        "older-program": headers(
            include,
            out / "include-older-program",
            lambda text: older(
                text,
                # opdock_plan becomes that of the first draft. opdock_call_options loses its last
                # three members, wants_deterministic, allows_tf32 and keeper.
                [
                    *["opdock_call_options"] * 3,
                    "opdock_options",
                    "opdock_generator",
                    *["opdock_plan"] * 2,
                ],
            ),
        ),
        "no-init": headers(
            include, out / "include-no-init", lambda text: older(text, ["opdock_plugin"])
        ),
    }

    def run(kind, name, compiler, flags, files, generation, output):
        if compiler not in compilers:
            lines.append(f"skipped {name} {compiler} was not found")
            return
        if "-fuse-ld=lld" in flags and not shutil.which("ld.lld"):
            lines.append(f"skipped {name} ld.lld was not found")
            return
        command = [
            *compilers[compiler].split(),
            *flags,
            "-I",
            generations[generation],
            *files,
            "-o",
            output,
        ]
        subprocess.run([str(part) for part in command], check=True, cwd=out)
        lines.append(f"{kind} {name} {output}")

    entry = out / (PACKED + ".entry.c")

    # The entry and the note are compiled as separate objects, always by the C compiler, because the
    # sources may be in C++.
    def plugin(name, compiler, flags, file, generation="now"):
        folder = out / name
        folder.mkdir()
        c_compiler = {"g++": "gcc", "clang++": "clang"}.get(compiler, compiler)
        if c_compiler not in compilers:
            lines.append(f"skipped {name} {c_compiler} was not found")
            return
        entry_c = entry
        if generation == "no-init":
            entry_c = folder / "entry.c"
            entry_c.write_text(re.sub(r"\n *\.init = .*", "", entry.read_text()))
        objects = []
        c_flags = [f for f in flags if f != "-fuse-ld=lld" and not f.startswith("-std=")]
        for part in (entry_c, out / (PACKED + ".note.S")):
            objects.append(folder / (part.name + ".o"))
            subprocess.run(
                [
                    *compilers[c_compiler].split(),
                    *c_flags,
                    "-fPIC",
                    "-I",
                    generations[generation],
                    "-c",
                    part,
                    "-o",
                    objects[-1],
                ],
                check=True,
                cwd=out,
            )
        run(
            "plugin",
            name,
            compiler,
            [
                *flags,
                "-fPIC",
                "-shared",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                f"-Wl,--version-script={args.map.resolve()}",
                "-Wl,-z,defs",
                "-Wl,-z,noexecstack",
            ],
            [source / file, *objects],
            generation,
            folder / (PACKED + ".so"),
        )

    plugin("gcc-O0", "gcc", ["-O0"], "axpy.c")
    plugin("gcc-lto", "gcc", ["-O2", "-flto"], "axpy.c")
    plugin("clang-O0", "clang", ["-O0"], "axpy.c")
    plugin("clang-lto", "clang", ["-O2", "-flto", "-fuse-ld=lld"], "axpy.c")
    plugin("g++-O0", "g++", ["-O0", "-std=c++17"], "axpy.cc")
    plugin("g++-lto", "g++", ["-O2", "-flto", "-std=c++20"], "axpy.cc")
    plugin("clang++-O0", "clang++", ["-O0", "-std=c++17"], "axpy.cc")
    plugin("clang++-lto", "clang++", ["-O2", "-flto", "-fuse-ld=lld", "-std=c++17"], "axpy.cc")
    plugin("older", "gcc", ["-O1", "-DOPDOCK_TEST_SMALLER"], "axpy.c", "older")
    plugin("newer", "gcc", ["-O1"], "axpy.c", "newer")
    plugin("newer-cpp", "g++", ["-O1", "-std=c++17"], "axpy.cc", "newer")
    plugin("no-init", "gcc", ["-O1", "-DOPDOCK_TEST_NO_INIT"], "axpy.c", "no-init")

    def program(name, compiler, flags, file, generation="now"):
        library = args.library.resolve()
        sanitize = []
        if args.sanitize:
            # The program must link the sanitizer's runtime, and it must be the library's.
            family = "clang" if "clang" in compiler else "gcc"
            if family != args.sanitizer:
                lines.append(f"skipped {name} the library has a sanitizer of {args.sanitizer}")
                return
            sanitize = [f"-fsanitize={args.sanitize}"]
            # the library's checks of C++ types are in the runtime's C++ part
            if compiler == "clang":
                sanitize += ["-fsanitize-link-c++-runtime", "-lstdc++"]
        run(
            "program",
            name,
            compiler,
            [*flags, *sanitize, "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
            [source / file, library, f"-Wl,-rpath,{library.parent}"],
            generation,
            out / name,
        )

    program("c", "gcc", ["-std=c11", "-O1"], "host_c.c")
    program("c-clang", "clang", ["-std=c11", "-O1"], "host_c.c")
    program("c-older", "gcc", ["-std=c11", "-O1", "-DOPDOCK_TEST_SMALLER"], "host_c.c", "older-program")
    program("c-newer", "gcc", ["-std=c11", "-O1"], "host_c.c", "newer")
    program("cpp", "g++", ["-std=c++17", "-O1"], "host_cpp.cc")
    program("cpp-clang", "clang++", ["-std=c++20", "-O1"], "host_cpp.cc")
    (args.out / "variants.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
