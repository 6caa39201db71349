# SPDX-License-Identifier: Apache-2.0
"""Compares core/attention/cudnn_api.h with NVIDIA's header, where its wheel is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = Path(__file__).with_name("cudnn_check.cc")


def test_the_declarations_are_nvidias():
    nvidia = [folder for path in sys.path if (folder := Path(path) / "nvidia").is_dir()]
    headers = [header for folder in nvidia for header in folder.glob("**/cudnn_graph.h")]
    runtimes = [header for folder in nvidia for header in folder.glob("**/cuda_runtime_api.h")]
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not headers or not runtimes or compiler is None:
        pytest.skip("no cudnn_graph.h and cuda_runtime_api.h in wheels, or no C++ compiler")
    words = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'core'}"]
    words += [f"-I{header.parent}" for header in (headers[0], runtimes[0])]
    done = subprocess.run([*words, CHECK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_declared_number_is_compared():
    header = (ROOT / "core" / "attention" / "cudnn_api.h").read_text()
    check = CHECK.read_text()
    names = re.findall(r"\b(CUDNN_\w+) = ", header) + re.findall(r"\(\*(\w+)\)\(", header)
    assert len(names) > 60
    for name in names:
        assert f"({name});" in check, name
