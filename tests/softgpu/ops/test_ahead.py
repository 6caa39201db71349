# SPDX-License-Identifier: Apache-2.0
"""Tests kernels of formulas that were built with their plugin: they are used where their images
run, without a compiler, and only for the formula of which they were made."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ARCHS, BUILD, TOOLS, software

import opdock

SOURCE = Path(__file__).with_name("ahead")
SWIGLU = b"gate * sigmoid(gate) * up"
CALLS = """
    import torch.nn.functional as F
    torch.manual_seed(0)
    swiglu, norm = on(device, opdock.ops.ahead_swiglu), on(device, opdock.ops.ahead_norm)
    def far(found, wanted):
        return float((found.double() - wanted).abs().max())
    worst = 0.0
    for shape in [(5,), (3, 7), (2, 3, 64), (2, 2000)]:
        gate, up = torch.randn(2, *shape).double()
        for other in (up, up.reshape(-1, shape[-1])[0]):
            found = swiglu(gate.float(), other.float())
            worst = max(worst, far(found, F.silu(gate) * other))
    # Rows of a warp and of blocks: each thread has as many vectors as every other one, or fewer.
    for shape in [(1, 12), (2, 256), (3, 1000), (2, 3000), (2, 4096), (1, 16384)]:
        x, weight = torch.randn(shape).double(), torch.randn(shape[-1]).double()
        y = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        worst = max(worst, far(norm(x.float()), y))
        worst = max(worst, far(norm(x.float(), weight.float()), y * weight))
    show(worst=worst)
"""
GRADIENTS = """
    torch.manual_seed(0)
    swiglu = on(device, opdock.ops.ahead_swiglu_backward)
    norm = on(device, opdock.ops.ahead_norm_backward)
    def far(found, wanted):
        return max(float((a.double() - b).abs().max()) for a, b in zip(found, wanted, strict=True))
    worst = 0.0
    for shape in [(3, 7), (2, 3, 64), (5, 1000)]:
        gate, up = (t.double().requires_grad_() for t in torch.randn(2, *shape))
        grad = torch.randn(shape).double()
        row = up.detach().reshape(-1, shape[-1])[0].requires_grad_()
        for other in (up, row):
            wanted = torch.autograd.grad(gate * gate.sigmoid() * other, (gate, other), grad)
            found = swiglu(*(t.detach().float() for t in (grad, gate, other)))
            worst = max(worst, far(found, wanted))
    for shape in [(2, 256), (300, 64), (2, 4096)]:
        x, weight = torch.randn(shape).double(), torch.randn(shape[-1]).double()
        inputs = [x.requires_grad_(), weight.requires_grad_()]
        grad = torch.randn(shape).double()
        y = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
        found = norm(*(t.detach().float() for t in (grad, x, weight)))
        worst = max(worst, far(found, torch.autograd.grad(y, inputs, grad)))
    show(worst=worst)
"""
ONE_CALL = """
    gate, up = torch.linspace(-2, 2, 12), torch.full((12,), 0.5)
    call = on(device, opdock.ops.ahead_swiglu)
    show(error=error(call, gate, up))
    if not error(call, gate, up):
        show(is_product=bool(torch.allclose(call(gate, up), gate * gate.sigmoid() * up)),
             is_sum=bool(torch.allclose(call(gate, up), gate * gate.sigmoid() + up)))
