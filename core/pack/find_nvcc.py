# SPDX-License-Identifier: Apache-2.0
"""Prints the nvcc that this tree's own build uses, by the rule of core/facts/tools.cc.

The order is $CUDACXX; the toolkits in $CUDA_HOME, $CUDA_PATH, $CONDA_PREFIX and /usr/local; PATH;
the Python environment's wheels, if they have everything that a .cu file needs. Prints nothing if
there is none.
"""

import os
import pathlib
import re
import shutil
import sys

# Files of the packages nvidia-cuda-cccl (include/nv or include/cccl) and nvidia-cuda-runtime.
WHEEL_NEEDS = [
    ["include/nv/target", "include/cccl/nv/target"],
    ["include/cuda_runtime.h"],
    ["lib/libcudart_static.a"],
]


def newest_first(folders):
    """Sorts folders by the numbers in their names: cuda-13.0 before cuda-12.9."""
    return sorted(folders, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])[::-1]


def toolkits():
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    root = pathlib.Path("/usr/local")
    return [pathlib.Path(name) for name in named if name] + [
        root / "cuda",
        *newest_first(root.glob("cuda-*")),
    ]


def wheels(folders):
    for folder in folders:
        yield from newest_first(pathlib.Path(folder).glob("nvidia/cu*"))


def is_whole(wheel):
    return all(any((wheel / name).exists() for name in names) for names in WHEEL_NEEDS)


def find_nvcc(folders=sys.path):
    """Returns the program's path, or None. folders: where Python keeps packages."""
    if given := os.environ.get("CUDACXX"):
        return shutil.which(given)
    for toolkit in toolkits():
        if program := shutil.which("nvcc", path=toolkit / "bin"):
            return program
    if program := shutil.which("nvcc"):
        return program
    for wheel in wheels(folders):
        program = shutil.which("nvcc", path=wheel / "bin")
        if program and is_whole(wheel):
            return program
        if program:
            print(f"{program} is not used: its wheels lack a part of CUDA", file=sys.stderr)
    return None


if __name__ == "__main__":
    print(find_nvcc() or "")
