# SPDX-License-Identifier: Apache-2.0
"""Tests the chain end to end: real sources, real tools, new processes; and where no tool is
reachable."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import pytest
from conftest import torch_programs

TREE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", ".")).resolve()
TOML = """\
name = "triple"
version = "{version}"
license = "Apache-2.0"
sources = ["triple.c"]
reference = "reference.py"

[[op]]
schema = "triple(Tensor x, *, float by=3.0) -> Tensor"
doc = "x * by, elementwise. x: float32, contiguous."
shape = ["like x"]
devices = ["cpu"]
dtypes = ["float32"]
flags = ["thread-safe"]
"""
SOURCE = """\
#include <opdock/plugin.h>

opdock_status opdock_triple_plan(const opdock_call *call, const opdock_value *args,
                                 uint32_t num_args, opdock_plan *plan) {
  (void)call, (void)num_args;
  const opdock_tensor *x = args[0].as.tensor;
  opdock_output *out = &plan->outputs[0];
  out->dtype = x->dtype;
  out->ndim = x->ndim;
  for (int32_t i = 0; i < x->ndim; ++i) out->shape[i] = x->shape[i];
  return OPDOCK_OK;
}

opdock_status opdock_triple_run(const opdock_call *call, const opdock_value *args,
                                uint32_t num_args, opdock_value *results,
                                uint32_t num_results) {
  (void)call, (void)num_args, (void)num_results;
  const opdock_tensor *x = args[0].as.tensor;
  int64_t count = 1;
  for (int32_t i = 0; i < x->ndim; ++i) count *= x->shape[i];
  const float *from = x->data;
  float *to = results[0].as.tensor->data;
  for (int64_t i = 0; i < count; ++i) to[i] = (float)(from[i] * args[1].as.f64);
  return OPDOCK_OK;
}
"""
REFERENCE = "def triple(x, *, by=3.0):\n    return x * by\n"
USE = """\
import json, numpy, opdock
x = numpy.arange(4, dtype="float32")
y = opdock.ops.triple(x)
assert type(y) is numpy.ndarray and y.dtype == x.dtype, y
chain = opdock.explain("triple")["chain"][0]
used = [step["step"] for step in chain["steps"] if step["outcome"] == "used"]
print(json.dumps({"y": y.tolist(), "used": used, "chain": chain}))
"""


class Done:
    def __init__(self, process):
        self.status, self.out, self.err = process.returncode, process.stdout, process.stderr

    @property
    def json(self):
        assert self.status == 0, self.err
        return json.loads(self.out.splitlines()[-1])


class Room:
    """A folder of plugins and a cache, and processes that see only these and nothing of the
    user's."""

    def __init__(self, top):
        self.top = top
        for name in ("plugins", "home", "empty"):
            (top / name).mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(top / "home"),
            "PYTHONPATH": str(BUILD / "python"),
            "OPDOCK_PLUGIN_PATH": str(top / "plugins"),
            "OPDOCK_CACHE_DIR": str(top / "cache"),
        }
        for name in ("ASAN_OPTIONS", "LD_PRELOAD", "LD_LIBRARY_PATH", "VIRTUAL_ENV"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def add(self, folder="triple", version="1.0", source=SOURCE):
        made = self.top / "plugins" / folder
        made.mkdir(parents=True, exist_ok=True)
        (made / "plugin.toml").write_text(TOML.format(version=version))
        (made / "triple.c").write_text(source)
        (made / "reference.py").write_text(REFERENCE)
        return made

    def run(self, code=USE, *, prefix=(), **variables):
        environment = {**self.environment, **variables}
        command = [*prefix, sys.executable, "-c", code]
        return Done(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
        )

    def no_tools(self, variables):
        """Returns variables with which no program can be found by its name."""
        return {"PATH": str(self.top / "empty"), "VIRTUAL_ENV": "", **variables}

    def without_tools(self, code=USE, **variables):
        """Does what run() does, where no program can be found by its name."""
        return self.run(code, **self.no_tools(variables))

    def with_torch(self, code, **variables):
        """Does what without_tools() does, in a process that has imported torch before."""
        return Done(torch_programs().run(code, {**self.environment, **self.no_tools(variables)}))


@pytest.fixture
def room():
    # The folder is not below /tmp, where no cache is kept.
    top = Path(tempfile.mkdtemp(prefix="chain-", dir=BUILD))
    yield Room(top)
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(scope="module")
def built():
    """Yields a room whose plugin has been built; tests do not change it."""
    top = Path(tempfile.mkdtemp(prefix="chain-", dir=BUILD))
    room = Room(top)
    room.add()
    room.first = room.run()
    yield room
    shutil.rmtree(top, ignore_errors=True)


def copy_of(built, room):
    """Copies the built room's plugin and cache into `room`."""
    shutil.copytree(built.top / "plugins", room.top / "plugins", dirs_exist_ok=True)
    shutil.copytree(built.top / "cache", room.top / "cache")
    return room


def step(done, name):
    return next(one for one in done.json["chain"]["steps"] if one["step"] == name)


# ---- built on first use, found afterwards


def test_a_source_plugin_is_built_on_first_use(built):
    assert built.first.json["y"] == [0, 3, 6, 9]
    assert built.first.json["used"] == ["build"]
    assert built.first.json["chain"]["dry"] is False
    lines = built.first.err.splitlines()
    assert lines[0].startswith("opdock: building triple")
    assert lines[-1].startswith("opdock: built triple in ")


def test_a_second_process_finds_it_at_once_and_starts_nothing(built):
    second = built.without_tools()
    assert second.json["y"] == [0, 3, 6, 9]
    assert second.json["used"] == ["build"]
    assert "in the cache" in step(second, "build")["text"]
    assert second.err == ""


def test_building_never_uses_what_was_built(built):
    assert built.run(OPDOCK_BUILD="never").json["used"] == ["build"]


def test_a_touched_or_moved_folder_is_not_built_again(built, room):
    copy_of(built, room)
    os.utime(room.top / "plugins" / "triple" / "triple.c")
    (room.top / "plugins" / "triple").rename(room.top / "plugins" / "elsewhere")
    done = room.run()
    assert done.json["used"] == ["build"] and done.err == ""


def test_an_edited_source_is_built_again_and_explain_says_which(built, room):
    copy_of(built, room)
    source = room.top / "plugins" / "triple" / "triple.c"
    source.write_text(SOURCE.replace("from[i] *", "1 + from[i] *"))
    told = room.run(
        "import json, opdock; print(json.dumps({'chain': opdock.explain('triple')['chain'][0]}))"
    )
    assert told.json["chain"]["dry"] is True
    assert any("triple.c" in change for change in step(told, "build")["changed"])
    done = room.run()
    assert done.json["y"] == [1, 4, 7, 10]
    assert any("triple.c" in change for change in step(done, "build")["changed"])


def test_of_two_versions_the_newer_is_built(room):
    room.add("old", "1.9", SOURCE.replace("from[i] *", "100 + from[i] *"))
    room.add("new", "1.10")
    assert room.run().json["y"] == [0, 3, 6, 9]


def build_ahead_of_time(room, folder):
    command = [str(BUILD / "core/cli/opdock"), "build", str(folder)]
    done = subprocess.run(
        command, env=room.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_was_built_ahead_of_time_serves_the_first_use(room):
    """Without a GPU the two builds choose different architectures for a plugin that has CUDA."""
    declaration = room.add() / "plugin.toml"
    declaration.write_text(declaration.read_text().replace('["cpu"]', '["cpu", "cuda"]'))
    build_ahead_of_time(room, declaration.parent)
    assert room.without_tools().json["used"] == ["build"]


def add_levels(room):
    """Adds the plugin triple with a source that is compiled once for each level."""
    folder = room.add()
    (folder / "meson.build").write_text(
        "opdock_plugins += [{'name': 'triple', 'toml': files('plugin.toml'),\n"
        "  'sources': files('triple.c', 'which.cc'), 'simd_sources': files('level.cc')}]\n"
    )
    declared = "#include <opdock/simd_level.hpp>\nOPDOCK_SIMD_DECLARE(int level())\n"
    (folder / "which.cc").write_text(
        f"{declared}int which() {{\n  const auto best = OPDOCK_SIMD_CHOOSE(level);\n"
        "  return best();\n}\n"
    )
    (folder / "level.cc").write_text(
        f"{declared}namespace OPDOCK_SIMD_LEVEL {{\nint level() {{ return 0; }}\n}}\n"
    )
    return folder


def compiled_levels(room):
    """Returns the levels that were compiled, for each build in the cache, oldest first."""
    logs = sorted(room.top.glob("cache/**/build.log"), key=os.path.getmtime)
    return [sorted(set(re.findall(r"triple-(\w+)\.a", log.read_text()))) for log in logs]


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="one level alone is compiled in any case"
)
def test_a_first_use_compiles_for_this_processor_alone(room):
    folder = add_levels(room)
    assert room.run().json["y"] == [0, 3, 6, 9]
    (levels,) = compiled_levels(room)
    assert len(set(levels) - {"entry"}) == 1, levels
    build_ahead_of_time(room, folder)
    assert compiled_levels(room)[1] == ["entry", "v1", "v2", "v3", "v4"]


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="one level alone is compiled in any case"
)
def test_a_first_use_compiles_a_formula_for_this_processor_alone(room):
    folder = room.top / "plugins" / "twice"
    folder.mkdir()
    (folder / "plugin.toml").write_text(
        'name = "twice"\nversion = "1.0"\nlicense = "Apache-2.0"\n[[op]]\n'
        'schema = "twice(Tensor x) -> Tensor"\nformula = "x + x"\n'
        'devices = ["cpu"]\ndtypes = ["float32"]\n'
    )
    (folder / "meson.build").write_text(
        "opdock_plugins += [{'name': 'twice', 'toml': files('plugin.toml')}]\n"
    )
    program = "import numpy, opdock; print(opdock.ops.twice(numpy.ones(2, 'float32')).tolist())"
    assert room.run(program).json == [2, 2]
    (log,) = room.top.glob("cache/**/build.log")
    levels = set(re.findall(r"twice-formulas-(\w+)\.a", log.read_text()))
    assert len(levels) == 1, levels


