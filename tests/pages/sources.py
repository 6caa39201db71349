# SPDX-License-Identifier: Apache-2.0
"""Compiles and parses the blocks of all languages but Python and shells. Fragments are compiled
together, each in a namespace of its own; whole files, which have a name, by themselves."""

import json
import os
import re
import shlex
import subprocess
import sys

from blocks import ROOT
from console import BUILD, run

sys.path.insert(0, str(ROOT / "tests" / "support"))
from tree_plugins import declared, tomllib

INCLUDE = ROOT / "core" / "include"
DEVICE = ROOT / "core" / "device"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
PLUGIN = ["-x", "c++", "-std=c++17", *WARNINGS, f"-I{INCLUDE}"]
C = ["-x", "c", "-std=c11", *WARNINGS, f"-I{INCLUDE}"]


def compile_text(compiler, options, text, folder):
    """Compiles without making code; returns the compiler's messages if it fails."""
    source = folder / "blocks.cc"
    source.write_text(text)
    words = [*shlex.split(compiler), "-fsyntax-only", *map(str, options), str(source)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return [ended.stderr] if ended.returncode else []


def is_device(block):
    return "OPDOCK_KERNEL" in block.text or block.name.endswith(".cuh")


def fragment(number, block):
    """Returns the #include lines of a fragment, and the rest in a namespace. A kernel that is a
    template is instantiated for float."""
    before, after = block.given()
    where = f'#line {block.line} "{block.page}: given"\n'
    texts = [where + before, f'#line {block.line} "{block.page}"\n{block.text}', where + after]
    code = "\n".join(texts)
    includes = re.findall(r"^#include .*$", code, re.MULTILINE)
    code = re.sub(r"^#include .*$", "", code, flags=re.MULTILINE)
    kernels = re.findall(r"^template <class \w+>\nOPDOCK_KERNEL\(\w+\) (\w+)\(", code, re.MULTILINE)
    code += "".join(f"auto* const instance_of_{name} = &{name}<float>;\n" for name in kernels)
    return includes, f"namespace block_{number} {{\n{code}\n}}\n"


def check_cpp(blocks, folder):
    """Device code is compiled as for the software GPU (core/softgpu/engine/compile.cc)."""
    (folder / "include").mkdir()
    (folder / "include" / "softgpu").symlink_to(ROOT / "core" / "softgpu" / "engine")
    soft = ["-x", "c++", "-std=c++17", "-DOPDOCK_SOFT", "-DOPDOCK_SOFT_WARP=32"]
    soft += ["-DOPDOCK_SOFT_ARCH=900", f"-I{folder / 'include'}", f"-I{DEVICE}"]
    problems, done = [], {}
    compiler = os.environ.get("CXX", "c++")
    for options, wanted in ((PLUGIN + [f"-I{DEVICE}"], False), (soft, True)):
        mine = [block for block in blocks if is_device(block) == wanted]
        some = [block for block in mine if not block.name]
        parts = [fragment(number, block) for number, block in enumerate(some)]
        includes = dict.fromkeys(line for lines, _ in parts for line in lines)
        texts = ["\n".join(includes) + "\n" + "".join(code for _, code in parts)]
        texts += [block.text for block in mine if block.name]
        for text in texts:
            problems += compile_text(compiler, options, text, folder)
        how = "compiled for the software GPU" if wanted else "compiled"
        done |= dict.fromkeys(mine, how)
    return done, problems


def check_c(blocks, folder):
    problems = []
    for block in blocks:
        before, after = block.given()
        text = f'{before}#line {block.line} "{block.page}"\n{block.text}{after}'
        problems += compile_text(os.environ.get("CC", "cc"), C, text, folder)
    return dict.fromkeys(blocks, "compiled"), problems


def check_manifest(block, value, folder):
    """Gives the block to the reader of plugin.toml. If it is a part of such a file, what the rest
    has is missing, and what it says of an op of this tree must be what that op's plugin says."""
    (folder / "include").mkdir(exist_ok=True)
    path = folder / "plugin.toml"
    path.write_text(block.text)
    pack = BUILD / "core" / "pack" / "opdock-pack"
    told = run(pack, "--toml", path, "--ops-header", folder / "ops.h").stderr.splitlines()
    missing = r"no readable file "
    if "name" not in value:
        missing += r"|\bno [^:,]+, wanted|: 0 rules, wanted|, wanted an op of the same plugin"
    problems = [line for line in told if not re.search(missing, line)]
    if "name" not in value:
        ops = {op["schema"].split("(")[0]: op for toml in declared().values() for op in toml["op"]}
        for op in value.get("op", []):
            real = ops.get(op["schema"].split("(")[0], op)
            problems += [
                f"found {key} = {text!r}, wanted {real.get(key)!r}, as the plugin has it"
                for key, text in op.items()
                if real.get(key) != text
            ]
    return problems


def check_settings(block, folder):
    """Reads the block as the configuration file."""
    (folder / "config" / "opdock").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "opdock" / "config.toml").write_text(block.text)
    done = run(BUILD / "core/cli/opdock", "list", XDG_CONFIG_HOME=str(folder / "config"))
    return [done.stderr] if done.returncode == 2 else []


