# SPDX-License-Identifier: Apache-2.0
"""Prints the folder, the version and the commit of the torch of this Python, if it has headers.

The build compiles the recorder for it (autograd.cc). torch is not imported, which takes seconds.
"""

import importlib.util
import runpy
from pathlib import Path

OLDEST = (2, 11)  # the first torch whose dispatcher is as opdock.torch uses it

spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin is not None:
    folder = Path(spec.origin).parent
    facts = runpy.run_path(str(folder / "version.py"))
    version = str(facts["__version__"])
    numbers = tuple(int(n) for n in version.split("+")[0].split(".")[:2])
    has_headers = (folder / "include/torch/csrc/autograd/function.h").exists()
    if numbers >= OLDEST and has_headers:
        print(folder, version, facts["git_version"], sep="\n")