def test_what_was_built_for_all_processors_serves_the_first_use(room):
    build_ahead_of_time(room, add_levels(room))
    assert room.without_tools().json["used"] == ["build"]


def test_loading_a_cached_plugin_starts_no_process(built):
    code = """\
import sys, opdock
started = []
sys.addaudithook(lambda name, _: started.append(name) if "exec" in name or "fork" in name else 0)
opdock.load("triple", device="cpu")
children = open("/proc/self/task/%d/children" % __import__("os").getpid()).read()
print('{"children": %d}' % len(children.split()))
"""
    assert built.run(code).json["children"] == 0


# ---- where nothing can be built


def test_without_tools_the_reference_stands_in_with_one_warning(room, torch):
    room.add()
    code = """\
import json, warnings, numpy
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import opdock
    x = numpy.arange(4, dtype="float32")
    results = [opdock.ops.triple(x), opdock.ops.triple(x, by=2.0)]
    opdock.load("triple", device="cpu")
    out = numpy.zeros(4, "float32")
    assert opdock.ops.triple(x, out=out) is out
warning, = told
assert issubclass(warning.category, opdock.FallbackWarning), warning
print(json.dumps({"y": [r.tolist() for r in results], "out": out.tolist(),
    "type": type(results[0]).__name__, "text": str(warning.message), "file": warning.filename,
    "codes": [reason["code"] for reason in warning.message.reasons]}))
"""
    done = room.with_torch(code)
    assert done.json["y"] == [[0, 3, 6, 9], [0, 2, 4, 6]]
    assert done.json["out"] == [0, 3, 6, 9]
    assert done.json["type"] == "ndarray"
    assert "build-no-compiler" in done.json["codes"]
    assert "build from source" in done.json["text"]
    assert done.json["file"] == "<string>"