SETTINGS = {"build", "jit", "fallback", "cuda-archs", "hip-archs"}


def check_toml(blocks, folder):
    done, problems = {}, []
    for block in blocks:
        try:
            value = tomllib.loads(block.text)
        except tomllib.TOMLDecodeError as error:
            problems.append(f"{block.place}: {error}")
            continue
        build = value.get("build")
        if block.name.endswith("plugin.toml") or "op" in value or isinstance(build, dict):
            done[block], told = "read as plugin.toml", check_manifest(block, value, folder)
        elif SETTINGS & value.keys():
            done[block], told = "read as config.toml", check_settings(block, folder)
        else:
            done[block], told = "parsed", []
        problems += [f"{block.place}: {one}" for one in told]
    return done, problems


def check_json(blocks, folder):
    problems = []
    for block in blocks:
        try:
            json.loads(block.text)
        except ValueError as error:
            problems.append(f"{block.place}: {error}")
    return dict.fromkeys(blocks, "parsed"), problems


def check_meson(blocks, folder):
    """Parses by Meson, and checks the keys of plugins by plugins/meson.build, which reads them."""
    from mesonbuild import mesonlib, mparser

    problems = []
    known = (ROOT / "plugins" / "meson.build").read_text()
    for block in blocks:
        try:
            mparser.Parser(block.text, block.page).parse()
        except mesonlib.MesonException as error:
            line = block.line + getattr(error, "lineno", 1) - 1
            problems.append(f"{block.page}:{line}: {error}")
        for key in re.findall(r"'(\w+)':", block.text):
            if f"'{key}'" not in known:
                problems.append(f"{block.place}: found the key '{key}', which is not known")
    return dict.fromkeys(blocks, "parsed"), problems


NODE = r"(\w+)((?:\(\[|\[|\{|\().*?(?:\]\)|\]|\}|\)))?"


def check_mermaid(blocks, folder):
    """Checks flowcharts: lines of nodes and arrows, each node with a text somewhere."""
    problems = []
    for block in blocks:
        first, *lines = block.text.splitlines()
        if not re.fullmatch(r"flowchart (TD|LR)", first):
            problems.append(f'{block.place}: found "{first}", wanted a flowchart')
        named, used = set(), set()
        for number, line in enumerate(lines, block.line + 1):
            if not re.fullmatch(rf' *{NODE}(?: (?:-->|-- (?:\w+|".*?") -->) {NODE})*', line):
                problems.append(f"{block.page}:{number}: found {line}, wanted nodes and arrows")
                continue
            for name, text in re.findall(rf"(?:^ *|--> ){NODE}", line):
                (named if text else used).add(name)
        problems += [f"{block.place}: found no text of the node {one}" for one in used - named]
    return dict.fromkeys(blocks, "parsed"), problems
