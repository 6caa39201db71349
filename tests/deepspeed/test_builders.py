# SPDX-License-Identifier: Apache-2.0
"""Tests the builders' interface, and that they answer as opdock.explain() does."""

import inspect
import sys

import pytest
import torch
from conftest import run_python

import opdock

# The ops as in DeepSpeed 0.7.7: the class, the op, the variable, and where it is installed.
OPS = [
    ("CPUAdamBuilder", "cpu_adam", "DS_BUILD_CPU_ADAM", "ops.adam.cpu_adam_op"),
    ("CPUAdagradBuilder", "cpu_adagrad", "DS_BUILD_CPU_ADAGRAD", "ops.adagrad.cpu_adagrad_op"),
    ("FusedAdamBuilder", "fused_adam", "DS_BUILD_FUSED_ADAM", "ops.adam.fused_adam_op"),
    ("FusedLambBuilder", "fused_lamb", "DS_BUILD_FUSED_LAMB", "ops.lamb.fused_lamb_op"),
    (
        "SparseAttnBuilder",
        "sparse_attn",
        "DS_BUILD_SPARSE_ATTN",
        "ops.sparse_attention.sparse_attn_op",
    ),
    (
        "TransformerBuilder",
        "transformer",
        "DS_BUILD_TRANSFORMER",
        "ops.transformer.transformer_op",
    ),
    (
        "StochasticTransformerBuilder",
        "stochastic_transformer",
        "DS_BUILD_STOCHASTIC_TRANSFORMER",
        "ops.transformer.stochastic_transformer_op",
    ),
    ("AsyncIOBuilder", "async_io", "DS_BUILD_AIO", "ops.aio.async_io_op"),
    ("UtilsBuilder", "utils", "DS_BUILD_UTILS", "ops.utils_op"),
    ("QuantizerBuilder", "quantizer", "DS_BUILD_QUANTIZER", "ops.quantizer.quantizer_op"),
    (
        "InferenceBuilder",
        "transformer_inference",
        "DS_BUILD_TRANSFORMER_INFERENCE",
        "ops.transformer.inference.transformer_inference_op",
    ),
    (
        "SpatialInferenceBuilder",
        "spatial_inference",
        "DS_BUILD_SPATIAL_INFERENCE",
        "ops.spatial.spatial_inference_op",
    ),
]
METHODS = [
    "absolute_name",
    "sources",
    "include_paths",
    "nvcc_args",
    "cxx_args",
    "is_compatible",
    "load",
    "jit_load",
    "builder",
    "installed_rocm_version",
    "has_function",
    "strip_empty_entries",
    "cpu_arch",
    "simd_width",
    "command_exists",
    "warning",
    "extra_ldflags",
    "libraries_args",
    "deepspeed_src_path",
    "is_rocm_pytorch",
    "hipify_extension",
    "sycl_extension",
]


@pytest.mark.parametrize(("kind", "name", "variable", "module"), OPS)
def test_ops_have_deepspeeds_names(compat, kind, name, variable, module):
    builder = getattr(compat, kind)()
    assert (builder.name, builder.NAME, builder.BUILD_VAR) == (name, name, variable)
    assert builder.absolute_name() == f"deepspeed.{module}"
    assert type(compat.ALL_OPS[name]) is getattr(compat, kind)
    assert builder.error_log is None and builder.jit_mode is False


def test_builders_have_deepspeeds_methods(compat):
    for builder in compat.ALL_OPS.values():
        assert isinstance(builder, compat.OpBuilder)
        assert [name for name in METHODS if not callable(getattr(builder, name, None))] == []
    for name in ("compute_capability_args", "filter_ccs"):
        assert callable(getattr(compat.CUDAOpBuilder, name))
    assert issubclass(compat.TorchCPUOpBuilder, compat.CUDAOpBuilder)
    assert inspect.isabstract(compat.OpBuilder)


def test_the_folder_of_builds_is_the_users(compat, monkeypatch):
    """DeepSpeed's is /tmp/torch_extensions, where anybody can write."""
    from torch.utils.cpp_extension import get_default_build_root

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert get_default_build_root() == compat.DEFAULT_TORCH_EXTENSION_PATH