def test_the_reference_takes_torch_tensors_too(room, torch):
    room.add()
    done = room.with_torch(
        "import json, torch, opdock\n"
        "y = opdock.ops.triple(torch.arange(3, dtype=torch.float32))\n"
        "assert isinstance(y, torch.Tensor)\n"
        "print(json.dumps(y.tolist()))",
        OPDOCK_FALLBACK="silent",
    )
    assert done.json == [0, 3, 6]
    assert done.err == ""


def test_the_reference_writes_in_place_where_the_op_may(room, torch):
    """Each output may be an argument, even if the reference returns its arguments."""
    made = room.add()
    toml = (made / "plugin.toml").read_text().replace('["thread-safe"]', '["in-place"]')
    toml += """
[[op]]
schema = "swapped(Tensor x, Tensor y) -> (Tensor, Tensor)"
doc = "(y, x). x, y: float32, contiguous, of one shape."
shape = ["like y", "like x"]
devices = ["cpu"]
dtypes = ["float32"]
flags = ["in-place"]
"""
    (made / "plugin.toml").write_text(toml)
    swapped = "def swapped(x, y):\n    return y, x.view(-1)\n"
    (made / "reference.py").write_text(REFERENCE + swapped)
    done = room.with_torch(
        "import json, torch, opdock\n"
        "x, y = torch.arange(3.0), torch.ones(3)\n"
        "assert opdock.ops.triple(x, out=x) is x\n"
        "opdock.ops.swapped(x, y, out=(x, y))\n"
        "print(json.dumps([x.tolist(), y.tolist()]))",
        OPDOCK_FALLBACK="silent",
    )
    assert done.json == [[1, 1, 1], [0, 3, 6]]


