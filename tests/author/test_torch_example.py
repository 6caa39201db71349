# SPDX-License-Identifier: Apache-2.0
"""Builds examples/torch with Meson and with CMake against a staged install, and runs a model with
Opdock's operators in it, without Python. Compiling with torch's headers takes minutes, so this runs
with --nightly."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import BUILD, SOURCE, run_well

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(
    not os.environ.get("OPDOCK_TEST_NIGHTLY"), reason="runs with --nightly"
)
EXAMPLE = SOURCE / "examples" / "torch"
TORCH = Path(torch.__file__).parent
LOADER = "torch/csrc/inductor/aoti_package/model_package_loader.h"
PLUGINS = BUILD / "plugins"

MODEL = """
import sys
import torch
import opdock.torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 2, 8))

    def forward(self, x):
        return torch.ops.opdock.softmax(torch.ops.opdock.rms_norm(x, self.weight), 0.5) * 2


rows = torch.export.Dim("rows", min=2, max=64)
model = torch.export.export(Model(), (torch.randn(5, 8),), dynamic_shapes=({0: rows},))
torch._inductor.aoti_compile_and_package(model, package_path=sys.argv[1])
x = torch.arange(24.0).reshape(3, 8) / 24  # another number of rows
print(*Model()(x).flatten().tolist())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Returns the path of a compiled model, and its results for the example's input."""
    if not (TORCH / "include" / LOADER).exists():
        pytest.skip("torch has no headers here")
    package = tmp_path_factory.mktemp("model") / "model.pt2"
    out = run_well(sys.executable, "-c", MODEL, package, OPDOCK_PLUGIN_PATH=PLUGINS)
    return package, torch.tensor([float(word) for word in out.split()[-24:]])


def check(program, model, settings):
    package, wanted = model
    libraries = f"{settings['LD_LIBRARY_PATH']}:{TORCH / 'lib'}"
    settings = {**settings, "LD_LIBRARY_PATH": libraries, "OPDOCK_PLUGIN_PATH": PLUGINS}
    found = run_well(program, package, **settings)
    found = torch.tensor([float(word) for word in found.split()])
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_meson(model, settings, tmp_path):
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    build = tmp_path / "build"
    run_well(*meson, "setup", build, EXAMPLE, f"-Dtorch={TORCH}", **settings)
    run_well(*meson, "compile", "-C", build, **settings)
    check(build / "run", model, settings)


def test_cmake(model, prefix, settings, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake (Debian: cmake)")
    build = tmp_path / "build"
    folders = f"{torch.utils.cmake_prefix_path};{prefix}"
    command = ["cmake", "-S", EXAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={folders}"]
    run_well(*command, "-DCMAKE_BUILD_TYPE=Release", **settings)
    run_well("cmake", "--build", build, **settings)
    check(build / "run", model, settings)
