# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/guide/testing-kernels.md in order, and compares what they print with
what the page shows."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, COMMAND, SOURCE, needs_private_build, run

TEXT = (SOURCE / "docs" / "guide" / "testing-kernels.md").read_text()
STAND_INS = BUILD / "libexec" / "opdock" / "softgpu"


def commands():
    """Returns [(command, the lines that the page shows as its output)] of the page's console
    blocks."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            found.append((command, [line for line in lines if line.strip()]))
    return found


def normal(line):
    """Removes times, addresses, and pytest's progress."""
    line = re.sub(r" in \d+\.\d+s.*", "", line.rstrip())
    return re.sub(r"\b0x[0-9a-f]+", "ADDRESS", line)


def is_shown(lines, output):
    """Returns whether the lines appear in the output in this order; else the first that does not. A
    line that ends in … matches the beginning of an output line."""
    rest = iter(map(normal, output.splitlines()))

    def follows(line):
        if line.endswith("…"):
            return any(one.startswith(line[:-1]) for one in rest)
        return normal(line) in rest

    return next((line for line in lines if not follows(line)), None)


def test_the_commands_print_what_the_page_shows(opdock, tmp_path):
    needs_private_build()
    import opdock as package

    noop = package.inspect(str(BUILD / "plugins" / "noop.so"))
    if not noop["cuda_archs"] or not noop["hip_archs"]:
        pytest.skip("there is no NVRTC or no hipRTC here")
    ran = 0
    for command, lines in commands():
        program, *words = command.split(None, 1)
        if program == "opdock":
            done = opdock(*words[0].split())
            assert done.returncode == ("failed" in "".join(lines)), done.stdout + done.stderr
            assert is_shown(lines, done.stdout) is None, done.stdout + done.stderr
            ran += 1
        elif program == "sed":
            before = (tmp_path / "scale_rows/device/scale_rows.cuh").read_text()
            subprocess.run(command, shell=True, check=True, cwd=tmp_path)
            assert (tmp_path / "scale_rows/device/scale_rows.cuh").read_text() != before
            ran += 1
    assert ran == 6


