# SPDX-License-Identifier: Apache-2.0
"""Random graphs of libraries: dependencies, folders, and definitions with versions.

Each library is linked against stand-ins of its dependencies, which define everything, in the
versions of the time of linking. The libraries found at run time may define less, in other versions,
or be no libraries at all. By hand, `made_graph.py OPDOCK FIRST_SEED COUNT` prints the graphs whose
verdict is not what the loader does."""

import os
import random
import sys
import tempfile
from pathlib import Path

SYMBOLS = [*(f"s{index}" for index in range(6)), "tls"]
FOLDERS = ["d0", "d1", "d2"]


def version_script(box, layout):
    """Returns the linker's arguments for {symbol: version}; none for a library without versions."""
    if not layout:
        return []
    nodes = {}
    for symbol, version in layout.items():
        nodes.setdefault(version, []).append(symbol)
    text = "\n".join(f"{v} {{ global: {'; '.join(nodes[v])}; }};" for v in sorted(nodes))
    return [box.script(text)]


def layout_of(rng):
    """Returns {symbol: version}, or an empty dict."""
    return {s: rng.choice(["V_1", "V_2"]) for s in SYMBOLS} if rng.random() < 0.6 else {}


def definition(rng, symbol):
    # A linker wants all definitions and references of one symbol to be thread-local.
    if symbol == "tls":
        return "__thread long tls;"
    return rng.choices(
        [
            f"void {symbol}(void) {{}}",
            f"__attribute__((weak)) void {symbol}(void) {{}}",
            f"long {symbol} = 1;",
            f"static void f_{symbol}(void) {{}}"
            f"static void* r_{symbol}(void) {{ return f_{symbol}; }}"
            f'void {symbol}(void) __attribute__((ifunc("r_{symbol}")));',
            f'__attribute__((visibility("hidden"))) void {symbol}(void) {{}}',
        ],
        [20, 4, 4, 2, 1],
    )[0]


def reference(rng, symbol):
    if symbol == "tls":
        model = rng.choice(["global-dynamic", "initial-exec"])
        return (
            f'extern __thread long tls __attribute__((tls_model("{model}")));'
            "long* at_tls(void) { return &tls; }"
        )
    return rng.choices(
        [
            f"void {symbol}(void); void call_{symbol}(void) {{ {symbol}(); }}",
            f"extern char {symbol}; char* at_{symbol} = &{symbol};",
            f"__attribute__((weak)) extern char {symbol}; char* at_{symbol} = &{symbol};",
            f'__attribute__((tls_model("initial-exec"))) static __thread char t_{symbol}[400];'
            f"char* at_{symbol}(void) {{ return t_{symbol}; }}",
        ],
        [8, 6, 2, 1],
    )[0]


def break_it(rng, path):
    """Damages a copy of a library, or replaces or removes it."""
    kind = rng.randrange(5)
    if kind == 0:
        path.write_text("no library\n" * 100)
    elif kind == 1:
        path.write_bytes(path.read_bytes()[: rng.choice([0, 30, 100, 600])])
    elif kind == 2:
        data = bytearray(path.read_bytes())
        data[18] = 183  # e_machine
        path.write_bytes(data)
    else:
        path.unlink()


def options(rng):
    """Returns lib()'s arguments for flags that a linker can set."""
    marks = [
        "-Wl,-Bsymbolic",
        "-Wl,-z,nodelete",
        "-Wl,-z,interpose",
        "-Wl,-z,nodefaultlib",
        "-Wl,--hash-style=sysv",
        "-Wl,-z,nodlopen",
        "-Wl,-f,lib1.so",
        "-Wl,-F,lib2.so",
    ]
    return [mark for mark in marks if rng.random() < 0.03]


def place_more(rng, box, path, name):
    """Places other files with a library's name elsewhere: damaged copies, links, variants."""
    if rng.random() < 0.2:
        other = box.path(f"{rng.choice(FOLDERS)}/{name}")
        if not other.exists():
            other.write_bytes(path.read_bytes())
            break_it(rng, other)
    if rng.random() < 0.1:
        other = box.path(f"{rng.choice(FOLDERS)}/{name}")
        if not other.exists():
            os.symlink(path, other)
    if rng.random() < 0.1:
        level = rng.choice(["x86-64-v2", "x86-64-v3", "x86-64-v4", "other"])
        other = box.path(f"{path.parent.name}/glibc-hwcaps/{level}/{name}")
        other.write_bytes(path.read_bytes())
        if rng.random() < 0.5:
            break_it(rng, other)


def search(rng):
    """Returns lib()'s arguments for an RPATH, a RUNPATH or neither."""
    folders = rng.sample(FOLDERS, rng.randint(2, 3))
    path = ":".join(f"$ORIGIN/../{folder}" for folder in folders)
    return rng.choices([{}, {"rpath": path}, {"runpath": path}], [1, 5, 5])[0]


def graph(box, seed):
    """Makes the graph of a seed; returns the path of the library to open."""
    rng = random.Random(seed)
    count = rng.randint(2, 6)
    names = [f"lib{index}.so" for index in range(count)]
    then = {name: layout_of(rng) for name in names}
    # Some libraries were linked under another library's name, or under a name that no file has.
    names_then = {
        n: n if rng.random() < 0.95 else rng.choice([*names, "libelse.so"]) for n in names
    }
    everything = "\n".join(f"void {symbol}(void) {{}}" for symbol in SYMBOLS[:-1])
    everything += "\n__thread long tls;"
    for name in names:
        box.lib(
            f"stubs/{name}",
            everything,
            "-nostdlib",
            *version_script(box, then[name]),
            soname=names_then[name],
        )
    for number, name in enumerate(names):
        others = [other for other in names if other != name]
        needs = rng.sample(others, rng.randint(1 if number == 0 else 0, min(3, len(others))))
        own = {symbol for symbol in SYMBOLS if rng.random() < 0.85}
        if number == 0:
            own = set()
        wanted = [s for s in SYMBOLS if s not in own and rng.random() < 0.25]
        code = [definition(rng, symbol) for symbol in sorted(own)]
        code += [reference(rng, symbol) for symbol in wanted]
        layout = then[name] if rng.random() < 0.9 else layout_of(rng)
        layout = {symbol: version for symbol, version in layout.items() if symbol in own}
        home = FOLDERS[0] if number == 0 else rng.choice(FOLDERS)
        path = box.lib(
            f"{home}/{name}",
            "\n".join(code),
            "-nostdlib",
            *version_script(box, layout),
            *options(rng),
            soname=names_then[name],
            needs=[f"stubs/{need}" for need in needs],
            **search(rng),
        )
        if number:
            place_more(rng, box, path, name)
        if number and rng.random() < 0.04:
            break_it(rng, path)
    return box.folder / FOLDERS[0] / names[0]


def main(command, first, count):
    from loader import Loader
    from made import compare
    from opdock_inspect import Inspector

    inspect = Inspector(command)
    counts = {}
    with tempfile.TemporaryDirectory() as top:
        loader = Loader(top)
        for seed in range(first, first + count):
            what, words = compare(
                lambda box, seed=seed: graph(box, seed), Path(top, str(seed)), loader, inspect
            )
            outcome = f"{what}: {words.split(' | ')[0].split()[1]}"
            counts[outcome] = counts.get(outcome, 0) + 1
            if what != "right":
                print(f"{what:<12} graph-{seed}: {words}", flush=True)
    print(counts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
