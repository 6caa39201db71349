# SPDX-License-Identifier: Apache-2.0
"""Tests import, look-up, reports, documentation, stubs and entry points."""

import ast
import inspect
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tree_plugins

import opdock

X = np.ones((2, 3), np.float32)
# The CPU ops that every build of this tree has.
CPU_OPS = {
    op for toml in tree_plugins.always_built().values() for op in tree_plugins.ops(toml, "cpu")
}


def run(program, **environment):
    """Runs a program in a Python process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_brings_nothing_else():
    program = (
        "import sys, opdock; print([m for m in ('torch', 'numpy', 'jax', 'cupy') "
        "if m in sys.modules])"
    )
    assert run(program) == "[]"


def test_the_library_needs_the_system_alone():
    """The other libraries that libopdock uses are linked into it: nothing else has to be
    installed."""
    readelf = shutil.which("readelf") or pytest.skip("readelf (binutils) is not installed")
    library = Path(os.environ["OPDOCK_BUILD_DIR"]) / "core" / "libopdock.so.0"
    dynamic = subprocess.run([readelf, "-dW", library], capture_output=True, text=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", dynamic))
    system = {"libstdc++", "libm", "libgcc_s", "libc", "libdl", "libpthread"}
    assert "libc" in needed and {name for name in needed if name[:2] != "ld"} <= system, needed


def test_import_without_torch_and_numpy():
    program = """
import sys
for name in ("torch", "numpy", "jax", "cupy"):
    sys.modules[name] = None  # importing it fails
import opdock
assert opdock.plugins()
noop = opdock.load("noop", device="cpu")
try:
    noop(1)
except TypeError as error:
    print(error)
"""
    assert "wanted a tensor" in run(program)


def test_the_run_time_needs_nothing_of_the_authors_part():
    """Of the modules that a program imports, only opdock.testing needs it; the command runs the
    rest."""
    package = Path(__file__).resolve().parents[2] / "python" / "opdock"
    importing = [path.name for path in package.glob("*.py") if "_author" in path.read_text()]
    assert importing == ["testing.py"]


def test_import_touches_no_plugin_and_starts_no_process():
    program = """
import sys
events = []
sys.addaudithook(lambda name, args: events.append(name))
import opdock
libraries = open("/proc/self/maps").read()
print([e for e in events if e in ("subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn")])
print("pytests.so" in libraries, "libcuda" in libraries, "nvidia-ml" in libraries)
"""
    assert run(program).splitlines() == ["[]", "False False False"]


def test_a_torch_imported_later_is_recognised():
    pytest.importorskip("torch", reason="torch is not installed")
    program = """
import opdock
opdock.load("noop", device="cpu")
import torch
print(opdock.ops.py_copy(torch.ones(2)).tolist())
"""
    assert run(program) == "[1.0, 1.0]"


def test_load_by_op_by_plugin_and_by_both(ops):
    assert opdock.load("py_copy").schema == opdock.load("pytests/py_copy").schema
    plugin = opdock.load("pytests")
    assert "py_copy" in repr(plugin) and plugin.py_copy(X).tolist() == X.tolist()
    assert opdock.load("py_copy", device="cpu")(X).tolist() == X.tolist()
    assert opdock.load("py_copy", "cpu")(X).tolist() == X.tolist()


@pytest.mark.parametrize("first", ["load", "ops", "import"])
def test_one_function_whatever_way_it_is_found(first):
    ways = {
        "load": "found.append(opdock.load('noop', 'cpu'))",
        "ops": "found.append(opdock.ops.noop)",
        "import": "from opdock.ops import noop; found.append(noop)",
    }
    rest = [way for name, way in ways.items() if name != first]
    lines = ["import opdock", "found = []", ways[first], *rest, "print(len(set(map(id, found))))"]
    assert run("\n".join(lines)) == "1"


def test_ops_can_be_imported(ops):
    from opdock.ops import py_copy, softmax

    assert py_copy(X).tolist() == X.tolist() and softmax is ops.softmax
    with pytest.raises(ImportError, match="no_such_op"):
        from opdock.ops import no_such_op  # noqa: F401 (the import is the test)
    names = {}
    exec("from opdock.ops import *", names)
    assert CPU_OPS | {"py_copy"} <= set(names)
    assert {name for name in names if not name.startswith("__")} == set(dir(ops))


def test_nothing_of_that_name(ops):
    for name in ("no_such_op", "pytests/no_such_op", "no_such_plugin/py_copy"):
        with pytest.raises(opdock.NotFoundError, match="no_such"):
            opdock.load(name)
    assert not hasattr(ops, "no_such_op")
    with pytest.raises(AttributeError, match="no_such_op"):
        _ = ops.no_such_op


def test_a_device_that_is_no_device():
    with pytest.raises(TypeError, match="'device'"):
        opdock.load("py_copy", device="abacus")


def test_a_device_nobody_serves():
    with pytest.raises(opdock.IncompatibleError, match="py_copy|cuda"):
        opdock.load("py_copy", device="cuda:0")


@pytest.mark.parametrize("device", ["cuda:0", "rocm:0"])
def test_without_a_driver_nothing_is_tried(device, tmp_path):
    """There is one reason, and neither a compiler nor a build runs: their output could not be
    used."""
    if any(gpu["backend"] == device[:4] for gpu in opdock.doctor()["machine"]["gpus"]):
        pytest.skip(f"there is a GPU for {device}")
    program = f"""