def test_the_options_are_those_there_are(opdock):
    shown = set(re.findall(r"`(--\w+)", TEXT))
    helped = set(re.findall(r"(--\w+)", opdock("test", "--help").stdout)) - {"--help"}
    assert helped - {"--device"} <= shown and {"--arch", "--warp", "--seed", "--counters"} <= helped


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--device=soft", "--arch=sm_x"], "sm_x"),
        (["--device=soft", "--arch=tpu"], '"tpu"'),
        (["--device=soft", "--arch=gfx90a", "--warp=32"], "whose warps have 64"),
        (["--device=soft", "--arch=9.0", "--warp=64"], "for sm_90, whose warps have 32"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_built(
    opdock, tmp_path, words, problem
):
    (tmp_path / "plugin.toml").write_text("")
    (tmp_path / "test_it.py").write_text("")
    done = opdock("test", *words, SOURCE / "plugins" / "noop")
    assert done.returncode == 1 and problem in done.stderr, done.stderr
    assert "building" not in done.stderr


def test_a_build_tree_without_it_says_how_to_build_it(opdock, tmp_path):
    """The folder has only the command, like a build tree without the software GPU."""
    (tmp_path / "share/opdock").mkdir(parents=True)
    (tmp_path / "core/cli").mkdir(parents=True)
    (tmp_path / "build.ninja").write_text("")
    alone = shutil.copy(COMMAND, tmp_path / "core/cli/opdock")
    done = run(
        alone, "test", "--device=soft", SOURCE / "plugins/noop", LD_LIBRARY_PATH=BUILD / "core"
    )
    assert done.returncode == 1 and f"`ninja -C {tmp_path} softgpu`" in done.stderr, done.stderr
    assert "./dev opdock test --device=soft" in done.stderr


def test_options_that_want_a_software_gpu_are_refused_without_one(opdock):
    noop = SOURCE / "plugins" / "noop"
    for words in (["--warp=64"], ["--seed=3"], ["--counters"], ["--arch=sm_90"], ["--device=cuda"]):
        done = opdock("test", *words, noop)
        assert done.returncode == 2 and "--device" in done.stderr, done.stderr


def test_a_plugin_for_the_cpu_alone_and_one_of_nvcc_are_not_run(tmp_path):
    """It reports this for each kind of GPU, and does not succeed."""
    from opdock._author import soft

    report = {"devices": [{"device": "cpu"}], "images": []}
    assert soft.why_not(report, "cuda", STAND_INS) == "the plugin has no ops for cuda"
    report = {
        "devices": [{"device": "cuda:0"}],
        "images": [{"backend": "cuda", "container": "fat binary"}],
    }
    assert "compiled by nvcc" in soft.why_not(report, "cuda", STAND_INS)
    report["images"][0]["container"] = "opdock"
    assert soft.why_not(report, "cuda", STAND_INS) is None
    assert "no stand-in for libcuda.so.1" in soft.why_not(report, "cuda", tmp_path)


def test_a_plugin_of_formulas_alone_is_built_without_images(tmp_path):
    from opdock._author.prepare import may_lack_images

    formula = '[[op]]\nschema = "f(Tensor x) -> Tensor"\nformula = "x + 1"\n'
    for more, lacks in {"": True, 'sources = ["f.cc"]\n': False}.items():
        (tmp_path / "plugin.toml").write_text(f'name = "f"\n{more}{formula}')
        assert may_lack_images(tmp_path) is lacks
    for text in (f'{formula}[device]\nsources = ["f.cuh"]\n', 'name = "f"\nsources = []\n'):
        (tmp_path / "plugin.toml").write_text(text)
        assert not may_lack_images(tmp_path)


def soft_test(report, drivers, **options):
    """Calls soft.test() for a plugin without compiling anything; returns what it runs, by
    backend."""
    from opdock._author import soft

    ran = []

    def run(arguments, env):
        ran.append(env["OPDOCK_TEST_DEVICES"])
        return 0

    given = {"arch": "", "warp": 0, "seed": 0, "counters": False}
    given |= {"code": "true", "drivers": str(drivers)} | options
    return soft.test(run, dict(os.environ), "none.so", report, given), ran


def test_kinds_that_the_plugin_does_not_claim_are_not_mentioned(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("OPDOCK_CACHE_DIR", str(tmp_path))
    for name in ("libcuda.so.1", "libamdhip64.so.6"):
        (tmp_path / name).touch()
    images = [{"backend": "cuda", "container": "opdock"}]
    report = {"devices": [{"device": "cpu"}, {"device": "cuda"}], "images": images}
    _, ran = soft_test(report, tmp_path)
    told = capfd.readouterr().out
    assert ran == ["cuda"] and "== 1 of 1: sm_90" in told and "gfx" not in told
    # A kind is mentioned if it was asked for, or if there is no other.
    status, ran = soft_test(report, tmp_path, arch="gfx90a")
    assert (status, ran) == (1, []) and "no ops for rocm" in capfd.readouterr().out
    status, ran = soft_test({"devices": [{"device": "cpu"}], "images": []}, tmp_path)
    assert (status, ran) == (1, []) and capfd.readouterr().out.count("not run") == 3


def test_no_loader_finds_the_stand_ins_by_accident(prefix):
    """The stand-ins are installed in a folder of their own, with the files that they need."""
    folder = prefix / "libexec" / "opdock" / "softgpu"
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libamdhip64.so.6", "libsoftgpu.so"):
        assert (folder / name).is_file()
        assert not [path for path in prefix.rglob(name) if path.parent != folder]
    needs = subprocess.run(["ldd", folder / "libcuda.so.1"], capture_output=True, text=True).stdout
    assert str(folder.resolve() / "libsoftgpu.so") in needs
