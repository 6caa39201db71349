# SPDX-License-Identifier: Apache-2.0
"""Tests the wheel: built, installed into a clean virtual environment, checked and called from
there.

It is built from this build's objects: meson test --suite wheel. OPDOCK_TEST_WHEEL names an existing
wheel to use instead."""

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tree_plugins

ROOT = Path(__file__).resolve().parents[2]
# The plugins that a machine without a GPU, nvcc and hipcc can build and use.
PLUGINS = [n for n, toml in tree_plugins.always_built().items() if tree_plugins.ops(toml, "cpu")]

pytestmark = pytest.mark.wheel


def environment():
    """Returns this process's environment as it was before `meson test` and ./dev added the build
    tree.

    Meson's LD_LIBRARY_PATH would put the build tree's libopdock before the wheel's own; folders
    that the user's compiler needs stay in it. pip's build calls meson and ninja by name, so the
    programs next to this Python are on PATH, even if its virtual environment is not active."""
    mine = ("MESON", "OPDOCK", "MALLOC_PERTURB_", "PYTHONPATH")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    build = os.environ.get("OPDOCK_BUILD_DIR", ROOT / "build")
    libraries = clean.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
    libraries = [p for p in libraries if p and not Path(p).is_relative_to(build)]
    if libraries:
        clean["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    clean["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), clean.get("PATH", "")])
    return clean


def run(*command, cwd=None, **more):
    """Runs a command with nothing of the build tree in its environment."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=environment() | more,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def opdock_inspect(path):
    """Returns the report of this build's package on a file."""
    import opdock

    return opdock.inspect(path)


def needs_trusted_place(folder):
    """Skips where plugins below `folder` are untrusted by design."""
    for place in [folder, *folder.parents]:
        if place.exists() and place.stat().st_mode & 0o1002 == 0o002:
            pytest.skip(f"everybody can write {place}: plugins below it are not trusted")


