# SPDX-License-Identifier: Apache-2.0
"""Checks that Opdock's architecture lists mean the same as in the installed torch."""

import inspect
import os
import re
import subprocess

import pytest

cpp_extension = pytest.importorskip(
    "torch.utils.cpp_extension", reason="the oracle is torch, which is not installed"
)

PROGRAM = os.environ["OPDOCK_PRINT_ARCHS"]


def ours(kind, text):
    """Returns the compiler's arguments as a sorted list, or None if the list is refused."""
    done = subprocess.run([PROGRAM, kind, text], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return sorted(done.stdout.splitlines()) if done.returncode == 0 else None


def cuda_of_torch(text, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", text)
    try:
        return cpp_extension._get_cuda_arch_flags()
    except (ValueError, IndexError):
        return None


def constants_of_torch():
    """Returns the numbers and names in torch's function, so that those of a newer torch are
    tested."""
    source = inspect.getsource(cpp_extension._get_cuda_arch_flags)
    numbers = re.findall(r"'(\d+\.\d[af]?)'", source.split("supported_arches = ")[1].split("]")[0])
    names = re.findall(r"\('([A-Z][A-Za-z+]+)',", source)
    assert len(numbers) > 15 and len(names) > 10
    return numbers, names


NUMBERS, NAMES = constants_of_torch()
LISTS = [
    "7.5;8.0;9.0a;12.0+PTX",
    "8.0 8.6 9.0",
    "12.0;8.0",
    "8.0;8.0+PTX",
    "Ampere;Hopper",
    "Volta+Tegra Turing",
    "Blackwell;9.0a+PTX",
    "Maxwell;Maxwell+Tegra;5.2",
    "10.3a;10.3;10.0a+PTX",
]


@pytest.mark.parametrize("text", NUMBERS + [n + "+PTX" for n in NUMBERS] + NAMES + LISTS)
def test_cuda(text, monkeypatch):
    wanted = cuda_of_torch(text, monkeypatch)
    assert wanted
    assert ours("cuda", text) == wanted


@pytest.mark.parametrize(
    "text", ["", "8", "80", "8.0b", "8.0a", "hopper", "8.0+ptx", "8.x", "+PTX", "8.0;;Foo"]
)
def test_what_torch_refuses_is_refused(text, monkeypatch):
    monkeypatch.setattr(cpp_extension.torch.cuda, "device_count", lambda: 0)
    assert cuda_of_torch(text, monkeypatch) is None
    assert ours("cuda", text) is None


@pytest.mark.parametrize(
    "text",
    [
        "gfx90a",
        "gfx90a;gfx942",
        "gfx906 gfx1030",
        "gfx90a:xnack+;gfx90a:xnack-",
        "gfx90a:sramecc+:xnack-",
        "gfx9-4-generic;gfx1100",
    ],
)
def test_rocm(text, monkeypatch):
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", text)
    wanted = [flag for flag in cpp_extension._get_rocm_arch_flags() if "arch" in flag]
    assert ours("rocm", text) == sorted(wanted)