def test_a_reference_draws_by_the_generator_that_it_is_given(room, torch):
    shutil.copytree(TREE / "plugins" / "dropout", room.top / "plugins" / "dropout")
    code = """\
import json, numpy, torch, opdock
x, t = numpy.ones(64, "float32"), torch.ones(64)
def kept(x, generator=None):
    return opdock.ops.dropout(x, generator=generator)[1].tolist()
own, theirs = opdock.Generator(7), torch.Generator().manual_seed(3)
found = [kept(x, own), kept(x, own), kept(x, (7, 0)), kept(x, (7, own.offset - 4)), kept(x, 8)]
seeded = []
for _ in range(2):
    opdock.manual_seed(5), torch.manual_seed(6), theirs.manual_seed(3)
    seeded.append([kept(x), kept(x), kept(t), kept(t), kept(t, theirs), kept(t, theirs)])
print(json.dumps([found, seeded]))
"""
    found, (seeded, again) = room.with_torch(code, OPDOCK_FALLBACK="silent").json
    assert found[2:4] == found[:2]
    assert seeded == again
    different = [str(mask) for mask in [*found[:2], found[4], *seeded]]
    assert len(set(different)) == len(different)


def test_an_exception_of_the_reference_reaches_the_caller(room, torch):
    made = room.add()
    (made / "reference.py").write_text("def triple(x, *, by=3.0):\n    return 1 / 0\n")
    done = room.with_torch(
        "import json, numpy, opdock\n"
        "try:\n    opdock.ops.triple(numpy.ones(2, 'float32'))\n"
        "except ZeroDivisionError as error:\n    print(json.dumps(str(error)))",
        OPDOCK_FALLBACK="silent",
    )
    assert done.json == "division by zero"


