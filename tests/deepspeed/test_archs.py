# SPDX-License-Identifier: Apache-2.0
"""Tests architectures: which list applies, what is made of it, and that nothing in it crashes."""

import os

import pytest

import opdock


@pytest.fixture
def builder(compat, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    return compat.GDSBuilder()


def images(*names):
    """Returns nvcc's arguments for images such as "sm_90a" and PTX such as "compute_80"."""
    number = [name.partition("_")[2] for name in names]
    pairs = zip(names, number, strict=True)
    return [f"-gencode=arch=compute_{arch},code={name}" for name, arch in pairs]


def test_the_variable_counts_before_the_argument(builder, monkeypatch, said):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    assert builder.compute_capability_args("9.0") == images("sm_80")
    assert any("TORCH_CUDA_ARCH_LIST=8.0 is used, not 9.0" in line for line in said)


def test_the_argument_counts_before_the_default(builder):
    assert builder.compute_capability_args("9.0;7.5") == images("sm_75", "sm_90")


@pytest.mark.parametrize("separated", ["8.0;9.0a", "8.0 9.0a", "8.0,9.0a", " 8.0 ;; 9.0a "])
def test_suffixes_and_separators(builder, monkeypatch, separated):
    """DeepSpeed's builder fails on 9.0a."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", separated)
    assert builder.compute_capability_args() == images("sm_80", "sm_90a")


def test_two_digits_are_a_number(builder):
    """Compared as text, "10.0" came before "9.0", and counted as "1."."""
    assert builder.compute_capability_args("10.0;9.0;12.0") == images("sm_90", "sm_100", "sm_120")


def test_one_image_each_and_ptx_where_any_wants_it(builder):
    found = builder.compute_capability_args("8.0;8.0+PTX;9.0;8.0")
    assert found == images("sm_80", "compute_80", "sm_90")


def test_torchs_names(builder, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Hopper")
    assert builder.compute_capability_args() == images("sm_90", "compute_90")


def test_no_gpu_is_no_error(builder, monkeypatch):
    """DeepSpeed's builder raises IndexError without a GPU. Here the default list is built."""
    monkeypatch.setattr(
        "opdock.compat.deepspeed._archs.default_list", lambda: "8.0;9.0", raising=True
    )
    monkeypatch.setattr("opdock.compat.deepspeed._archs.visible_list", list)
    builder.jit_mode = True
    assert builder.compute_capability_args() == images("sm_80", "sm_90")


def test_the_gpus_here_with_ptx_for_the_newest(builder, monkeypatch):
    gpus = [{"backend": "cuda", "arch": arch} for arch in ("sm_90", "sm_100", "sm_90")]
    gpus.append({"backend": "rocm", "arch": "gfx90a"})
    monkeypatch.setattr("opdock._reports.doctor", lambda: {"machine": {"gpus": gpus}})
    builder.jit_mode = True
    assert builder.compute_capability_args() == images("sm_90", "sm_100", "compute_100")
    assert builder.cuda_capability_major() == 9


def test_what_is_no_architecture_is_named(builder, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;sm_90")
    with pytest.raises(opdock.InvalidArgumentError) as caught:
        builder.compute_capability_args()
    for part in ("TORCH_CUDA_ARCH_LIST", "'sm_90'", "9.0a"):
        assert part in str(caught.value)


def test_filters_may_return_texts_or_pairs(compat, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0;8.0;9.0a+PTX")

    class Texts(compat.GDSBuilder):
        def filter_ccs(self, ccs):
            return [cc for cc in ccs if not cc.startswith("7")]

    class Pairs(compat.GDSBuilder):
        def filter_ccs(self, ccs):
            return [pair for pair in (cc.split(".") for cc in ccs) if int(pair[0]) >= 8]

    wanted = images("sm_80", "sm_90a", "compute_90a")
    assert Texts().compute_capability_args() == Pairs().compute_capability_args() == wanted


def test_nothing_left_is_refused(compat, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)

    class Nothing(compat.GDSBuilder):
        def filter_ccs(self, ccs):
            return []

    with pytest.raises(RuntimeError, match="no compute capabilities remaining.*found 8.0"):
        Nothing().compute_capability_args("8.0")


def test_the_environment_stays_as_it_is(builder, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a 8.0")
    before = dict(os.environ)
    builder.jit_mode = True
    builder.compute_capability_args()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("version", "archs", "wanted"),
    [
        ("11.8", (60, 61, 70, 75, 80, 86, 90), "6.0;6.1;7.0;7.5;8.0;8.6;9.0"),
        ("13.0", (75, 80, 86, 90, 100, 120), "7.5;8.0;8.6;9.0;10.0;12.0"),
        ("14.2", (90, 100, 120, 140), "9.0;10.0;12.0"),
    ],
)
def test_the_default_is_what_nvcc_knows(compat, toolkit, version, archs, wanted):
    """Under CUDA 13 DeepSpeed's default is 6.0;6.1;7.0, which nvcc 13 refuses."""
    toolkit(version, archs)
    assert compat.get_default_compute_capabilities() == wanted


def test_what_arguments_ask_for():
    from opdock.compat.deepspeed._archs import from_arguments

    given = ["-O3", "-gencode", "arch=compute_80,code=sm_80", "-Xcompiler", "-Wall"]
    given += ["--generate-code=arch=compute_90a,code=[sm_90a,compute_90a]", "-arch=sm_75"]
    wanted = ["7.5+PTX", "8.0", "9.0a+PTX"]
    assert from_arguments(given) == (wanted, ["-O3", "-Xcompiler", "-Wall"])