def begin_build_folder(build, place):
    """Fills the wheel's build folder with a copy of this build, so that the wheel reuses its
    objects: the commands that make them are the same if both folders are at the same depth below
    the source."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in ("core", "plugins", "python", "meson-info", "meson-private"):
        shutil.copytree(build / name, place / name, symlinks=True)
    for name in (".ninja_log", ".ninja_deps", "build.ninja"):
        shutil.copy2(build / name, place)


def build_wheel(folder):
    """Builds the wheel into `folder` from this source and returns it; all compiled objects are kept
    for the next wheel."""
    if not os.environ.get("OPDOCK_TEST_WHEEL_BUILD"):
        pytest.skip("links and packs everything once more: meson test --suite wheel")
    pytest.importorskip("mesonpy", reason="meson-python is not installed")
    build = Path(os.environ["OPDOCK_BUILD_DIR"])
    place = build.with_name(build.name + "-wheel")
    if not (place / "wheel.begun").exists():
        begin_build_folder(build, place)
        (place / "wheel.begun").touch()
    settings = {"build-dir": str(place), "compile-args": ["-j2"]}
    # Calls it as pip does. Before 23.1, pip's own --config-settings keeps only the last of several
    # setup-args.
    program = "import json, sys, mesonpy; mesonpy.build_wheel(*json.loads(sys.argv[1]))"
    run(sys.executable, "-c", program, json.dumps([str(folder), settings]), cwd=ROOT)
    return next(folder.glob("opdock-*.whl"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    given = os.environ.get("OPDOCK_TEST_WHEEL")
    return Path(given) if given else build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel):
    """Returns the Python of a clean virtual environment with nothing but the wheel."""
    # The folder is not under /tmp: plugins in a folder that others can write to are not trusted.
    folder = Path(os.environ["OPDOCK_BUILD_DIR"]) / "wheel-test"
    needs_trusted_place(folder)
    shutil.rmtree(folder, ignore_errors=True)
    # A pip of its own would take longer to install than the wheel.
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "--no-index", "--no-deps", wheel)
    return python


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in tree_plugins.always_built():
        assert f"opdock/lib/opdock/plugins/{name}.so" in names
    for name, toml in tree_plugins.declared().items():
        assert f"opdock/share/opdock/plugins-src/{name}/plugin.toml" in names
        if "reference" in toml:
            assert f"opdock/references/{name}/reference.py" in names
    for name in (
        "opdock/lib/libopdock.so.0",
        "opdock/lib/libopdock_torch.so",
        "opdock/bin/opdock",
        "opdock/bin/opdock-pack",
        "opdock/libexec/opdock/opdock-guard",
        "opdock/include/opdock/plugin.hpp",
        "opdock/share/opdock/device/opdock/device.cuh",
        "opdock/share/opdock/plugin-build/plugins/meson.build",
        "opdock/ops.pyi",
        "opdock/py.typed",
    ):
        assert name in names
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert [name for name in names if "softgpu" in name or "soft-code" in name] == []
    outside = [n for n in names if not n.startswith(("opdock/", "opdock-"))]
    assert outside == ["opdock_deepspeed.pth"]  # reads OPDOCK_DEEPSPEED at start-up
    assert all(".pytest" not in name and "/src/" not in name for name in names)


def test_a_second_wheel_comes_from_the_same_build_folder(wheel, tmp_path):
    """This works although meson-python changed the built module's RPATH when it packed the first
    wheel."""
    names = zipfile.ZipFile(build_wheel(tmp_path)).namelist()
    assert sorted(names) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_plugins_carry_gpu_images(wheel, tmp_path):
    """This holds where the build had an NVRTC."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = nvidia.submodule_search_locations if nvidia else []
    if not [lib for folder in folders for lib in Path(folder).glob("*/lib/libnvrtc.so*")]:
        pytest.skip("the build had no NVRTC wheel")
    for name in tree_plugins.with_kernels("cuda"):
        file = zipfile.ZipFile(wheel).extract(f"opdock/lib/opdock/plugins/{name}.so", tmp_path)
        archs = opdock_inspect(file)["cuda_archs"]
        assert "sm_90" in archs and any(arch.startswith("compute_") for arch in archs), name


def test_the_command_judges_the_plugins_from_site_packages(installed):
    command = installed.parent / "opdock"
    plugins = json.loads(run(command, "list", "--json"))["plugins"]
    folder = str(installed.parents[1].resolve())
    binaries = [p for p in plugins if p["path"].endswith(".so")]  # the sources are listed too
    found = {p["name"]: p for p in binaries if p["path"].startswith(folder)}
    for name in PLUGINS:
        assert found[name]["usable"], found[name]["reasons"]
        note = json.loads(run(command, "inspect", "--json", found[name]["path"]))
        assert note["verdict"] == "usable" and note["reasons"] is not None


def test_the_software_gpu_is_left_out_and_how_to_get_it_is_said(installed):
    plugin = next(installed.parents[1].rglob("plugins-src/noop"))
    words = [installed.parent / "opdock", "test", "--device=soft", plugin]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 1 and "setup-args=-Dsoftgpu=true" in done.stderr, done.stderr


def test_the_package_works_without_numpy(installed):
    program = """
import json, opdock
assert opdock.load("softmax", device="cpu").schema.startswith("softmax(")
print(json.dumps([opdock.__file__, opdock.ops.noop.__doc__]))
"""
    path, doc = json.loads(run(installed, "-c", program))
    assert path.startswith(str(installed.parents[1])) and "noop" in doc


def test_the_package_computes(installed):
    """Computes with this environment's NumPy and the wheel's package."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    program = f"""
