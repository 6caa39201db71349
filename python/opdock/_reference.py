# SPDX-License-Identifier: Apache-2.0
"""The plugins' references: plain PyTorch implementations that tests compare kernels with."""

import importlib.util
import os
from pathlib import Path

from opdock._errors import NotFoundError


def _folders():
    """Where references lie: in an installed package, and in a source tree beside its build."""
    here = Path(__file__).resolve().parent
    yield here / "references"
    build = os.environ.get("OPDOCK_BUILD_DIR")
    roots = [Path(build).parent] if build else []
    for root in [*roots, *here.parents]:
        if (root / "meson.build").is_file() and (root / "plugins").is_dir():
            yield root / "plugins"


def _files():
    for folder in _folders():
        yield from sorted(folder.glob("*/reference.py"))


def reference(name):
    """The reference of an op: a Python function with the op's parameters.

    Plugins keep it in `reference.py` beside their sources, as a function named like the op. Raises
    NotFoundError with the places looked at.
    """
    looked_at = []
    for path in _files():
        looked_at.append(str(path))
        spec = importlib.util.spec_from_file_location(
            f"opdock._references.{path.parent.name}", path
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, name, None)
        if callable(found):
            return found
    raise NotFoundError(
        f"found no reference for {name!r}, wanted a function of that name in a plugin's "
        f"reference.py; looked at: {', '.join(looked_at) or 'no file'}"
    )