def test_a_result_that_breaks_the_shape_rule_is_refused(room, torch):
    made = room.add()
    (made / "reference.py").write_text("def triple(x, *, by=3.0):\n    return x[:1]\n")
    done = room.with_torch(
        "import json, numpy, opdock\n"
        "try:\n    opdock.ops.triple(numpy.ones(2, 'float32'))\n"
        "except RuntimeError as error:\n    print(json.dumps(str(error)))",
        OPDOCK_FALLBACK="silent",
    )
    assert "shape rule" in done.json


REFUSED = """\
import json, numpy, opdock
try:
    opdock.ops.triple(numpy.ones(2, "float32"))
except opdock.IncompatibleError as error:
    print(json.dumps({"text": str(error), "reasons": error.reasons}))
"""


def test_the_error_is_the_story_and_has_every_reason(room):
    room.add()
    told = room.without_tools(REFUSED, OPDOCK_FALLBACK="error").json
    for number, name in enumerate(["binary plugin", "run-time compilation", "build from source"]):
        assert f"\n  {number + 1}. {name}: " in told["text"]
    codes = {reason["code"]: reason for reason in told["reasons"]}
    assert codes["reference-policy"]["found"] == 'fallback = "error" (OPDOCK_FALLBACK)'
    assert codes["build-no-compiler"]["path"] == str(room.top / "plugins" / "triple")
    assert codes["build-no-compiler"]["plugin"] == "triple 1.0"


def test_a_source_that_does_not_compile_is_told_by_file_and_line(room):
    room.add(source=SOURCE.replace("int64_t count = 1;", "int64_t count = one;"))
    told = room.run(REFUSED, OPDOCK_FALLBACK="error").json
    failed = next(reason for reason in told["reasons"] if reason["code"] == "build-failed")
    assert "triple.c:19" in failed["found"], failed


def test_without_torch_the_reference_says_what_is_missing(room):
    room.add()
    hidden = "import sys; sys.modules['torch'] = None\n"
    told = room.without_tools(hidden + REFUSED).json
    reason = next(one for one in told["reasons"] if one["code"] == "reference-unusable")
    assert "needs PyTorch" in reason["text"] and "pip install torch" in reason["advice"]
    assert "found" not in reason["text"]


def test_a_reference_that_fails_is_run_once_until_it_changes(room, torch):
    made = room.add()
    count = room.top / "count"
    lines = f"open({str(count)!r}, 'a').write('x')\n"
    (made / "reference.py").write_text(lines + "import no_such_module\n" + REFERENCE)
    code = f"""\
import json, os, numpy, opdock
told = []
def call():
    try:
        told.append(opdock.ops.triple(numpy.ones(1, "float32")).tolist())
    except opdock.IncompatibleError as error:
        told.append([r["found"] for r in error.reasons if r["code"] == "reference-unusable"])
    told.append(os.path.getsize({str(count)!r}))
for _ in range(3):
    call()
path = {str(made / "reference.py")!r}
text = open(path).read()
open(path, "w").write(text.replace("import no_such_module", "import no_such_package.module"))
call()
call()
os.mkdir("no_such_package")
open("no_such_package/module.py", "w").close()
call()
print(json.dumps(told))
"""
    work = room.top / "work"
    work.mkdir()
    done = room.with_torch(f"import os; os.chdir({str(work)!r})\n" + code)
    first = ["ModuleNotFoundError: No module named 'no_such_module'"]
    second = ["ModuleNotFoundError: No module named 'no_such_package'"]
    assert done.json == [first, 1, first, 1, first, 1, second, 2, second, 2, [3.0], 3]


