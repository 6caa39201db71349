# SPDX-License-Identifier: Apache-2.0
"""Looks for circles among the imports of the package's files.

An import within a function counts like any other: it runs later, but neither of the two files can
be understood or changed without the other.
"""

import ast
import graphlib
import importlib.util
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "opdock"
COMPILED = {"opdock._opdock"}  # modules without a Python file


def module_files(package):
    """Returns {module: file} for the package and everything below it."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module, path):
    """Yields what each import of the file may mean, as a list of modules with the best guess first:
    ["a.b", "a"] for `from a import b`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ([alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from ([f"{name}.{alias.name}", name] for alias in node.names)


def import_graph(package):
    """Returns {module: the modules of the package that it imports}.

    Importing a.b.c also executes the packages a and a.b, so it counts as an import of these, too,
    unless the importing module is inside of them.
    """
    files = module_files(package)
    graph = {module: set() for module in files}
    for module, path in files.items():
        for guesses in imports(module, path):
            name = next((name for name in guesses if name in {*files, *COMPILED}), "")
            if name in files:
                graph[module].add(name)
            while name := name.rpartition(".")[0]:
                if not module.startswith(f"{name}.") and module != name:
                    graph[module].add(name)
    return graph


def circle(graph):
    """Returns a list of modules that each import the next one, the last of which is the first;
    empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def test_no_imports_go_in_a_circle():
    graph = import_graph(PACKAGE)
    assert sum(map(len, graph.values())) > 150, "the imports were not found"
    found = " -> ".join(circle(graph))
    assert not found, f"found {found}, wanted none: move what they share to a module below them"


@pytest.mark.parametrize(
    "text",
    [
        "from pkg.a import f",
        "from pkg import a",
        "import pkg.a",
        "import pkg.sub.b",
        "from . import a",
        "from .sub.b import g",
        "def f():\n    from pkg import a",
        "if TYPE_CHECKING:\n    from pkg import a",
        "import pkg",
        "from pkg import f",
        "from pkg import last",
    ],
)
def test_a_circle_is_found(tmp_path, text):
    """pkg imports pkg.a, that imports pkg.sub, whose b imports pkg.last."""
    files = {
        "__init__.py": "from pkg.a import f",
        "a.py": "from pkg.sub import g",
        "sub/__init__.py": "from pkg.sub.b import g",
        "sub/b.py": "from pkg.last import h",
        "last.py": "import os",
    }
    for name, contents in files.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents)
    assert circle(import_graph(tmp_path / "pkg")) == []
    (tmp_path / "pkg" / "last.py").write_text(text)
    found = circle(import_graph(tmp_path / "pkg"))
    assert "pkg.last" in found and found[0] == found[-1]