import json, sys, opdock
events = []
sys.addaudithook(lambda name, args: events.append(name))
try:
    opdock.load("softmax", device={device!r})
except opdock.IncompatibleError as error:
    print(json.dumps([str(error), [reason["code"] for reason in error.reasons]]))
"""
    environment = {"OPDOCK_CACHE_DIR": str(tmp_path / "cache"), "OPDOCK_BUILD": "auto"}
    text, codes = json.loads(run(program, **environment))
    assert codes in (["no-driver"], ["no-gpu"]), text
    assert text.count("driver") <= 3 and "build" not in text, text
    assert not list(tmp_path.glob("cache/**/*.so"))


def test_rejected_plugins_tell_their_reasons(tmp_path):
    """Loads half of a plugin's file: the exception has the record that opdock.plugins() shows."""
    path = next(p["path"] for p in opdock.plugins() if p["name"] == "pytests")
    with open(path, "rb") as file:
        data = file.read()
    (tmp_path / "cut.so").write_bytes(data[: len(data) // 2])
    program = """
import json, opdock
plugins = opdock.plugins()
try:
    opdock.load("py_copy")
except opdock.OpdockError as error:
    print(json.dumps([type(error).__name__, str(error), error.reasons, plugins]))
"""
    found = json.loads(run(program, OPDOCK_PLUGIN_PATH=str(tmp_path)))
    name, _, reasons, plugins = found
    assert name == "IncompatibleError"
    assert plugins[0]["usable"] is False
    codes = [reason["code"] for reason in plugins[0]["reasons"]]
    assert "elf-truncated" in codes
    for reason in [*reasons, *plugins[0]["reasons"]]:
        assert {"code", "stage", "found", "wanted", "advice"} <= set(reason)
    assert codes == [reason["code"] for reason in reasons]


def test_reports():
    found = {plugin["name"]: plugin for plugin in opdock.plugins(rescan=True)}
    assert found["pytests"]["usable"] and found["pytests"]["version"] == "0.1.0"
    assert opdock.inspect(found["pytests"]["path"])["verdict"] == "usable"
    assert isinstance(opdock.explain("py_copy"), dict)
    assert isinstance(opdock.doctor(), dict)
    codes = {code["code"] for code in opdock.codes()}
    assert {"abi-major", "elf-truncated", "no-driver"} <= codes
    with pytest.raises(opdock.NotFoundError):
        opdock.inspect("/nonexistent/plugin.so")


def test_signature_and_documentation(ops):
    signature = inspect.signature(ops.py_show)
    assert str(signature).startswith("(x: 'Array', i: 'int' = 7, *, f: 'float' = 0.5")
    kinds = {name: p.kind for name, p in signature.parameters.items()}
    assert kinds["i"] == inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert kinds["f"] == kinds["out"] == inspect.Parameter.KEYWORD_ONLY
    assert signature.parameters["sizes"].default == [1, 2]
    assert signature.return_annotation == "Array"
    assert inspect.signature(ops.noop).return_annotation == "None"
    assert "out" not in inspect.signature(ops.noop).parameters
    assert inspect.signature(ops.py_two).return_annotation == "tuple[Array, Array, Array]"
    text = pydoc.plain(pydoc.render_doc(ops.py_copy))
    assert "py_copy(x, *, out=None)" in text and "in row-major order" in text
    assert ops.py_copy.__name__ == "py_copy" and "py_copy(Tensor x)" in repr(ops.py_copy)
    assert "py_copy" in dir(ops)


def test_stubs_compile_and_name_everything(tmp_path):
    from opdock import stubs

    text = stubs.generate(["py_show", "py_two", "py_add_", "noop"])
    compile(text, "stubs", "exec")
    assert "def noop(x: Array) -> None:" in text
    assert "def py_add_(x: A, *, by: float = 1.0) -> A:" in text
    assert "def py_two(x: A, y: B, *, out: tuple[A, A] | None = None) -> tuple[A, B, A]:" in text
    assert "xs: Sequence[Array] = []" in text and "d: DType | None = None" in text
    path = tmp_path / "ops.pyi"
    subprocess.run([sys.executable, "-m", "opdock.stubs", "-o", str(path)], check=True)
    assert "def py_copy(" in path.read_text()


BUILT_STUB = Path(opdock.__file__).with_name("ops.pyi")
built_stub = pytest.mark.skipif(not BUILT_STUB.is_file(), reason="built with a sanitizer: no stub")


@built_stub
def test_the_built_stub_has_every_op_of_the_built_plugins():
    stub = ast.parse(BUILT_STUB.read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    # Only usable plugins count: the stub omits a plugin that is only for GPUs whose driver is
    # missing.
    built = [p for p in opdock.plugins() if p["name"] != "pytests" and p["usable"]]
    names = {op if isinstance(op, str) else op["name"] for p in built for op in p["ops"]}
    assert names >= CPU_OPS
    assert names == set(functions) - {"__getattr__"}
    for name in names:
        parameters = inspect.signature(getattr(opdock.ops, name)).parameters
        arguments = functions[name].args
        found = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        assert found == list(parameters)
        assert ast.get_docstring(functions[name])


def test_the_driver_is_the_machines():
    """With the stand-in driver, tests that need a GPU would be skipped on a machine that has
    one."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    assert [folder for folder in folders if "softgpu" in folder] == []


# What a type checker reports for each line: a type, an error's words, or nothing.
TYPED = """\
import numpy as np
import numpy.typing as npt
import opdock
from opdock.ops import softmax
class Mine:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0
class Other(Mine): ...
x: npt.NDArray[np.float32]
m, o = Mine(), Other()
reveal_type(softmax(m))  # "user.Mine"
reveal_type(opdock.ops.softmax(o, scale=2, causal=True, out=o))  # "user.Other"
reveal_type(x)  # numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.floating[
reveal_type(softmax(x, mask=m))  # numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.floating[
a, b = opdock.ops.add_layer_norm(m, m)
reveal_type(b)  # "user.Mine"
reveal_type(opdock.ops.noop(m))  # "None"
softmax(m, scal=0.5)  # Unexpected keyword argument "scal"
softmax(m, scale="a")  # incompatible type "str"; expected "float"
softmax("text")  # Value of type variable "A" of "softmax" cannot be "str"
softmax([1.0])  # Value of type variable "A" of "softmax" cannot be
softmax(m, mask=1)  # incompatible type "int"; expected "Array | None"
class Random:
    def initial_seed(self) -> int:
        return 1
opdock.ops.dropout(m, generator=Random())
opdock.ops.dropout(m, generator=(1, 2))
opdock.ops.dropout(m, generator="1")  # Argument "generator" to "dropout" has incompatible type
opdock.ops.of_another_plugin(m, y=1)
opdock.load("softmax", "cpu")(m)
"""


@built_stub
def test_type_checkers_know_the_ops(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    program = tmp_path / "user.py"
    program.write_text(TYPED)
    # The program says nothing about torch, which some of Opdock's modules import, and whose modules
    # take most of the time to read.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    path = {"MYPYPATH": str(BUILT_STUB.parents[1])}
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings)]
    command += ["--cache-dir", str(tmp_path), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | path)
    told = {}
    for line in done.stdout.splitlines():
        where, _, words = line.partition(": ")
        if "user.py" in where:
            told.setdefault(int(where.split(":")[1]), words)
    for number, line in enumerate(TYPED.splitlines(), 1):
        wanted = line.partition("  # ")[2]
        assert (number in told) == bool(wanted), f"{line}\n{done.stdout}{done.stderr}"
        assert wanted in told.get(number, ""), line


def announce(folder, name, entry_points, module=""):
    """Lays out an installed package that announces the plugin "pytests"; returns its folder."""
    source = next(p["path"] for p in opdock.plugins() if p["name"] == "pytests")
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(module)
    (package / "mine.so").write_bytes(Path(source).read_bytes())
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[opdock.plugins]\n{entry_points}")
    return package


def environment_with(*folders):
    """Returns the environment with more folders to import from and without a plugin path."""
    path = ":".join([os.environ["PYTHONPATH"], *map(str, folders)])
    kept = {k: v for k, v in os.environ.items() if k != "OPDOCK_PLUGIN_PATH"}
    return kept | {"PYTHONPATH": path}


def test_entry_points_announce_plugins(tmp_path):
    """A package's folder is searched without importing the package."""
    entry_points = "mine = my_kernels\nlost = no_such_package\n"
    package = announce(tmp_path, "my_kernels", entry_points, "raise RuntimeError('imported')")
    program = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from opdock._runtime import package_folders
    print(package_folders())
    print([str(w.message) for w in caught])
import opdock
print([p["path"] for p in opdock.plugins() if p["name"] == "pytests"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment_with(tmp_path),
        check=True,
    )
    folders, warned, found = done.stdout.splitlines()
    assert str(package) in folders
    assert "no_such_package" in warned
    assert str(package / "mine.so") in found


def test_an_announced_subpackage_is_found_without_its_parents(tmp_path):
    """This works even if a folder between them has no __init__.py."""
    top = announce(tmp_path, "parent", "mine = parent.space.kernels\n", "raise SystemExit(3)")
    package = top / "space" / "kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit(4)")
    program = """
import sys, warnings
warnings.simplefilter("error")
from opdock._runtime import package_folders
print([f for f in package_folders() if f.startswith(sys.argv[1])], "parent" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        env=environment_with(tmp_path),
    )
    assert done.stdout.strip() == f"{[str(package)]} False", done.stderr


def test_the_console_script_shows_announced_plugins(tmp_path):
    """`opdock list`, the command itself, and `python -m opdock list` know what packages
    announce."""
    from opdock import cli

    assert cli.command() is not None
    package = announce(tmp_path, "announced", "mine = announced\n")
    environment = environment_with(tmp_path)
    program = "from opdock.cli import main; import sys; sys.argv[1:] = ['list', '--json']; main()"
    alone = {**environment, "OPDOCK_PYTHON": sys.executable}
    alone.pop("OPDOCK_PACKAGE_PATH", None)
    for words, variables in (
        ([sys.executable, "-m", "opdock", "list", "--json"], environment),
        ([sys.executable, "-c", program], environment),
        ([str(cli.command()), "list", "--json"], alone),
    ):
        done = subprocess.run(words, capture_output=True, text=True, env=variables)
        plugins = json.loads(done.stdout)["plugins"]
        assert str(package / "mine.so") in [plugin["path"] for plugin in plugins]


def look_in(site):
    """Returns what a process sees of the plugin in `site`, which a package announces."""
    program = f"import opdock, json; r = opdock.Runtime(package_path={str(site)!r})"
    program += "; print(r.list_json())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment_with()
    )
    plugins = {p["path"]: p for p in json.loads(done.stdout)["plugins"]}
    return plugins[str(site / "mine.so")]


def shared_folder(tmp_path, site):
    source = next(p["path"] for p in opdock.plugins() if p["name"] == "pytests")
    shared = tmp_path / "shared"
    (shared / site).mkdir(parents=True)
    (shared / site / "mine.so").write_bytes(Path(source).read_bytes())
    shared.chmod(0o1777)
    return shared / site


def test_an_environment_below_a_shared_sticky_folder_is_used(tmp_path):
    found = look_in(shared_folder(tmp_path, "venv/site-packages"))
    assert not {"untrusted-writable", "untrusted-owner"} & {r["code"] for r in found["reasons"]}


def test_advice_for_plugins_in_a_shared_folder_itself(tmp_path):
    reasons = {r["code"]: r for r in look_in(shared_folder(tmp_path, "."))["reasons"]}
    reason = reasons["untrusted-writable"]
    assert "everybody can write" in reason["found"]
    for words in ("virtual environment", "a folder that only you can write", "opdock trust"):
        assert words in reason["advice"]
    assert "chmod" not in reason["advice"]


def test_threads_share_the_first_look_up():
    program = """
import threading, opdock
found, barrier = [], threading.Barrier(8)
def work():
    barrier.wait()
    found.append(opdock.load("py_copy", device="cpu").schema)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(found), len(set(found)))
"""
    assert run(program) == "8 1"


def test_runtimes_of_ones_own(ops):
    path = next(p["path"] for p in opdock.plugins() if p["name"] == "pytests")
    runtime = opdock.Runtime(plugin_path=path)
    function = opdock._opdock.get_function(runtime, "py_copy")
    del runtime  # the function keeps it alive
    assert function(X).tolist() == X.tolist()
    done = threading.Event()
    threading.Thread(target=lambda: (function(X), done.set())).start()
    assert done.wait(10)


def test_a_forked_child_calls():
    # The program runs in a process without other libraries' threads, which would not exist after a
    # fork.
    program = """
import os, numpy, opdock
x = numpy.ones((200, 200), numpy.float32)
opdock.ops.py_copy(x)
child = os.fork()
if child == 0:
    os._exit(0 if (opdock.ops.py_copy(x) == x).all() else 1)
print(os.waitpid(child, 0)[1])
"""
    assert run(program) == "0"


def test_references_are_found():
    pytest.importorskip("torch", reason="torch is not installed")
    for toml in tree_plugins.declared().values():
        for op in tree_plugins.ops(toml, "cpu") if "reference" in toml else []:
            assert callable(opdock.reference(op)), op
    with pytest.raises(opdock.NotFoundError, match="no_such_op.*reference.py"):
        opdock.reference("no_such_op")


def test_a_project_around_the_package_is_not_its_own(tmp_path):
    """A virtual environment may be inside another Meson project; that project's references are not
    run."""
    pytest.importorskip("torch", reason="torch is not installed")
    package = Path(opdock.__file__).parent
    site = tmp_path / "venv" / "lib" / "site-packages"
    shutil.copytree(package, site / "opdock")
    (tmp_path / "meson.build").touch()
    for folder in (
        tmp_path / "plugins" / "other",
        tmp_path / "venv/share/opdock/plugins-src/other",
    ):
        folder.mkdir(parents=True)
        (folder / "reference.py").write_text("print('run')\ndef softmax(x): return 666\n")
    own = site / "opdock" / "references" / "mine"
    own.mkdir(parents=True)
    (own / "reference.py").write_text("def mine(x): return 7\ndef others(x): return 8\n")
    program = """
import opdock, os
print(opdock.reference("mine")(1))
for name in ("softmax", "mine"):
    try:
        print(opdock.reference(name)(1))
    except opdock.NotFoundError as error:
        print("none", "not run" in str(error))
    from opdock import _fallback
    _fallback.packaged.cache_clear()
    os.chmod(os.path.dirname(opdock.__file__) + "/references", 0o777)
"""
    libraries = Path(os.environ["OPDOCK_BUILD_DIR"]) / "core"
    found = run(program, PYTHONPATH=str(site), LD_LIBRARY_PATH=str(libraries))
    assert found.splitlines() == ["7", "none False", "none True"]


def test_a_folder_named_opdock_is_not_the_package(tmp_path):
    """When the command starts Python, the current folder is not on the import path."""
    command = Path(os.environ["OPDOCK_BUILD_DIR"]) / "core" / "cli" / "opdock"
    (tmp_path / "opdock").mkdir()
    (tmp_path / "opdock" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    done = subprocess.run(
        [command, "doctor", "--deepspeed", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OPDOCK_PYTHON": sys.executable},
    )
    assert "the wrong one" not in done.stderr and json.loads(done.stdout)["ops"], done.stderr


def test_the_command_is_found():
    from opdock import cli

    assert cli.command() is not None
    done = subprocess.run(
        [sys.executable, "-m", "opdock", "list", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = [plugin["name"] for plugin in json.loads(done.stdout)["plugins"]]
    assert "pytests" in names