"""


@pytest.fixture(scope="module")
def built():
    """Returns a folder outside /tmp with the plugin, built for sm_90 and gfx90a, and the sources of
    its images in the folder "code"."""
    folder = Path(tempfile.mkdtemp(dir=BUILD / "tests" / "softgpu" / "ops", prefix="ahead-"))
    tools = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        [BUILD / "core" / "cli" / "opdock", "build", "--json", "--archs=9.0"]
        + ["--hip-archs=gfx90a", SOURCE],
        env={**os.environ, "PATH": tools, "OPDOCK_CACHE_DIR": str(folder / "build")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "plugins").mkdir()
    (folder / "code").mkdir()
    plugin = folder / "plugins" / "ahead.so"
    shutil.copy(json.loads(done.stdout)["path"], plugin)
    assert software.fill_code(TOOLS / "opdock-soft-code", [plugin], folder / "code")
    yield folder
    shutil.rmtree(folder)


def needs_image(built, arch):
    report = opdock.inspect(str(built / "plugins" / "ahead.so"))
    if arch not in report["cuda_archs"] + report["hip_archs"]:
        pytest.skip(f"no {'hipRTC' if arch.startswith('gfx') else 'NVRTC'} is installed")
    return arch


@pytest.fixture(params=ARCHS)
def arch(request, built):
    return needs_image(built, request.param)


@pytest.fixture
def sm_90(built):
    return needs_image(built, "sm_90")


@pytest.fixture
def call(soft, built):
    """Returns soft() with the built plugin. jit: OPDOCK_JIT."""

    def run(program, arch, jit="never", plugins=built / "plugins"):
        cache = Path(tempfile.mkdtemp(dir=built))
        path = f"{plugins}:{BUILD / 'plugins'}"  # every program begins with ops of the latter
        variables = {"OPDOCK_PLUGIN_PATH": path, "OPDOCK_CACHE_DIR": cache, "OPDOCK_JIT": jit}
        variables = {name: str(value) for name, value in variables.items()}
        return soft(program, gpus=[{"arch": arch}], variables=variables, code=built / "code")

    return run


def test_no_compiler_is_needed(call, arch):
    done = call(CALLS, arch)
    assert done.shown["worst"] < 2e-5 and done.findings == [], done.shown
    assert "compiling" not in done.stderr
    assert len(done.events("load")) == 1


def test_no_compiler_is_needed_for_gradients(call, arch):
    done = call(GRADIENTS, arch)
    assert done.shown["worst"] < 1e-4 and done.findings == [], done.shown
    assert "compiling" not in done.stderr


def test_what_was_not_built_ahead_is_compiled(call, arch):
    broadcast = """
        gate = torch.randn(4, 6, 8)
        call = on(device, opdock.ops.ahead_swiglu)
        show(error=error(call, gate, gate[:, :1]))
    """
    assert "OPDOCK_JIT" in call(broadcast, arch).shown["error"]
    assert call(broadcast, arch, jit="auto").shown["error"] is None


def test_for_another_architecture_the_source_is_compiled(call, sm_90):
    refused = call(ONE_CALL, "sm_86").shown["error"]
    assert "arch-mismatch" in refused and "jit-policy" in refused, refused
    done = call(ONE_CALL, "sm_86", jit="auto")
    assert done.shown == {"error": None, "is_product": True, "is_sum": False}
    assert "compiling ahead" in done.stderr


def test_an_image_of_another_formula_is_not_used(call, built, sm_90):
    """The plugin says another formula than the one that its image was made of."""
    bytes_of = (built / "plugins" / "ahead.so").read_bytes()
    assert bytes_of.count(SWIGLU + b"\0") == 1
    place = Path(tempfile.mkdtemp(dir=built))
    changed = bytes_of.replace(SWIGLU + b"\0", SWIGLU.replace(b"* up", b"+ up") + b"\0")
    (place / "ahead.so").write_bytes(changed)
    (place / "ahead.so").chmod(0o755)
    assert "OPDOCK_JIT" in call(ONE_CALL, sm_90, plugins=place).shown["error"]
    done = call(ONE_CALL, sm_90, jit="auto", plugins=place)
    assert done.shown == {"error": None, "is_product": False, "is_sum": True}


def test_reports_show_the_images(built, arch):
    plugin = built / "plugins" / "ahead.so"
    images = opdock.inspect(str(plugin))["images"]
    assert {"formulas.cuh", arch} <= {image["arch"] for image in images}
    command = BUILD / "core" / "cli" / "opdock"
    env = {**os.environ, "OPDOCK_PLUGIN_PATH": str(plugin.parent)}
    listed = subprocess.run([command, "list", "--details"], capture_output=True, text=True, env=env)
    assert "built for " in listed.stdout and arch in listed.stdout, listed.stdout + listed.stderr
