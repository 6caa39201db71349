# SPDX-License-Identifier: Apache-2.0
"""Runs Python blocks. Those of one page run in order in one interpreter, since they build on each
other; each page has an interpreter of its own, forked from one that has imported torch."""

import ast
import importlib.util
import json
import os
import sys

from blocks import ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))
from programs import Programs

# The program that runs the blocks of a page, which are its argument, and prints for each what was
# done. Of a block that cannot be run here, it compiles the code, looks up the names of opdock that
# it has, and compiles the CUDA C++ in its texts if there is a compiler.
RUN = r'''
import ast, importlib, json, re, sys, traceback

def has_gpu():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()

def run(code, page, line, names):
    exec(compile("\n" * (line - 1) + code, page, "exec"), names)

def chain(node):
    """Returns ["opdock", "ops"] for opdock.ops."""
    if isinstance(node, ast.Name):
        return [node.id]
    return [*chain(node.value), node.attr] if isinstance(node, ast.Attribute) else []

def look_up(code, page, line):
    import opdock
    for node in ast.walk(ast.parse("\n" * (line - 1) + code, page)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "opdock":
            module = importlib.import_module(node.module)
            for one in node.names:
                getattr(module, one.name)
        elif isinstance(node, ast.Attribute) and chain(node)[:1] == ["opdock"]:
            value = opdock
            for name in chain(node)[1:]:
                value = getattr(value, name)
        elif isinstance(node, ast.Constant) and "__global__" in str(node.value):
            kernels = re.findall(r"__global__ void (\w+)\(", node.value)
            try:
                assert opdock.compile(node.value, kernels=kernels, arch="sm_90").image
            except opdock.IncompatibleError:
                pass  # there is no compiler

names = {"__name__": "__main__"}
for block in json.loads(sys.argv[1]):
    page, line = block["page"], block["line"]
    try:
        if block["not run"] or block["needs"] and not has_gpu():
            look_up(block["text"], page, line)
            done = "compiled, and their names looked up"
        else:
            for name in ("before", "text", "after"):
                run(block[name], page if name == "text" else f"{page}: given", line, names)
            done = "run"
        print("\n@", done, flush=True)
    except BaseException:
        frames = traceback.format_exc().splitlines()
        sys.exit(f"line {line}: " + "\n".join(frames[:1] + frames[3:]))
'''

PRELUDE = "import numpy, torch"


def check(blocks, folder):
    """Returns {block: what was done with it}, and the problems."""
    for name in PRELUDE.removeprefix("import ").split(", "):
        if importlib.util.find_spec(name) is None:
            for block in blocks:
                ast.parse(block.text, block.page)
            return dict.fromkeys(blocks, f"compiled only: there is no {name}"), []
    done, problems = {}, []
    by_page = {}
    for block in blocks:
        by_page.setdefault(block.page, []).append(block)
    environment = dict(os.environ)
    environment |= {name: str(folder) for name in ("OPDOCK_CACHE_DIR", "XDG_CONFIG_HOME")}
    here = os.getcwd()
    os.chdir(folder)  # blocks may write files
    try:
        with Programs(PRELUDE, environment) as programs:
            for some in by_page.values():
                given = [one.given() for one in some]
                asked = [
                    {"page": one.page, "line": one.line, "text": one.text}
                    | {"before": before, "after": after}
                    | {kind: one.comments.get(kind) for kind in ("needs", "not run")}
                    for one, (before, after) in zip(some, given, strict=True)
                ]
                ended = programs.run(RUN, environment, json.dumps(asked))
                told = [line[2:] for line in ended.stdout.splitlines() if line.startswith("@ ")]
                done |= dict(zip(some, told, strict=False))
                if ended.returncode or len(told) != len(some):
                    told = ended.stderr[-3000:] or f"ended with {ended.returncode}"
                    problems.append(f"{some[0].page}: {told}")
    finally:
        os.chdir(here)
    return done, problems