def test_a_reference_that_calls_its_own_op_while_imported_is_refused_at_once(room, torch):
    own = "import opdock, torch\nopdock.ops.triple(torch.ones(2))\n"
    (room.add() / "reference.py").write_text(own + REFERENCE)
    told = room.with_torch("import signal; signal.alarm(100)\n" + REFUSED).json
    reason = next(one for one in told["reasons"] if one["code"] == "reference-unusable")
    assert "within-itself" in reason["found"]


def test_a_failed_reference_keeps_nothing_of_the_call(room, torch):
    made = room.add()
    (made / "reference.py").write_text("raise ValueError('not today')\n" + REFERENCE)
    code = """\
import gc, json, weakref, numpy, opdock
def call():
    x = numpy.ones(1, "float32")
    try:
        opdock.ops.triple(x)
    except opdock.IncompatibleError:
        return weakref.ref(x)
dead = [call() for _ in range(3)]
gc.collect()
print(json.dumps([reference() is None for reference in dead]))
"""
    assert room.with_torch(code).json == [True, True, True]


def test_a_warning_turned_into_an_error_is_that_error(room, torch):
    room.add()
    done = room.with_torch(
        "import warnings, numpy, opdock\n"
        "warnings.simplefilter('error')\n"
        "try:\n    opdock.ops.triple(numpy.ones(2, 'float32'))\n"
        "except opdock.FallbackWarning as error:\n    print('true')"
    )
    assert done.json is True, done.err


# ---- policies


@pytest.mark.parametrize("place", ["environment", "program", "file"])
def test_a_policy_can_be_said_in_three_places(room, place):
    room.add()
    code, variables = REFUSED, {"OPDOCK_FALLBACK": "error"}
    if place == "environment":
        variables["OPDOCK_BUILD"] = "never"
        told = "OPDOCK_BUILD"
    elif place == "program":
        code = 'import opdock; opdock.configure(build="never", fallback="error")\n' + REFUSED
        variables["OPDOCK_BUILD"] = "always"  # configure() has precedence
        told = "opdock_options"
    else:
        config = room.top / "home" / ".config" / "opdock" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('build = "never"\n')
        config.chmod(0o600)
        told = f"{config}:1"
    reasons = room.run(code, **variables).json["reasons"]
    policy = next(reason for reason in reasons if reason["code"] == "build-policy")
    assert policy["found"] == f'build = "never" ({told})'


def test_a_wrong_policy_is_an_error_that_names_its_place(room):
    done = room.run("import opdock; opdock.plugins()", OPDOCK_BUILD="sometimes")
    assert "InvalidArgumentError" in done.err and "OPDOCK_BUILD" in done.err
    done = room.run("import opdock; opdock.configure(jit='maybe')")
    assert "InvalidArgumentError" in done.err and "jit" in done.err


# ---- Ctrl-C


def test_ctrl_c_stops_the_build_cleanly(room):
    # The source takes the compiler minutes.
    room.add(
        source="#define A(x) x x x x x x x x\n" + SOURCE + "int f(int a) { A(A(A(A(A(A(A("
        "a += a * 3;))))))) return a; }\n"
    )
    code = """\
import sys, numpy, opdock
print("ready", flush=True)
try:
    opdock.ops.triple(numpy.ones(2, "float32"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=room.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert out == "interrupted\n", err
    assert time.monotonic() - begin < 20
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/environ")
        if str(room.top).encode() in read_or_empty(path)
    ]
    assert left == []
    room.add()
    assert room.run().json["used"] == ["build"]


def read_or_empty(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_other_threads_run_while_one_builds(room):
    room.add()
    done = room.run("""\
import json, threading, time, numpy, opdock
ticks, done = 0, threading.Event()
def build():
    opdock.ops.triple(numpy.ones(2, "float32"))
    done.set()
threading.Thread(target=build).start()
while not done.is_set():
    time.sleep(0.01)
    ticks += 1