def test_importing_imports_no_torch_loads_no_plugin_and_starts_nothing():
    run_python(
        """
        import subprocess, os, sys
        def refuse(*a, **k): raise AssertionError("a process was started")
        subprocess.Popen.__init__ = os.posix_spawn = os.fork = refuse
        import opdock.compat.deepspeed as compat
        assert not {"torch", "deepspeed", "numpy", "setuptools"} & set(sys.modules)
        [builder.verdict() for builder in compat.ALL_OPS.values()]
        assert "torch" not in sys.modules
        maps = open("/proc/self/maps").read()
        assert "/adam.so" not in maps and "/async_io.so" not in maps
        """,
        prelude=None,
    )


def test_the_verdict_is_that_of_explain(compat):
    builder = compat.FusedAdamBuilder()
    chosen = opdock.explain("adam_")["chosen"]
    assert builder.is_compatible(verbose=True) is True and builder.error_log is None
    assert chosen["cpu"] in builder.verdict().text or "cuda" in builder.verdict().text


def test_a_plugin_that_does_not_fit_is_explained(tmp_path):
    done = run_python(
        """
        import opdock, opdock.compat.deepspeed as compat
        builder = compat.FusedAdamBuilder()
        found = builder.is_compatible(verbose=True)
        print(found, builder.error_log)
        try:
            builder.load()
        except opdock.IncompatibleError as error:
            print("refused", error)
        """,
        OPDOCK_PLUGIN_PATH=str(tmp_path),
        PYTHONPATH=_without_deepspeed(),
    )
    assert "adam_" in done.stderr  # printed, since verbose was set
    assert "False fused_adam" in done.stdout or "False found neither" in done.stdout
    assert "refused fused_adam" in done.stdout and "install deepspeed" in done.stdout


def _without_deepspeed():
    """Returns a PYTHONPATH with a package that precedes DeepSpeed and cannot be imported."""
    import os
    import tempfile

    folder = tempfile.mkdtemp(prefix="no-deepspeed-")
    with open(os.path.join(folder, "deepspeed.py"), "w") as file:
        file.write("raise ImportError('no DeepSpeed in this test')\n")
    return os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])


def test_without_plugin_and_without_deepspeed_the_error_says_what_to_do():
    done = run_python(
        """
        import opdock, opdock.compat.deepspeed as compat
        try:
            compat.GDSBuilder().load()
        except opdock.IncompatibleError as error:
            print(error)
        """,
        PYTHONPATH=_without_deepspeed(),
    )
    for part in ("gds", "no plugin", "found neither", "wanted one of them", "install"):
        assert part in done.stdout


def test_an_excluded_op_is_not_served(compat, monkeypatch):
    monkeypatch.setenv("OPDOCK_DEEPSPEED_EXCLUDE", "fused_adam, utils")
    assert not compat.FusedAdamBuilder().verdict().serves
    assert "OPDOCK_DEEPSPEED_EXCLUDE" in compat.FusedAdamBuilder().verdict().text
    assert compat.CPUAdamBuilder().verdict().serves


def test_a_reference_in_pytorch_is_no_plugin(compat, monkeypatch):
    steps = [{"step": "binary", "outcome": "failed", "text": "", "reasons": []}]
    steps.append({"step": "reference", "outcome": "used", "text": "would stand in", "reasons": []})
    report = {"chain": [{"device": "cpu", "serves": True, "steps": steps}]}
    monkeypatch.setattr("opdock._reports.explain", lambda name: report)
    assert not compat.FusedAdamBuilder().verdict().serves


def test_with_a_gpu_that_is_not_served_the_cpu_does_not_count(compat, monkeypatch):
    reason = {
        "code": "arch-too-old",
        "severity": "reject",
        "found": "sm_50",
        "wanted": "sm_75",
        "advice": "use a newer GPU",
    }

    def device(name, outcome, reasons):
        step = {"step": "binary", "outcome": outcome, "text": "adam", "reasons": reasons}
        return {"device": name, "serves": outcome == "used", "steps": [step]}

    chain = [device("cpu", "used", []), device("cuda:0", "failed", [reason])]
    monkeypatch.setattr("opdock._reports.explain", lambda name: {"chain": chain})
    found = compat.FusedAdamBuilder().verdict()
    assert not found.serves and found.reasons == [reason]
    assert found.text == "arch-too-old: found sm_50, wanted sm_75; use a newer GPU"
    assert compat.CPUAdamBuilder().verdict().serves  # its tensors are on the CPU
    monkeypatch.setenv("DS_IGNORE_CUDA_DETECTION", "1")
    assert compat.FusedAdamBuilder().verdict().serves