import sys
sys.path.append({str(Path(numpy.__file__).parents[1])!r})
import numpy as np, opdock
assert "site-packages" in opdock.__file__
x = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32)
wanted = np.exp(x.astype(np.float64))
wanted /= wanted.sum(-1, keepdims=True)
print(np.abs(opdock.ops.softmax(x) - wanted).max() < 1e-6)
"""
    assert run(installed, "-c", program) == "True\n"


def test_no_folder_of_the_build_remains(installed):
    """Nothing in the installed files refers to where they were built."""
    package = next(installed.parents[1].glob("lib/python*/site-packages/opdock"))
    for path in [*package.rglob("*.so*"), package / "bin" / "opdock"]:
        text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
        for line in text.splitlines():
            if "RUNPATH" in line or "RPATH" in line:
                assert "[$ORIGIN" in line and str(ROOT) not in line, (path, line)


def build_a_plugin(command, name, **more):
    """Builds the shipped plugin noop from its source, with only the installed command."""
    tools = {tool: shutil.which(tool.lower()) for tool in ("MESON", "NINJA")}
    if None in tools.values():
        pytest.skip(f"{[tool for tool, path in tools.items() if path is None]} not found")
    cache = Path(os.environ["OPDOCK_BUILD_DIR"]) / f"{name}-cache"
    shutil.rmtree(cache, ignore_errors=True)
    source = next(Path(command).resolve().parents[1].rglob("plugins-src/noop"))
    more |= {"OPDOCK_CACHE_DIR": str(cache), **tools}
    report = json.loads(run(command, "build", "--json", source, **more))
    assert report["built"] and report["path"], report
    note = json.loads(run(command, "inspect", "--json", report["path"], **more))
    assert note["usable"] and note["ops"] == ["noop", "noop_launch"]


def test_the_wheel_builds_a_plugin_from_its_source(installed):
    package = next(installed.parents[1].glob("lib/python*/site-packages/opdock"))
    build_a_plugin(package / "bin" / "opdock", "wheel")


@pytest.fixture(scope="session")
def prefix():
    """Returns the prefix that `meson install --destdir` made."""
    if not os.environ.get("OPDOCK_TEST_WHEEL_BUILD"):
        pytest.skip("installs the whole build: meson test --suite wheel")
    pytest.importorskip("mesonbuild", reason="meson is no package of this Python")
    build = Path(os.environ["OPDOCK_BUILD_DIR"])
    folder = build / "install-test"
    needs_trusted_place(folder)
    shutil.rmtree(folder, ignore_errors=True)
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    with (build / "install.lock").open("w") as lock:  # tests/author/conftest.py explains this lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(*meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder)
    return next(folder.rglob("include/opdock/plugin.h")).parents[2]


def test_a_staged_install_works_as_it_lies(prefix):
    """Programs and library know their prefix; its plugins are found next to the library."""
    library = next(prefix.glob("lib*/**/libopdock.so.0")).parent
    environment = {"LD_LIBRARY_PATH": str(library)}
    found = json.loads(run(prefix / "bin" / "opdock", "list", "--json", **environment))["plugins"]
    paths = {p["name"]: Path(p["path"]) for p in found if p["usable"]}
    for name in PLUGINS:
        assert paths[name] == library / "opdock" / "plugins" / f"{name}.so"
    packages = next(prefix.rglob("opdock/__init__.py")).parents[1]
    program = """
import json, opdock
softmax = opdock.load("softmax", device="cpu")
print(json.dumps([opdock.__file__, softmax.schema, [p["path"] for p in opdock.plugins()]]))
"""
    environment["PYTHONPATH"] = str(packages)
    file, schema, plugins = json.loads(run(sys.executable, "-c", program, **environment))
    assert Path(file).parents[1] == packages and schema.startswith("softmax(")
    assert str(paths["softmax"]) in plugins
    assert (packages / "opdock" / "ops.pyi").is_file()


def test_a_staged_install_builds_a_plugin_from_its_source(prefix):
    library = next(prefix.glob("lib*/**/libopdock.so.0")).parent
    build_a_plugin(prefix / "bin" / "opdock", "prefix", LD_LIBRARY_PATH=str(library))
