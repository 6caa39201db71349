# SPDX-License-Identifier: Apache-2.0
"""Tests the opdock command: what it prints, its JSON, its exit status."""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import pytest
from conftest import CASES, COMMAND, PLUGINS
from test_build import TOML

REASON_KEYS = {"code", "stage", "found", "wanted", "advice"}


def by_name(report):
    return {plugin["path"].rsplit("/", 1)[1]: plugin for plugin in report["plugins"]}


# ---- list


def test_list_json_has_the_agreed_members(opdock, folder):
    result = opdock("list", "--json", OPDOCK_PLUGIN_PATH=str(folder))
    assert result.status == 0 and result.err == ""
    for plugin in result.json["plugins"]:
        assert {"name", "version", "path", "usable", "ops", "reasons"} <= plugin.keys()
        for reason in plugin["reasons"]:
            assert reason.keys() >= REASON_KEYS
    good = by_name(result.json)["good.so"]
    assert good["usable"] is True and good["ops"] == ["good"] and good["reasons"] == []
    assert good["name"] == "good" and good["version"] == "1.0"


def test_list_says_why_each_other_is_not_usable(opdock, folder):
    plugins = by_name(opdock("list", "--json", "--plugin-path", folder).json)
    assert [reason["code"] for reason in plugins["note_major.so"]["reasons"]] == ["abi-major"]
    assert [reason["code"] for reason in plugins["text.so"]["reasons"]] == ["not-elf"]
    assert plugins["text.so"]["name"] is None and plugins["text.so"]["usable"] is False


def test_list_prints_a_line_a_plugin(opdock, folder):
    """Unusable plugins are shown with the codes of their reasons."""
    lines = opdock("list", "--plugin-path", folder).out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["PLUGIN", "VERSION", "VERDICT", "DEVICES"],
        ["good", "1.0", "usable", "cpu"],
        ["note_major", "1.0", "rejected", "abi-major"],
        ["text.so", "-", "rejected", "not-elf"],
    ]
    assert lines[4:] == ["", "1 of 3 usable; `opdock list --details` says why the others are not"]


@pytest.mark.parametrize(
    "words, names",
    [
        (["good"], ["good"]),
        (["go*", "text.so"], ["good", None]),
        (["--verdict", "rejected"], ["note_major", None]),
        (["--verdict", "rejected", "*_m*"], ["note_major"]),
        (["--device", "cpu"], ["good"]),
        (["--device", "rocm"], []),
    ],
)
def test_list_takes_names_and_filters(opdock, folder, words, names):
    report = opdock("list", "--json", "--plugin-path", folder, *words).json
    assert [plugin["name"] for plugin in report["plugins"]] == names
    shown = opdock("list", "--plugin-path", folder, *words).out
    assert shown.count(".so") == names.count(None) and ("PLUGIN" in shown) == bool(names)


def test_list_takes_the_name_of_an_op(opdock):
    report = opdock("list", "--json", "layer_norm", OPDOCK_PLUGIN_PATH=str(PLUGINS)).json
    assert {plugin["name"] for plugin in report["plugins"]} == {"norm"}


def test_list_of_an_unknown_name_guesses(opdock, folder):
    result = opdock("list", "goood", "good", "--plugin-path", folder)
    assert result.status == 1 and result.out == ""
    assert 'found no plugin or op named "goood"; did you mean good?' in result.err


def test_list_with_details_has_reason_and_advice(opdock, folder):
    result = opdock("list", "--details", "--plugin-path", folder)
    assert result.status == 0 and str(folder / "good.so") in result.out
    assert "abi-major: found ABI 7.5, wanted ABI 0.5" in result.out
    assert "-> rebuild the plugin" in result.out
    assert "1 of 3 usable" in result.out
    assert "\033" not in result.out


def test_list_of_nothing_says_where_to_look(opdock):
    result = opdock("list", "--plugin-path", ":")
    assert result.status == 0 and "opdock doctor" in result.out