print(json.dumps(ticks))
""")
    assert done.json > 20


# ---- a machine without any compiler


def hidden_files():
    """Returns every compiler, build tool and run-time compiler that a search could find on this
    machine."""
    names = ["cc", "gcc", "g++", "c++", "clang", "clang++", "tcc", "as", "ld", "ld.lld", "ld.gold"]
    names += ["meson", "meson.py", "ninja", "ninja-build", "samu", "nvcc", "hipcc", "ptxas"]
    folders = [*os.environ["PATH"].split(":"), "/usr/bin", "/usr/local/bin", "/usr/local/cuda/bin"]
    found = {Path(folder) / name for folder in folders for name in names}
    for folder in {"/usr/bin", "/usr/local/bin"}:
        for pattern in ("*gcc*", "*g++*", "clang*", "*-ld*", "*-as"):
            found.update(Path(folder).glob(pattern))
    libraries = [Path(sysconfig.get_path("platlib")), Path("/usr/local/cuda"), Path("/usr/lib")]
    for folder in libraries:
        for pattern in ("libnvrtc*.so*", "libhiprtc*.so*", "nvcc"):
            found.update(folder.rglob(pattern))
    return sorted({path.resolve() for path in found if path.is_file()})


@pytest.fixture(scope="module")
def bare():
    """Returns a command prefix under which none of these files can be read or run."""
    top = Path(tempfile.mkdtemp(prefix="bare-", dir=BUILD))
    nothing = top / "nothing"
    nothing.touch(mode=0o000)
    script = top / "bare"
    mounts = "".join(f"mount --bind '{nothing}' '{path}'\n" for path in hidden_files())
    script.write_text(f'#!/bin/sh\nset -e\n{mounts}exec "$@"\n')
    script.chmod(0o700)
    prefix = ["unshare", "-m", str(script)]
    if os.geteuid() != 0:
        prefix.insert(1, "-r")
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        shutil.rmtree(top)
        pytest.skip(f"no mount namespace of its own can be had here: {tried.stderr.strip()}")
    yield prefix
    shutil.rmtree(top)


def test_without_any_compiler_cached_plugins_and_binaries_work(built, bare):
    compilers = "import subprocess\n" + "".join(
        f"""
try:
    subprocess.run([{name!r}, "--version"], capture_output=True, check=True)
    raise SystemExit("{name} can be run")
except OSError:
    pass
"""
        for name in ("cc", "c++", "meson", "ninja")
    )
    done = built.run(compilers + USE, prefix=bare)
    assert done.json["used"] == ["build"]
    binaries = built.run(
        "import json, numpy, opdock\n"
        "y = opdock.ops.softmax(numpy.zeros((1, 2), 'float32'))\n"
        "print(json.dumps(y.tolist()))",
        prefix=bare,
        OPDOCK_PLUGIN_PATH=str(BUILD / "plugins"),
    )
    assert binaries.json == [[0.5, 0.5]]


def test_without_any_compiler_the_reference_stands_in_and_says_why(room, bare):
    room.add()
    done = room.run(prefix=bare, OPDOCK_FALLBACK="silent")
    assert done.json["used"] == ["reference"]
    codes = [reason["code"] for reason in step(done, "build")["reasons"]]
    assert codes and all(code.startswith("build-no-") for code in codes), codes


def test_without_any_compiler_doctor_lists_what_is_missing(room, bare):
    done = room.run(
        "import json, opdock; print(json.dumps(opdock.doctor()['checks']))", prefix=bare
    )
    missing = {check["name"] for check in done.json if not check["ok"]}
    assert {"C++ compiler", "Meson", "Ninja", "NVRTC"} <= missing


def test_doctor_tells_what_cannot_be_meant(room):
    done = room.run(
        "import json, opdock; print(json.dumps(opdock.doctor()['checks']))", OPDOCK_BUILD="nver"
    )
    found = [check["found"] for check in done.json if check["name"] == "settings"]
    assert len(found) == 1 and 'OPDOCK_BUILD: found "nver"' in found[0]
