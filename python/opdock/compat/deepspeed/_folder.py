# SPDX-License-Identifier: Apache-2.0
"""Writes what a Recipe says as the folder of a source plugin, which Opdock then builds.

The plugin's file is at the same time the module of Python. Its one op says nothing: it is there
because every plugin has one.
"""

import json
import os
import re
import shutil

from opdock.compat.deepspeed._recipe import HOST

_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)
_MOST_BYTES = 64 << 20  # of one file: a header is smaller
_SYSTEM = ("/usr/include", "/usr/lib", "/usr/local/cuda", "/opt/rocm")

_STUB = """// Written by Opdock: the op that every plugin has.
#include "opdock/plugin.h"

extern "C" opdock_status opdock_{op}_plan(const opdock_call*, const opdock_value*, uint32_t,
                                          opdock_plan*) {{
  return OPDOCK_OK;
}}

extern "C" opdock_status opdock_{op}_run(const opdock_call*, const opdock_value*, uint32_t,
                                         opdock_value* results, uint32_t) {{
  results[0].tag = OPDOCK_TAG_INT;
  results[0].as.i64 = 1;
  return OPDOCK_OK;
}}
"""


def _is_system(path):
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")]
    folders = [*_SYSTEM, *(home for home in homes if home)]
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _headers(sources, includes):
    """The files that the sources' #include lines reach beside them and in the folders given.

    Names that a macro makes are not found: those the compiler finds by itself, and a change of such
    a file makes no new build.
    """
    found, queue = {}, list(sources)
    while queue:
        path = queue.pop()
        try:
            with open(path, "rb") as file:
                text = file.read(_MOST_BYTES)
        except OSError:
            continue
        for bracket, name in _INCLUDE.findall(text):
            name = os.fsdecode(name)
            folders = [os.path.dirname(path)] if bracket == b'"' else []
            for folder in [*folders, *includes]:
                header = os.path.normpath(os.path.join(folder, name))
                if os.path.isfile(header):
                    if header not in found and header not in sources:
                        found[header] = True
                        queue.append(header)
                    break
    return list(found)


def _meson(words):
    quoted = (word.replace("\\", "\\\\").replace("'", "\\'") for word in words)
    return "[" + ", ".join(f"'{word}'" for word in quoted) + "]"


def _toml(words):
    return json.dumps(list(words))


class Written:
    """A folder that is written: where its copies come from, to say so in messages."""

    def __init__(self, folder, root):
        self.folder, self.root = folder, root

    def original(self, text):
        """The text with the user's own paths in place of the copies'."""
        text = text.replace(os.path.join(self.folder, "tree") + "/", self.root + "/")
        return re.sub(r"(?<![\w./-])tree/", lambda _: self.root + "/", text)


def write(recipe, folder):
    """Writes plugin.toml, meson.build and copies of the files into `folder`; a Written."""
    own = [path for path in recipe.includes if not _is_system(path)]
    copied = [*recipe.sources, *_headers(recipe.sources, own)]
    root = os.path.commonpath([*map(os.path.dirname, copied), *own])

    def place(path):
        return os.path.normpath(os.path.join("tree", os.path.relpath(path, root)))

    for path in copied:
        target = os.path.join(folder, place(path))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(path, target)
    for path in own:
        os.makedirs(os.path.join(folder, place(path)), exist_ok=True)
    op = f"{recipe.name}_is_built"
    with open(os.path.join(folder, "opdock_module.cc"), "w", encoding="utf-8") as file:
        file.write(_STUB.format(op=op))
    hip = []
    if recipe.kind == "rocm":
        from opdock.compat.deepspeed._hipify import translate

        hip = translate(folder, [place(path) for path in copied])
    with open(os.path.join(folder, "plugin.toml"), "w", encoding="utf-8") as file:
        file.write(_manifest(recipe, op, [place(path) for path in copied], hip, own, place))
    with open(os.path.join(folder, "meson.build"), "w", encoding="utf-8") as file:
        file.write(_rules(recipe, hip, own, place))
    return Written(folder, root)


def _manifest(recipe, op, files, hip, own, place):
    devices = ["cpu"] if recipe.kind == "cpu" else ["cpu", recipe.kind]
    text = [
        f"# {recipe.made_for}",
        f"name = {json.dumps(recipe.module)}",
        'version = "1"',
        'license = "LicenseRef-user"',
        f"sources = {_toml(['opdock_module.cc', *sorted({*files, *hip})])}",
        "",
        "[[op]]",
        f'schema = "{op}() -> int"',
        'doc = "1: the module of Python is built."',
        f"devices = {_toml(devices)}",
        'dtypes = ["uint8"]',
        'flags = ["thread-safe"]',
        "",
        "[requires]",
        'python = ">=3"',
        *(['torch = ">=1"'] if recipe.links_torch_cuda else []),
        "",
        "[build]",
        f"include = {_toml(dict.fromkeys(map(place, own)))}",
    ]
    compiler = {"cuda": "nvcc", "rocm": "hipcc"}.get(recipe.kind)
    if compiler:
        folders = [f"-I{path}" for path in recipe.includes]
        words = [word for word in recipe.nvcc if compiler == "nvcc" or not word.startswith("--")]
        text.append(f"flags = {{{compiler} = {_toml(words + folders)}}}")
    return "\n".join([*text, ""])


def _rules(recipe, hip, own, place):
    host = [place(path) for path in recipe.has(*HOST)]
    cuda = [place(path) for path in recipe.has(".cu")] if recipe.kind == "cuda" else []
    # Behind the copies, for what the #include lines do not show.
    cxx = [*recipe.cxx, *(f"-I{path}" for path in recipe.includes)]
    parts = [
        f"'name': '{recipe.module}', 'toml': files('plugin.toml')",
        f"'sources': files({_meson(['opdock_module.cc', *host])})",
        "'dependencies': module_needs",
    ]
    if cuda:
        parts.append(f"'cuda_sources': files({_meson(cuda)})")
    if hip:
        parts.append(f"'hip_sources': files({_meson(hip)})")
    return (
        f"module_needs = declare_dependency(compile_args: {_meson(cxx)},\n"
        f"  link_args: {_meson(recipe.link)})\n"
        f"opdock_plugins += [{{{', '.join(parts)}}}]\n"
    )
