# SPDX-License-Identifier: Apache-2.0
"""Tests install() and uninstall() on a small package of DeepSpeed's shape, each in a new
process."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest
import small_deepspeed
from conftest import run_python

BEGIN = """
import sys, torch, opdock
from opdock.compat import deepspeed as compat
"""


@pytest.fixture
def python(tmp_path):
    """Returns a function that runs code where `deepspeed` is the small package."""
    small_deepspeed.write(tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(code, then="", **environment):
        return run_python(BEGIN + textwrap.dedent(code) + then, PYTHONPATH=path, **environment)

    return run


USED = """
from deepspeed.ops.op_builder import ALL_OPS, AsyncIOBuilder, FusedAdamBuilder, GDSBuilder
from opdock.compat.deepspeed import async_io, fused_adam
assert FusedAdamBuilder().load() is fused_adam and ALL_OPS["fused_adam"].load() is fused_adam
assert FusedAdamBuilder().jit_load(verbose=False) is fused_adam
assert AsyncIOBuilder().load(verbose=True) is async_io     # though it has a load() of its own
assert AsyncIOBuilder().is_compatible() is True            # which says no without Opdock
assert GDSBuilder().load() == GDSBuilder().load() == "their gds"
assert GDSBuilder().is_compatible() is True
"""


def test_before_deepspeed_is_imported(python):
    code = "compat.install(); assert compat.installed() and 'deepspeed' not in sys.modules"
    done = python(code, USED)
    line = "opdock: gds: DeepSpeed's own builder serves it: no plugin of Opdock's has"
    assert done.stderr.count(line) == 1


def test_after_deepspeed_is_imported(python):
    python(
        """
        from deepspeed.ops.op_builder import FusedAdamBuilder as before
        made = before()
        assert made.load() == "their fused_adam"
        compat.install()
        from opdock.compat.deepspeed import fused_adam
        assert made.load() is fused_adam and before().load() is fused_adam
        """,
        USED,
    )


def test_uninstall_takes_everything_back(python):
    python(
        """
        import deepspeed.ops.op_builder.builder as builder
        from deepspeed.ops.op_builder import AsyncIOBuilder, FusedAdamBuilder
        import deepspeed.git_version_info as info
        kinds = [builder.OpBuilder, builder.CUDAOpBuilder, AsyncIOBuilder, FusedAdamBuilder]
        def state():
            classes = [dict(vars(kind)) for kind in kinds]
            table = builder.cuda_minor_mismatch_ok
            return classes, list(sys.meta_path), dict(info.installed_ops), table
        before = state()
        for _ in range(2):
            compat.install()
            compat.install()
            assert "13.2" in builder.cuda_minor_mismatch_ok[13]  # also in DeepSpeed's own check
            assert info.installed_ops == {"async_io": True, "fused_adam": True, "gds": False}
            class Later(FusedAdamBuilder):
                pass
            compat.uninstall()
            compat.uninstall()
            assert not compat.installed()
            assert state() == before
        assert FusedAdamBuilder().load() == "their fused_adam"
        assert AsyncIOBuilder().is_compatible() is False
        """
    )


def test_uninstall_takes_the_rest_back_where_one_change_raises(python):
    python(
        """
        import deepspeed.ops.op_builder.builder as builder
        from opdock.compat.deepspeed import _install
        before = dict(vars(builder.OpBuilder))
        compat.install()
        def fails(): raise OSError("mine")
        _install._undo.insert(len(_install._undo) // 2, fails)
        try:
            compat.uninstall()
            raise AssertionError("nothing was raised")
        except OSError as error:
            assert str(error) == "mine"
        assert dict(vars(builder.OpBuilder)) == before and not compat.installed()
        compat.uninstall()
        compat.install()
        compat.uninstall()
        assert dict(vars(builder.OpBuilder)) == before
        """
    )


def test_threads_that_install_and_uninstall(python):
    """In whatever order the threads run, nothing is left after the last uninstall()."""
    python(
        """
        import random, threading
        import deepspeed.ops.op_builder.builder as builder
        import deepspeed.git_version_info as info
        from deepspeed.ops.op_builder import AsyncIOBuilder
        kinds = [builder.OpBuilder, builder.CUDAOpBuilder, AsyncIOBuilder]
        def state():
            return [dict(vars(kind)) for kind in kinds], dict(info.installed_ops)
        before, errors = state(), []
        sys.setswitchinterval(1e-6)
        def work(functions):
            for function in functions:
                try:
                    function()
                except BaseException as error:
                    errors.append(error)
        for seed in range(12):
            chosen = random.Random(seed)
            threads = [threading.Thread(target=work, args=(
                [chosen.choice([compat.install, compat.uninstall]) for _ in range(4)],))
                for _ in range(6)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            compat.uninstall()
            assert state() == before, seed
        assert not errors, errors
        """
    )


@pytest.mark.parametrize("after", [False, True])
def test_layers_know_their_model(python, after):
    """DeepSpeed numbers the layers of each model from 0. Layers that raise, and layers of a class
    with a forward() of its own, are covered too."""
    name = "deepspeed.model_implementations.transformers.ds_transformer"
    python(
        f"import {name}\ncompat.install()" if after else "compat.install()",
        f"""
import types, weakref
from {name} import DeepSpeedTransformerInference as Layer, Other
from opdock.compat.deepspeed.inference import arenas
def model(kind, count):
    Layer.layer_id = 0
    return [kind(types.SimpleNamespace()) for _ in range(count)]
def where(number):
    return arenas.current(), number
first, second = model(Layer, 2), model(Other, 3)
for layers in (first, second, first):
    found = [layer(where) for layer in layers]
    assert {{number for _, number in found}} == set(range(len(layers)))
    assert len({{id(one) for one, _ in found}}) == 1 and found[0][0] is not arenas.shared
    assert found[0][0].last_layer == len(layers) - 1
assert first[0](where)[0] is not second[0](where)[0]
def fails(number): raise OSError
try:
    first[0](fails)
except OSError:
    assert arenas.current() is arenas.shared
gone = weakref.ref(first[0](where)[0])
del first, layers, found
import gc; gc.collect()
assert gone() is None
compat.uninstall()
assert "__call__" not in vars(Layer) and Layer.__init__.__name__ == "__init__"
assert not hasattr(Layer.__init__, "__wrapped__")
assert second[0](where)[0] is arenas.shared
""",
    )


def test_no_file_of_theirs_changes(python, tmp_path):
    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*.py")}

    before = contents()
    python("compat.install()", USED + "compat.uninstall()")
    assert contents() == before


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_excluded_ops_stay_theirs(python, how):
    code = """
        compat.install({given})
        from deepspeed.ops.op_builder import FusedAdamBuilder, AsyncIOBuilder
        from opdock.compat.deepspeed import async_io
        assert FusedAdamBuilder().load() == "their fused_adam"
        assert AsyncIOBuilder().load() is async_io
        """
    if how == "argument":
        python(code.format(given="exclude=['fused_adam']"))
    else:
        python(code.format(given=""), OPDOCK_DEEPSPEED_EXCLUDE="fused_adam")


def test_the_variable_alone(python):
    """The variable works in a program that imports opdock, or in which Python's start-up imports
    it."""
    done = python("assert compat.installed()", USED, OPDOCK_DEEPSPEED="1")
    assert "is not used" not in done.stderr
    done = python("assert not compat.installed()", OPDOCK_DEEPSPEED="true")
    assert "OPDOCK_DEEPSPEED=true is not used: found neither 0 nor 1" in done.stderr
    assert python("assert not compat.installed()", OPDOCK_DEEPSPEED="0").stderr == ""


def test_pythons_start_reads_the_variable(python, tmp_path):
    """Executes the .pth file that is installed next to the package, as `site` does."""
    from pathlib import Path

    pth = Path(__file__).resolve().parents[2] / "python" / "opdock_deepspeed.pth"
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / pth.name).write_bytes(pth.read_bytes())
    code = f"""
        import site, sys
        site.addsitedir({str(folder)!r})
        print("opdock" in sys.modules)
    """
    for value, wanted in (("1", "True"), ("0", "False"), ("", "False")):
        assert run_python(code, OPDOCK_DEEPSPEED=value).stdout.strip() == wanted
    # If Python ignores the environment, so does its start-up hook.
    (folder / "opdock.py").write_text("")
    for option, wanted in (("-s", "True"), ("-I", "False"), ("-E", "False")):
        done = subprocess.run(
            [sys.executable, option, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env={**os.environ, "OPDOCK_DEEPSPEED": "1"},
        )
        assert done.stdout.strip() == wanted, done.stderr


def test_a_users_builder_on_deepspeeds_base_is_built_by_opdock(python, tmp_path):
    (tmp_path / "three.cpp").write_text(
        "#include <Python.h>\n"
        "#define JOIN2(a, b) a##b\n#define JOIN(a, b) JOIN2(a, b)\n"
        'static PyModuleDef module = {PyModuleDef_HEAD_INIT, "three", nullptr, -1};\n'
        "PyMODINIT_FUNC JOIN(PyInit_, TORCH_EXTENSION_NAME)() {\n"
        "  PyObject* made = PyModule_Create(&module);\n"
        '  PyModule_AddIntConstant(made, "three", 3);\n  return made;\n}\n'
    )
    python(
        f"""
        from deepspeed.ops.op_builder import OpBuilder
        class Mine(OpBuilder):
            def absolute_name(self): return "no.such"
            def sources(self): return [{str(tmp_path / "three.cpp")!r}]
        assert Mine("mine_op").load() == "their mine_op"
        compat.install()
        class Later(Mine):
            def is_compatible(self, verbose=False): return True
        for kind in (Mine, Later):
            module = kind("mine_op").load()
            assert module.three == 3 and "/plugin/" in module.__file__
        class No(Mine):
            def is_compatible(self, verbose=False): return False
        try:
            No("no_op").load()
            raise AssertionError("built")
        except opdock.IncompatibleError as error:
            assert "no_op" in str(error)
        compat.uninstall()
        assert Mine("mine_op").load() == "their mine_op"
        """
    )


def test_a_deepspeed_of_another_shape_is_left_alone(tmp_path):
    small_deepspeed.write(tmp_path)
    (tmp_path / "deepspeed/ops/op_builder/builder.py").write_text("class Other: pass\n")
    (tmp_path / "deepspeed/ops/op_builder/__init__.py").write_text("from .builder import Other\n")
    done = run_python(
        BEGIN + "compat.install()\nfrom deepspeed.ops.op_builder import Other\n",
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    )
    assert "deepspeed.ops.op_builder.builder is not as Opdock knows it" in done.stderr


def test_torchs_lock_of_a_dead_process_is_no_lock(tmp_path):
    """Covers pytorch#189245 for the ops that DeepSpeed's own builders compile."""
    done = run_python(
        """
        import os, sys, torch.utils.cpp_extension as cpp
        from opdock.compat.deepspeed._own import no_stale_lock
        lock = os.path.join(sys.argv[1], "lock")
        open(lock, "w").close()                      # of a process that was killed
        before = cpp.FileBaton
        assert not before(lock).try_acquire()        # and wait() would wait for ever
        with no_stale_lock():
            one, other = cpp.FileBaton(lock), cpp.FileBaton(lock)
            assert one.try_acquire() and not other.try_acquire()
            child = os.fork()
            if child == 0:
                other.wait()
                os._exit(7)
            one.release()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            assert other.try_acquire()
            other.release()
        assert cpp.FileBaton is before
        """,
        tmp_path,
    )
    assert done.returncode == 0


def test_torchs_lock_counts_while_its_process_lives(tmp_path):
    """A process without Opdock builds in the same folder, or starts while Opdock builds."""
    from torch.utils.file_baton import FileBaton

    from opdock.compat.deepspeed._own import KernelBaton

    lock = str(tmp_path / "lock")
    theirs, mine = FileBaton(lock), KernelBaton(lock, 0.01)
    assert theirs.try_acquire()
    assert not mine.try_acquire()
    waited = threading.Event()
    thread = threading.Thread(target=lambda: (mine.wait(), waited.set()))
    thread.start()
    assert not waited.wait(0.2)
    theirs.release()
    thread.join(60)
    assert waited.is_set()
    assert mine.try_acquire() and not FileBaton(lock).try_acquire()
    child = os.fork()
    if child == 0:
        os._exit(KernelBaton(lock).try_acquire())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mine.release()
    assert theirs.try_acquire()
    theirs.release()
    assert os.listdir(tmp_path) == ["lock.opdock"]


@pytest.mark.parametrize("name", ["lock", "lock.opdock"])
def test_a_link_in_a_locks_place_makes_no_file(tmp_path, name):
    from opdock.compat.deepspeed._own import KernelBaton

    victim = tmp_path / "victim"
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(OSError, match=name):
        KernelBaton(str(tmp_path / "lock")).try_acquire()
    assert not victim.exists()


def test_the_lock_ends_with_its_process(tmp_path):
    code = """
        import sys
        from opdock.compat.deepspeed._own import KernelBaton
        baton = KernelBaton(sys.argv[1])
        assert baton.try_acquire()
        print("held", flush=True)
        sys.stdin.read()
    """
    from opdock.compat.deepspeed._own import KernelBaton

    lock = str(tmp_path / "lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    mine = KernelBaton(lock)
    assert not mine.try_acquire()
    holder.kill()
    holder.wait()
    mine.wait()
    assert mine.try_acquire()
    mine.release()


INFERENCE = """
from opdock.compat.deepspeed import inference
import deepspeed.ops.op_builder as builders, deepspeed.uses
assert builders.InferenceBuilder().load() is inference
assert deepspeed.uses.InferenceBuilder().load() is inference
"""


@pytest.mark.parametrize("after", [False, True])
def test_an_op_that_the_accelerator_has_no_builder_of(python, after):
    """DeepSpeed's name for it on the CPU is a class whose load() raises."""
    before = "import deepspeed.uses\n" if after else ""
    python(
        before + "compat.install()",
        INFERENCE
        + """
theirs = builders.DeepCompileBuilder  # no plugin has it
assert theirs.__name__ == "NotImplementedBuilder"
compat.uninstall()
assert builders.InferenceBuilder is theirs and deepspeed.uses.InferenceBuilder is theirs
""",
    )


def test_such_an_op_can_be_excluded(python):
    python(
        "compat.install(exclude=['transformer_inference'])",
        """
from deepspeed.ops.op_builder import InferenceBuilder
assert InferenceBuilder.__name__ == "NotImplementedBuilder"
""",
    )