def test_probing_creates_no_cuda_context(compat, monkeypatch):
    """DeepSpeed#7918: probing at import made fork unusable."""

    def refuse(*arguments, **named):
        raise AssertionError("CUDA was started")

    for name in ("_lazy_init", "init", "get_device_properties", "get_device_capability"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    for builder in compat.ALL_OPS.values():
        builder.verdict()
    for jit in (False, True):
        builder = compat.GDSBuilder()
        builder.jit_mode = jit
        assert builder.compute_capability_args()
        builder.cuda_capability_major()
    assert not torch.cuda.is_initialized()


def test_load_in_a_forked_child_and_again(compat):
    run_python(
        """
        import os, torch, opdock.compat.deepspeed as compat
        [builder.verdict() for builder in compat.ALL_OPS.values()]
        child = os.fork()
        adam = compat.FusedAdamBuilder().load()
        x = [torch.ones(8) for _ in range(4)]
        adam.multi_tensor_adam(65536, None, [[t] for t in x], .1, .9, .99, 1e-8, 1, 1, 1, 0.)
        assert x[1][0] != 1
        if child == 0: os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_served_modules_have_deepspeeds_functions(compat):
    wanted = {
        "fused_adam": ["multi_tensor_adam"],
        "cpu_adam": [
            "create_adam",
            "destroy_adam",
            "adam_update",
            "adam_update_copy",
            "adam_rollback",
        ],
        "async_io": ["aio_read", "aio_write", "deepspeed_memcpy", "aio_handle"],
        "utils": ["flatten", "unflatten", "cast_to_byte_tensor"],
    }
    for name, functions in wanted.items():
        module = compat.ALL_OPS[name].load()
        assert [f for f in functions if not callable(getattr(module, f, None))] == []
        assert compat.ALL_OPS[name].jit_load(verbose=False) is module


def test_a_subclass_of_a_served_op_with_sources_of_its_own_is_built(compat):
    class Mine(compat.FusedAdamBuilder):
        def absolute_name(self):
            return "no.such.module"

        def sources(self):
            return ["/no/such/adam.cpp"]

    builder = Mine()
    assert builder.is_compatible() is False and "/no/such/adam.cpp" in builder.error_log
    with pytest.raises(opdock.IncompatibleError, match="/no/such/adam.cpp"):
        builder.load()
    assert not builder.builder().is_served


def test_has_function_says_why_not(compat, capfd):
    """DeepSpeed#6972: the probe answered no and hid the reason."""
    builder = compat.AsyncIOBuilder()
    assert builder.has_function("cos", ("m",)) is True
    assert builder.has_function("cos", ("no_such_library",), verbose=True) is False
    for part in ("-lno_such_library", "wanted", "CFLAGS"):
        assert part in builder.error_log
    assert builder.error_log in capfd.readouterr().err
    assert builder.has_function("io_submit", ("aio_is_not_here", "aio")) is False
    assert "libaio-dev" in builder.error_log


def test_two_builders_of_one_name_are_two_ops(compat):
    """DeepSpeed keeps modules by name only: the second class got the module of the first."""
    loaded = []
    for number in (1, 2):

        class Mine(compat.OpBuilder):
            def absolute_name(self):
                return "no.such.module"

            def sources(self):
                return []

            def jit_load(self, verbose=True, number=number):
                return number

        loaded.append(Mine("same").load())
    assert loaded == [1, 2]


def test_an_installed_module_that_cannot_be_loaded_is_built_anew(compat, tmp_path, said):
    """pytorch#68905: a stale .so after an upgrade gives undefined symbols."""
    (tmp_path / "stale_op_installed.py").write_text(
        "raise ImportError('undefined symbol: _ZN3c10')"
    )
    sys.path.insert(0, str(tmp_path))

    class Mine(compat.OpBuilder):
        def absolute_name(self):
            return "stale_op_installed"

        def sources(self):
            return []

        def jit_load(self, verbose=True):
            return "built"

    try:
        assert Mine("stale").load() == "built"
    finally:
        sys.path.remove(str(tmp_path))
    assert any("undefined symbol" in line and "built anew" in line for line in said)


def test_doctor_reports_every_op(compat):
    found = compat.report()
    ops = {op["name"]: op for op in found["ops"]}
    assert set(ops) == set(compat.ALL_OPS)
    assert ops["fused_adam"]["served"] and "adam" in ops["fused_adam"]["by"]
    assert not ops["gds"]["served"] and "gds" in ops["gds"]["text"]
    assert found["installed"] is False