def test_plugins_of_python_packages_are_found_without_importing_them(opdock, tmp_path):
    """Entry points announce them, also in a subpackage; plugins of another environment or of no
    package are not found."""
    site = tmp_path / "site"
    for name, value in (("first", "first.below"), ("lost", "nowhere"), ("first-1", "first.two")):
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        other = "[console_scripts]\nx = first:x\n"
        (info / "entry_points.txt").write_text(f"{other}[opdock.plugins]\nmine = {value}\n{other}")
    (site / "first" / "below").mkdir(parents=True)
    for folder in (site / "first", site / "first" / "below"):
        (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    shutil.copy(CASES / "good.so", site / "first" / "below")
    variables = {"PYTHONPATH": str(site), "OPDOCK_PYTHON": sys.executable}
    found = by_name(opdock("list", "--json", **variables).json)["good.so"]
    assert found["origin"] == "package_path" and found["path"].startswith(str(site))
    hidden = {**variables, "OPDOCK_PLUGIN_PATH": str(CASES / "note_major.so")}
    assert list(by_name(opdock("list", "--json", **hidden).json)) == ["note_major.so"]
    for python in (str(tmp_path / "none"), "/bin/false"):
        assert opdock("list", OPDOCK_PYTHON=python, PYTHONPATH=str(site)).status == 0


def test_list_shows_a_path_that_is_missing(opdock):
    result = opdock("list", "--json", OPDOCK_PLUGIN_PATH="/nowhere/at/all")
    assert [p["reasons"][0]["code"] for p in result.json["plugins"]] == ["path-missing"]


def test_list_writes_control_characters_as_text(opdock, folder):
    shutil.copy(CASES / "good_b.so", folder / "\033[31mred\n.so")
    shutil.copy(CASES / "good_b.so", folder / "x\u202eos.\u200b.so")
    result = opdock("list", "--details", "--plugin-path", folder)
    assert "\033" not in result.out and "\\x1b[31mred\\x0a.so" in result.out
    assert "\u202e" not in result.out and "x\\u202eos.\\u200b.so" in result.out


# ---- inspect


def test_inspect_json_has_the_agreed_members(opdock):
    result = opdock("inspect", CASES / "good.so", "--json")
    assert result.status == 0
    report = result.json
    assert report["verdict"] == "usable" and report["reasons"] == []
    assert report["path"] == str(CASES / "good.so")
    for key in ("cuda_archs", "hip_archs", "needed", "symbol_versions"):
        assert isinstance(report[key], list)
    assert report["note"]["name"] == "good"


def test_inspect_of_a_plain_shared_object_is_unfit(opdock):
    result = opdock("inspect", sys.executable, "--json")
    assert result.status == 1
    assert result.json["verdict"] == "rejected"
    assert any(version.startswith("GLIBC_") for version in result.json["symbol_versions"])


def test_inspect_wraps_long_lists(opdock):
    """The command itself needs dozens of symbol versions."""
    lines = opdock("inspect", COMMAND).out.splitlines()
    assert any(line.startswith("symbol versions   ") for line in lines)
    assert any(line.startswith(" " * 18 + "GLIBC") for line in lines)
    assert max(len(line) for line in lines if "GLIBC_" in line) <= 79


def test_inspect_of_a_broken_file_is_unfit_and_says_why(opdock, folder):
    result = opdock("inspect", folder / "text.so")
    assert result.status == 1 and "not-elf" in result.out


def test_inspect_of_no_file_is_bad_usage(opdock):
    result = opdock("inspect", "/nowhere/at/all.so")
    assert result.status == 2 and result.out == ""
    assert "/nowhere/at/all.so" in result.err and "correct the path" in result.err


def test_inspect_of_a_folder_without_native_code_is_unfit(opdock, tmp_path):
    result = opdock("inspect", tmp_path, "--json")
    assert result.status == 1 and result.json["reasons"][0]["code"] == "nothing-native"


# ---- explain


def test_explain_names_the_plugin_chosen(opdock, folder):
    result = opdock("explain", "good", "--json", "--plugin-path", folder)
    assert result.status == 0
    assert result.json["chosen"] == {"cpu": str(folder / "good.so")}


def test_explain_puts_the_newest_first_and_says_why_not_the_other(opdock, folder):
    shutil.copy(CASES / "good_v2.so", folder)
    report = opdock("explain", "good", "--json", "--plugin-path", folder).json
    assert [c["version"] for c in report["candidates"]] == ["2.0", "1.0"]
    assert "superseded" in [reason["code"] for reason in report["candidates"][1]["reasons"]]


def test_explain_of_what_only_an_unfit_plugin_has_is_unfit(opdock, folder):
    result = opdock("explain", "note_major", "--plugin-path", folder)
    assert result.status == 1 and "abi-major" in result.out


def test_explain_of_an_unknown_name_lists_the_known_ops(opdock, folder):
    result = opdock("explain", "nothing", "--plugin-path", folder)
    assert result.status == 1 and "known ops: good" in result.err


def test_explain_of_an_unknown_name_among_many_lists_none(opdock):
    """If a similar name exists, only that is reported; otherwise the message tells where the names
    are listed."""
    many = {"OPDOCK_PLUGIN_PATH": str(PLUGINS)}
    told = opdock("explain", "sofmax", **many).err
    assert "did you mean softmax" in told and told.count("\n") == 1
    assert "adam" not in told and "known ops" not in told
    told = opdock("explain", "qqqqqq", **many).err
    assert "`opdock list`" in told and "adam" not in told


def test_the_name_of_a_plugin_is_guessed_too(opdock):
    many = {"OPDOCK_PLUGIN_PATH": str(PLUGINS)}
    assert "did you mean norm?" in opdock("explain", "norms", **many).err
    for command in ("show", "run"):
        assert "did you mean an op of the plugin norm?" in opdock(command, "norms", **many).err


def test_a_misspelt_op_is_guessed(opdock, folder):
    result = opdock("explain", "goood", "--plugin-path", folder)
    assert result.status == 1 and "did you mean good?" in result.err
    assert opdock("explain", "goood", "--json", "--plugin-path", folder).json["near_ops"] == [
        "good"
    ]
    result = opdock("run", "goood", "--plugin-path", folder)
    assert result.status == 1 and "did you mean good?" in result.err


def test_explain_codes_lists_every_code(opdock):
    codes = opdock("explain", "--codes", "--json")
    assert codes.status == 0
    names = [code["code"] for code in codes.json]
    assert len(names) == len(set(names)) and "abi-major" in names
    assert all(set(code) == {"code", "stage", "meaning", "cause", "advice"} for code in codes.json)
    text = opdock("explain", "--codes").out
    assert all(name in text for name in names)


def test_explain_of_a_code_says_what_it_means(opdock):
    codes = {code["code"]: code for code in opdock("explain", "--codes", "--json").json}
    assert opdock("explain", "abi-major", "--json").json == codes["abi-major"]
    result = opdock("explain", "abi-major")
    assert result.status == 0
    assert codes["abi-major"]["meaning"] in result.out and "-> rebuild the plugin" in result.out
    assert result.out.count("\n") == 3


def test_explain_without_a_name_is_bad_usage(opdock):
    assert opdock("explain").status == 2


# ---- show


def test_show_says_what_an_op_is_and_who_serves_it(opdock, folder):
    result = opdock("show", "good", "--json", "--plugin-path", folder)
    assert result.status == 0, result.err
    report = result.json
    assert report["schema"].startswith("good(") and report["usable"] is True
    assert report["candidates"][0]["op"]["devices"] == ["cpu"]
    text = opdock("show", "good", "--plugin-path", folder).out
    assert text.startswith(report["schema"] + "\n") and str(folder / "good.so") in text


def test_show_has_the_documentation_dtypes_and_flags(opdock):
    result = opdock("show", "softmax", OPDOCK_PLUGIN_PATH=str(PLUGINS / "softmax.so"))
    assert result.status == 0, result.err
    assert "bfloat16" in result.out and "capture-safe" in result.out
    declared = (
        pathlib.Path(__file__).parents[2] / "plugins" / "softmax" / "plugin.toml"
    ).read_text()
    first = re.search(r'doc = """?\s*(.*)', declared).group(1).strip().strip('"')
    assert first[:40] in result.out


def test_show_of_what_only_a_source_plugin_has(opdock, tmp_path):
    folder = tmp_path / "doubled"
    folder.mkdir()
    (folder / "doubled.c").write_text("")
    (folder / "plugin.toml").write_text(TOML)
    result = opdock("show", "doubled", "--plugin-path", folder, "--json")
    assert (
        result.json["doc"] == "Does nothing." and result.json["schema"] == "doubled(Tensor x) -> ()"
    )
    assert result.json["candidates"][0]["op"]["dtypes"] == ["float32"]


@pytest.mark.parametrize(
    "name, told", [("goood", "did you mean good?"), ("note_majr", "did you mean")]
)
def test_show_of_an_unknown_op_is_unfit_and_guesses(opdock, folder, name, told):
    result = opdock("show", name, "--plugin-path", folder)
    assert result.status == 1 and result.out == "" and told in result.err


def test_show_of_a_plugin_names_its_ops(opdock):
    result = opdock("show", "norm", OPDOCK_PLUGIN_PATH=str(PLUGINS / "norm.so"))
    assert result.status == 1 and "layer_norm" in result.err


FORMULAS = '''name = "formulas"
version = "1.0"
license = "MIT"
[[op]]
schema = "mix(Tensor x, Tensor? w=None, *, float a=0.5) -> Tensor"
formula = """
y=x*a
y * w if w else y"""
[[op]]
schema = "bits(Tensor x) -> Tensor"
doc = "The lowest bit."
dtypes = ["int32"]
formula = "x & 1"
'''


@pytest.fixture
def formulas(tmp_path):
    folder = tmp_path / "formulas"
    folder.mkdir()
    (folder / "plugin.toml").write_text(FORMULAS)
    return folder


def test_show_has_an_op_s_formula_in_its_own_layout(opdock, formulas):
    result = opdock("show", "mix", "--plugin-path", formulas)
    assert result.status == 0, result.err
    assert result.out.startswith(
        "mix(Tensor x, Tensor? w=None, *, float a=0.5) -> Tensor\n"
        "\n"
        "  formula     y = x * a\n"
        "              return y * w if w else y\n"
        "  devices     cpu, cuda, rocm\n"
    )
    result = opdock("show", "bits", "--plugin-path", formulas)
    assert result.out.startswith(
        "bits(Tensor x) -> Tensor\n  The lowest bit.\n\n  formula     x & 1\n"
    )
    report = opdock("show", "mix", "--json", "--plugin-path", formulas).json
    assert report["formula"] == report["doc"] == "y = x * a\nreturn y * w if w else y"
    assert "kernel" not in report


def test_show_has_no_formula_of_an_op_without_one(opdock, folder):
    assert opdock("show", "good", "--json", "--plugin-path", folder).json["formula"] is None
    result = opdock("show", "good", "--kernel", "--plugin-path", folder)
    assert result.status == 1 and result.out == ""
    assert result.err.endswith(
        "opdock: op 'good': found no formula that can be loaded, wanted an op that is one; "
        "`opdock explain good` says what provides it\n"
    )


@pytest.mark.parametrize(
    "words, element",
    [([], "float"), (["--dtype", "float16"], "half"), (["--dtype=bfloat16"], "bfloat16")],
)
def test_show_prints_the_kernel_for_a_dtype(opdock, formulas, words, element):
    result = opdock("show", "mix", "--kernel", *words, "--plugin-path", formulas)
    assert result.status == 0 and result.err == ""
    assert "OPDOCK_KERNEL(512)\nkernel(FormulaSpace<0, 3> p, double" in result.out
    assert result.out.count(f"place.first<{element}>(p, ") == 3  # x, w and the result
    report = opdock("show", "mix", "--kernel", *words, "--json", "--plugin-path", formulas).json
    assert report["kernel"] == result.out


def test_show_prints_the_kernel_for_the_first_dtype_that_is_declared(opdock, formulas):
    result = opdock("show", "bits", "--kernel", "--plugin-path", formulas)
    assert result.status == 0 and "place.first<int32_t>(p, 0)" in result.out


@pytest.mark.parametrize(
    "words, told",
    [
        (
            ["--kernel", "--dtype", "float8_e4m3fn"],
            'found the dtype "float8_e4m3fn", wanted bool, uint8, int8 to int64, float16, '
            "bfloat16, float32 or float64\n",
        ),
        (["--kernel", "--dtype", "float32"], "op 'bits' for float32: formula: line 1, column 3: "),
        (["--dtype", "float32"], "show: found --dtype without --kernel, wanted both or neither"),
    ],
)
def test_show_of_a_kernel_that_there_is_not(opdock, formulas, words, told):
    result = opdock("show", "bits", *words, "--plugin-path", formulas)
    assert result.status == 2 and result.out == ""
    assert result.err.startswith(f"opdock: {told}"), result.err


# ---- doctor, trust


def test_doctor_says_what_is_there_and_what_is_missing(opdock, folder):
    result = opdock("doctor", "--json", OPDOCK_PLUGIN_PATH=str(folder))
    assert result.status == 0
    checks = {check["name"]: check for check in result.json["checks"]}
    assert checks["CPU"]["ok"] and checks["C library"]["ok"]
    for check in checks.values():
        assert check["ok"] or (check["for"] and check["advice"])
    assert result.json["plugins"] == {"found": 3, "usable": 1, "undecided": 0, "rejected": 2}


TOOLS = [
    *("libcuda", "nvml", "g++", "clang++", "meson", "ninja"),
    *("nvcc", "nvrtc", "cudnn", "hipcc", "hiprtc", "python", "torch"),
]


def test_doctor_names_the_package_of_everything_that_is_missing(opdock, tmp_path):
    """PATH and HOME are empty folders; programs in system folders may exist or not."""
    report = opdock("doctor", "--json", PATH=str(tmp_path)).json
    tools = {tool["name"]: tool for tool in report["tools"]}
    assert list(tools) == TOOLS
    assert tools["meson"]["path"] is None and tools["g++"]["path"] is None
    checks = {check["name"]: check for check in report["checks"]}
    for name, package in (
        ("C++ compiler", "apt install g++"),
        ("Meson", "apt install meson"),
        ("Ninja", "apt install ninja-build"),
        ("Python", "apt install python3"),
    ):
        assert not checks[name]["ok"]
        assert package in checks[name]["advice"]
        assert checks[name]["for"]
    assert {
        "CUDA library",
        "NVML",
        "nvcc",
        "NVRTC",
        "cuDNN",
        "hipcc",
        "hipRTC",
        "torch",
    } <= checks.keys()
    text = opdock("doctor", PATH=str(tmp_path)).out
    assert "apt install ninja-build" in text and "C++ compiler" in text


def test_doctor_names_what_is_there(opdock, tmp_path):
    program = tmp_path / "bin" / "ninja"
    program.parent.mkdir()
    program.write_text("#!/bin/false\n")
    program.chmod(0o755)
    result = opdock("doctor", "--json", PATH=str(program.parent))
    checks = {check["name"]: check for check in result.json["checks"]}
    assert checks["Ninja"]["ok"] and str(program) in checks["Ninja"]["found"]
    assert checks["libstdc++"]["ok"] and "unknown" not in checks["libstdc++"]["found"]


WAYS = [
    *("binary plugins", "run-time compilation, CUDA", "run-time compilation, HIP"),
    "run-time compilation, CPU",
    *("building from source", "building with nvcc", "building with hipcc"),
    "linking libtorch with nvcc",
]


def ways_of(report):
    return {way["name"]: way for way in report["ways"]}


def codes_of(way):
    return [reason["code"] for reason in way["reasons"]]


def test_doctor_judges_every_way_ahead_of_time(opdock):
    ways = ways_of(opdock("doctor", "--json").json)
    assert list(ways) == WAYS
    for way in ways.values():
        assert way["verdict"] in ("ready", "not ready", "unsure")
        rejecting = [r for r in way["reasons"] if r["severity"] == "reject"]
        assert (way["verdict"] == "not ready") == bool(rejecting or way["needs"])
        for reason in way["reasons"]:
            assert reason.keys() >= REASON_KEYS and reason["advice"]
    assert ways["binary plugins"]["verdict"] == "ready"


def test_doctor_with_nothing_in_path_says_what_building_misses(opdock, tmp_path):
    result = opdock("doctor", PATH=str(tmp_path), CUDA_HOME=str(tmp_path))
    for text in ("not ready building from source", "apt install g++", "pip install meson"):
        assert text in result.out
    ways = ways_of(opdock("doctor", "--json", PATH=str(tmp_path)).json)
    assert {"build-no-compiler", "build-no-meson", "build-no-ninja"} <= set(
        codes_of(ways["building from source"])
    )
    assert ways["building with nvcc"]["needs"] == "building from source"
    assert ways["building with hipcc"]["verdict"] == "not ready"


def test_doctor_says_whether_formulas_are_compiled_on_the_cpu(opdock, tmp_path):
    name = "run-time compilation, CPU"
    found = ways_of(opdock("doctor", "--json").json)[name]
    assert found["verdict"] == "ready" and found["found"].endswith(", for formulas")
    # A compiler that finds no header at all.
    real = shutil.which("c++")
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec {real} -nostdinc "$@"\n')
    compiler.chmod(0o755)
    found = ways_of(opdock("doctor", "--json", CXX=str(compiler)).json)[name]
    assert codes_of(found) == ["build-header-missing"] and found["verdict"] == "not ready"
    assert "libhwy-dev" in found["reasons"][0]["advice"]
    found = ways_of(opdock("doctor", "--json", PATH=str(tmp_path), CXX="/nonexistent").json)[name]
    assert codes_of(found) == ["build-no-compiler"]


def fake_tools(folder, **texts):
    """Makes programs that answer any question with their text; NVCC's answers also --help and
    --dryrun."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        program = folder / name.replace("_", "+")
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        program.chmod(0o755)
    return {
        "PATH": f"{folder}:/usr/bin:/bin",
        "MESON": f"{folder}/meson",
        "NINJA": f"{folder}/ninja",
    }


def test_doctor_names_tools_that_are_too_old(opdock, tmp_path):
    names = {"CXX": "g++", "CC": "gcc"}
    tools = fake_tools(tmp_path / "old", meson="0.63.0", ninja="1.7.2", gcc="9.4.0")
    tools |= fake_tools(tmp_path / "old", **{"g__": "g++ (Debian 9.4.0-1) 9.4.0"})
    way = ways_of(opdock("doctor", "--json", **tools, **names).json)["building from source"]
    old = [reason for reason in way["reasons"] if reason["code"] == "tool-too-old"]
    assert [reason["wanted"].split()[0] for reason in old] == ["g++", "meson", "ninja"]
    assert "found" not in way["found"] and "meson 0.63.0" in way["found"]


def test_doctor_judges_nvcc_with_the_host_compiler_and_the_archs(opdock, tmp_path):
    toolkit = tmp_path / "cuda"
    (toolkit / "include" / "crt").mkdir(parents=True)
    (toolkit / "include" / "crt" / "host_config.h").write_text(
        "#if __GNUC__ > 11\n#error -- unsupported GNU version!\n#endif\n"
    )
    answer = f"Cuda compilation tools, release 12.9, V12.9.86\n#$ TOP={toolkit}\n'sm_80','sm_90'"
    tools = fake_tools(tmp_path / "bin", nvcc=answer, meson="1.4.0", ninja="1.11.1")
    tools |= fake_tools(tmp_path / "bin", **{"g__": "g++ (GCC) 12.2.0", "gcc": "12.2.0"})
    tools |= {"CXX": "g++", "CC": "gcc", "CUDACXX": f"{tmp_path}/bin/nvcc"}
    way = ways_of(opdock("doctor", "--json", **tools).json)["building with nvcc"]
    assert "nvcc 12.9.86" in way["found"]
    refused = [r for r in way["reasons"] if r["code"] == "build-host-compiler"]
    assert len(refused) == 1 and refused[0]["found"] == "g++ 12.2.0"
    assert (
        f"gcc 11 or older for nvcc 12.9 ({toolkit}/include/crt/host_config.h)"
        in (refused[0]["wanted"])
    )
    way = ways_of(opdock("doctor", "--json", **tools, TORCH_CUDA_ARCH_LIST="6.0").json)[
        "building with nvcc"
    ]
    assert "6.0 in TORCH_CUDA_ARCH_LIST" in way["reasons"][0]["found"]
    way = ways_of(opdock("doctor", "--json", **tools, TORCH_CUDA_ARCH_LIST="Hopper").json)[
        "building with nvcc"
    ]
    assert "9.0+PTX (TORCH_CUDA_ARCH_LIST)" in way["found"]


def test_doctor_survives_tools_that_hang_up_or_lie(opdock, tmp_path):
    tools = fake_tools(tmp_path / "bin", meson="no number", ninja="", gcc="", **{"g__": ""})
    for name in ("ninja", "g++"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nkill -9 $$\n")
    way = ways_of(opdock("doctor", "--json", **tools, CXX="g++", CC="gcc").json)[
        "building from source"
    ]
    codes = codes_of(way)
    assert codes.count("tool-unknown") == 2 and "build-no-compiler" in codes


def test_doctor_tells_the_cache_s_state(opdock, tmp_path):
    cache = opdock("doctor", "--json", OPDOCK_CACHE_DIR=str(tmp_path / "cache")).json["cache"]
    assert cache["folder"] == str(tmp_path / "cache")
    assert cache["usable"] or cache["reasons"]
    cache = opdock("doctor", "--json", OPDOCK_CACHE_MAX_BYTES="lots").json["cache"]
    assert "cache-setting" in [reason["code"] for reason in cache["reasons"]]


def test_doctor_without_a_usable_plugin_is_unfit(opdock, tmp_path):
    assert opdock("doctor", "--plugin-path", tmp_path).status == 1


@pytest.mark.parametrize(
    "text, told",
    [("build =", "not TOML"), ('build = "nver"\nx = 1\n', 'did you mean "never"?')],
)
def test_doctor_tells_what_is_wrong_with_the_settings_and_goes_on(
    opdock, tmp_path, folder, text, told
):
    config = tmp_path / "home" / ".config" / "opdock" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text)
    variables = {"OPDOCK_PLUGIN_PATH": str(folder), "OPDOCK_JIT": "sometimes"}
    assert opdock("list", **variables).status == 2
    result = opdock("doctor", "--json", **variables)
    assert result.status == 1, result.err
    found = [one for one in result.json["checks"] if one["name"] == "settings"]
    assert not any(one["ok"] for one in found) and all(one["advice"] for one in found)
    texts = "\n".join(one["found"] for one in found)
    assert told in texts and str(config) in texts and "OPDOCK_JIT" in texts
    assert len(found) == text.count("\n") + (0 if "\n" in text else 1) + 1
    assert result.json["plugins"]["usable"] == 1
    text = opdock("doctor", **variables).out
    assert told in text and "An op can come from:" in text and str(folder) in text


def test_doctor_names_where_settings_come_from(opdock, folder):
    report = opdock("doctor", "--json", OPDOCK_PLUGIN_PATH=str(folder), OPDOCK_BUILD="never").json
    found = [one for one in report["checks"] if one["name"] == "settings"]
    assert [(one["ok"], one["found"]) for one in found] == [(True, "OPDOCK_BUILD")]


def test_trust_lets_a_folder_that_others_can_write_be_used(opdock, tmp_path):
    data = tmp_path / "data"
    plugins = data / "opdock" / "plugins"
    plugins.mkdir(parents=True)
    shutil.copy(CASES / "good.so", plugins)
    plugins.chmod(0o777)
    variables = {"XDG_DATA_HOME": str(data)}
    before = by_name(opdock("list", "--json", **variables).json)["good.so"]
    assert before["reasons"][0]["code"] in ("untrusted-writable", "untrusted-owner")
    refused = opdock("trust", plugins, **variables)
    assert refused.status == 2 and "everybody may write" in refused.err
    assert by_name(opdock("list", "--json", **variables).json)["good.so"]["usable"] is False
    assert opdock("trust", "--force", plugins, **variables).status == 0
    after = by_name(opdock("list", "--json", **variables).json)["good.so"]
    assert after["usable"] is True
    recorded = tmp_path / "home" / ".config" / "opdock" / "trusted"
    assert recorded.read_text() == f"{plugins}\n" and recorded.stat().st_mode & 0o777 == 0o600


def test_trust_of_a_relative_folder_means_the_one_here(opdock, tmp_path, folder):
    trusted = opdock("trust", "plugins", "--json").json
    assert trusted == {"folder": str(folder), "consent": True, "trusted": True, "reasons": []}


def test_trust_is_listed_and_taken_back(opdock, tmp_path):
    here, gone = tmp_path / "here", tmp_path / "gone"
    assert "No folder was trusted" in opdock("trust", "--list").out
    for folder in (here, gone):
        folder.mkdir()
        assert opdock("trust", folder).status == 0
    gone.rmdir()
    assert opdock("trust", "--list").out == f"{here}\n{gone} - not there\n"
    assert opdock("trust", "--list", "--json").json["trusted"] == [str(here), str(gone)]
    assert opdock("trust", "--remove", gone).status == 0
    assert opdock("trust", "--remove", here).out == f"The consent for {here} was taken back.\n"
    assert opdock("trust", "--list", "--json").json["trusted"] == []
    again = opdock("trust", "--remove", here)
    assert again.status == 2 and "`opdock trust --list`" in again.err


@pytest.mark.parametrize("name", ["gone", "./gone", "x/../gone/", "./gone/."])
def test_trust_of_a_folder_that_is_gone_is_taken_back_by_any_name(opdock, tmp_path, name):
    gone = tmp_path / "gone"
    gone.mkdir()
    assert opdock("trust", gone).status == 0
    gone.rmdir()
    assert opdock("trust", "--remove", name).status == 0
    assert opdock("trust", "--list", "--json").json["trusted"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--remove"],
        ["--list", "/tmp"],
        ["--force"],
        ["--force", "--remove", "/tmp"],
        ["/"],
    ],
)
def test_trust_wants_one_thing(opdock, arguments):
    result = opdock("trust", *arguments)
    assert result.status == 2 and result.err and not result.out


def test_trust_of_a_link_that_others_can_turn_says_so(opdock, tmp_path):
    plugins, way = tmp_path / "plugins", tmp_path / "way"
    plugins.mkdir()
    way.mkdir()
    (way / "link").symlink_to(plugins)
    way.chmod(0o777)
    result = opdock("trust", way / "link")
    assert result.status == 1 and f"{way} with mode 0777" in result.out
    assert opdock("trust", plugins).status == 0
    assert opdock("trust", "--force", way).status == 0
    assert opdock("trust", way / "link").status == 0


@pytest.mark.parametrize("what", ["/nowhere/at/all", "/dev/null"])
def test_trust_of_what_is_no_folder_is_bad_usage(opdock, what):
    result = opdock("trust", what)
    assert result.status == 2 and what in result.err


# ---- usage


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["doctor", "extra"],
        ["list", "--nonsense"],
        ["inspect"],
        ["trust"],
        ["run"],
        ["run", "good", "--arg", "x"],
        ["run", "good", "--device", "tpu"],
        ["run", "good", "--seed", "x"],
    ],
)
def test_bad_usage_is_2_with_a_line_on_stderr(opdock, folder, arguments):
    result = opdock(*arguments, OPDOCK_PLUGIN_PATH=str(folder))
    assert result.status == 2 and result.out == ""
    assert result.err.startswith("opdock: ") and result.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["list", "--help"], ["--version"]])
def test_help_and_version_are_good(opdock, arguments):
    result = opdock(*arguments)
    assert result.status == 0 and result.out and result.err == ""


def read_terminal(arguments, environment):
    """Returns what the command prints on a terminal of 60 columns."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", "60"], stdin=slave, check=True)
    process = subprocess.Popen(arguments, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    data = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
    process.wait()
    os.close(master)
    return data.decode()


def test_colours_and_wrapping_are_for_terminals_only(folder):
    variables = {"TERM": "xterm", "HOME": "/nowhere", "OPDOCK_PLUGIN_PATH": str(folder)}
    text = read_terminal([COMMAND, "explain", "--codes"], variables)
    assert "\033[" in text
    text = read_terminal([COMMAND, "explain", "--codes"], {**variables, "NO_COLOR": "1"})
    assert "\033[" not in text
    assert max(len(line) for line in text.splitlines()) <= 60


# ---- run, on the plugins of the tree


def run_op(opdock, *arguments):
    return opdock("run", *arguments, OPDOCK_PLUGIN_PATH=str(PLUGINS))


def test_run_prints_the_result(opdock):
    result = run_op(opdock, "softmax", "--arg", "x=[[0, 0], [0, 0]]")
    assert result.status == 0
    assert result.out == "float32 (2, 2)\n[[0.5, 0.5],\n [0.5, 0.5]]\n"


def test_run_takes_arguments_as_they_are_meant(opdock):
    result = run_op(opdock, "softmax", "x=[[0, 0]]", "--arg", "scale=0.5", "--json")
    assert result.json["results"][0]["values"] == [0.5, 0.5], result.err
    assert run_op(opdock, "softmax", "x=[[0, 0]]", "scale=0.5", "--json").out == result.out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_run_takes_other_dtypes(opdock, dtype):
    result = run_op(opdock, "softmax", "--arg", f"x=zeros(2,4):{dtype}", "--json")
    assert result.json["results"] == [{"dtype": dtype, "shape": [2, 4], "values": [0.25] * 8}]


def test_run_gives_the_same_numbers_for_the_same_seed(opdock):
    arguments = ("softmax", "--arg", "x=randn(3,5)", "--json")
    first = run_op(opdock, *arguments).out
    assert run_op(opdock, *arguments).out == first
    assert run_op(opdock, *arguments, "--seed", "7").out != first


@pytest.mark.parametrize(
    "arguments, status, text",
    [
        (["nothing"], 1, "nothing"),
        (["softmax"], 2, "'x'"),
        (["softmax", "--arg", "y=[1]"], 2, 'no parameter "y"'),
        (["softmax", "--arg", "x=[[1],[1,2]]"], 2, "rows of one length"),
        (["softmax", "--arg", "x=randn(-1)"], 2, "a size"),
        (["softmax", "--arg", "x=randn(999999999)"], 2, "16 Mi"),
        (["softmax", "--arg", "x=randn(2):float33"], 2, "float33"),
        (["softmax", "x=randn(2):fp16"], 2, "did you mean float16?"),
        (["softmax", "x=randn(2):torch.bfloat"], 2, "did you mean bfloat16?"),
        (["softmax", "x"], 2, 'found "x", wanted NAME=VALUE'),
        (["softmax", "--arg", "x=[1]", "--arg", "scale=big"], 2, "scale"),
        (["softmax", "--arg", "x=[1]", "--arg", "causal=yes"], 2, "True or False"),
    ],
)
def test_run_names_what_is_wrong(opdock, arguments, status, text):
    result = run_op(opdock, *arguments)
    assert result.status == status and text in result.err, result.err


# ---- the reports and their description


def members(value):
    """Yields the names of all members below a JSON value, except in maps whose keys are data."""
    if isinstance(value, list):
        return set().union(*map(members, value))
    if not isinstance(value, dict):
        return set()
    data = ("symbol_versions_by_library", "chosen", "note", "in_process", "symbol_versions")
    below = (members(child) for key, child in value.items() if key not in data)
    return set(value).union(*below)


def test_every_member_of_the_reports_is_described(opdock, folder):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "verdicts.md").read_text()
    described = set(re.findall(r"""[`."]([a-z_]+)[`"]""", page))
    for arguments in (
        ("list",),
        ("inspect", CASES / "with_image.so"),
        ("explain", "good"),
        ("explain", "abi-major"),
        ("show", "good"),
        ("doctor",),
    ):
        report = opdock(*arguments, "--json", OPDOCK_PLUGIN_PATH=str(folder)).json
        assert members(report) - described == set(), arguments
