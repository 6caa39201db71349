# SPDX-License-Identifier: Apache-2.0
"""Writes a Recipe as the folder of a source plugin, which Opdock then builds.

The plugin's shared object is also the Python extension module. Its only op does nothing; it exists
because every plugin must have one.
"""

import json
import os
import re
import shutil

from opdock.compat.deepspeed import _recipe
from opdock.compat.deepspeed._recipe import HOST

_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)
_MAX_BYTES = 64 << 20  # read from one file; headers are smaller
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
    """Returns the header files that the sources #include, directly or not.

    They are searched next to the including file and in the folders `includes`. Names that a macro
    makes are not found: only the compiler finds those headers, and a change of such a header does
    not cause a new build.
    """
    found, queue = {}, list(sources)
    while queue:
        path = queue.pop()
        try:
            with open(path, "rb") as file:
                text = file.read(_MAX_BYTES)
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


# Prefix of the build's temporary folder. Messages may name the folder of an earlier build with the
# same content.
PREFIX = "opdock-ds-"
_COPIES = re.compile(rf"([^\s:'\"]*/{PREFIX}\w+/|(?<![\w./-]))tree/")


class Written:
    """A written folder. It knows where the copies come from, so that messages can name the
    originals."""

    def __init__(self, root):
        self.root = root

    def original(self, text):
        """Returns the text with the copies' paths replaced by the user's own."""
        return _COPIES.sub(lambda _: self.root + "/", text)


class _Files:
    """The copies of sources and headers in the folder, with the name of each. With a recipe for
    ROCm they are translated."""

    def __init__(self, recipe, folder):
        self.includes = [path for path in recipe.includes if not _is_system(path)]
        found = [*recipe.sources, *_headers(recipe.sources, self.includes)]
        self.root = os.path.commonpath([*map(os.path.dirname, found), *self.includes])
        self._named = {path: self._place(path) for path in found}
        for path, name in self._named.items():
            target = os.path.join(folder, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(path, target)
        for path in self.includes:
            os.makedirs(os.path.join(folder, self._place(path)), exist_ok=True)
        if recipe.kind == "rocm":
            from opdock.compat.deepspeed._hipify import translate

            names = list(self._named.values())
            made = translate(folder, names, self.include_folders())
            self._named = {path: made[name] for path, name in self._named.items()}

    def _place(self, path):
        return os.path.normpath(os.path.join("tree", os.path.relpath(path, self.root)))

    def all(self):
        """Returns the sorted names of all copies, headers included."""
        return sorted(set(self._named.values()))

    def of(self, paths):
        """Returns the names of the copies of `paths`, in that order (a translated .cu file ends in
        .hip)."""
        return [self._named[path] for path in paths]

    def include_folders(self):
        return list(dict.fromkeys(map(self._place, self.includes)))


def write(recipe, folder):
    """Writes plugin.toml, meson.build and copies of the files into `folder`; returns a Written."""
    files = _Files(recipe, folder)
    op = f"{recipe.name}_is_built"
    for name, text in (
        ("opdock_module.cc", _STUB.format(op=op)),
        ("plugin.toml", _manifest(recipe, op, files)),
        ("meson.build", _rules(recipe, files)),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    return Written(files.root)


def translate(builder, folder):
    """Translates a builder's sources for ROCm, with the headers that they #include, into copies in
    `folder`, which is made anew. Returns {source: its translation}, absolute paths."""
    wanted = _recipe.recipe(builder)
    wanted.kind = "rocm"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    names = _Files(wanted, folder).of(wanted.sources)
    return {
        source: os.path.join(folder, name)
        for source, name in zip(wanted.sources, names, strict=True)
    }


def _manifest(recipe, op, files):
    devices = ["cpu"] if recipe.kind == "cpu" else ["cpu", recipe.kind]
    text = [
        f"# {recipe.made_for}",
        f"name = {json.dumps(recipe.module)}",
        'version = "1"',
        'license = "LicenseRef-user"',
        f"sources = {json.dumps(['opdock_module.cc', *files.all()])}",
        "",
        "[[op]]",
        f'schema = "{op}(Tensor x) -> int"',
        'doc = "1: the module of Python is built."',
        f"devices = {json.dumps(devices)}",
        'dtypes = ["uint8"]',
        'flags = ["thread-safe"]',
        "",
        "[requires]",
        'python = ">=3"',
        *(['torch = ">=1"'] if recipe.links_torch_cuda else []),
        "",
        "[build]",
        f"include = {json.dumps(files.include_folders())}",
    ]
    compiler = {"cuda": "nvcc", "rocm": "hipcc"}.get(recipe.kind)
    if compiler:
        words = [*recipe.nvcc, *(f"-I{path}" for path in recipe.includes)]
        text.append(f"flags = {{{compiler} = {json.dumps(words)}}}")
    return "\n".join([*text, ""])


def _rules(recipe, files):
    gpu = recipe.has(".cu", ".hip")
    host = ["opdock_module.cc", *files.of(recipe.has(*HOST))]
    # The original folders come after the copies', for headers that _headers() could not find.
    cxx = [*recipe.cxx, *(f"-I{path}" for path in recipe.includes)]
    parts = [
        f"'name': '{recipe.module}', 'toml': files('plugin.toml')",
        f"'sources': files({_meson(host)})",
        "'dependencies': module_needs",
    ]
    if gpu:
        kind = "cuda_sources" if recipe.kind == "cuda" else "hip_sources"
        parts.append(f"'{kind}': files({_meson(files.of(gpu))})")
    return (
        f"module_needs = declare_dependency(compile_args: {_meson(cxx)},\n"
        f"  link_args: {_meson(recipe.link)})\n"
        f"opdock_plugins += [{{{', '.join(parts)}}}]\n"
    )
