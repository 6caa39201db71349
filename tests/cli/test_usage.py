# SPDX-License-Identifier: Apache-2.0
"""Tests the command line itself: help, hints, exit statuses, errors as JSON, completion, manual."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import CASES, COMMAND
from test_build import TOML
from test_command import REASON_KEYS

DOCS = pathlib.Path(__file__).parents[2] / "docs"
COMMANDS = [
    *("list", "inspect", "show", "explain", "doctor", "run", "build", "install", "uninstall"),
    *("trust", "cache", "new", "test", "bench", "wheel", "help", "completion"),
]
ACTIONS = ["ls", "gc", "clear", "verify", "export", "import"]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "plugin.toml").write_text(TOML)
    (folder / "doubled.c").write_text("")
    return folder


# ---- help


def test_without_words_the_command_shows_its_help(opdock):
    bare = opdock()
    assert bare.status == 0 and bare.err == ""
    assert bare.out == opdock("help").out == opdock("--help").out
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", bare.out, re.MULTILINE), command


@pytest.mark.parametrize("words", [["build"], ["cache"], ["cache", "gc"], ["help"]])
def test_help_of_a_command_is_its_own_help(opdock, words):
    shown = opdock("help", *words)
    assert shown.status == 0 and shown.out == opdock(*words, "--help").out
    assert f"opdock {' '.join(words)} " in shown.out


def test_the_version_is_printed(opdock):
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", opdock("--version").out)


# ---- hints


@pytest.mark.parametrize(
    "words, told",
    [
        (["lst"], "did you mean list?"),
        (["cache", "expotr"], "did you mean export?"),
        (["help", "buid"], "did you mean build?"),
        (["list", "--al"], "did you mean --all?"),
        (["cache", "ls", "--jsn"], "did you mean --json?"),
        (["new", "x", "--kind", "devic"], "did you mean device?"),
        (["completion", "bsh"], "did you mean bash?"),
        (["--json", "list"], "a command first"),
        (["run", "x=1", "good"], "write `opdock run OP 'x=1'`"),
        (["explain"], "a reason's code"),
    ],
)
def test_what_is_nearly_right_gets_a_hint(opdock, words, told):
    result = opdock(*words)
    assert result.status == 2 and told in result.err, result.err


@pytest.mark.parametrize(
    "words, told",
    [
        (["--jobs", "0"], '--jobs: found "0", wanted a whole number of at least 1'),
        (["--jobs", "few"], '--jobs: found "few", wanted a whole number of at least 1'),
        (["--jobs", "99999999999"], "wanted at most"),
        (["--timeout", "-1"], '--timeout: found "-1", wanted a number of seconds above 0'),
        (["--timeout", "nan"], "wanted a number of seconds above 0"),
        (["--timeout"], "--timeout: found nothing behind it"),
        (["--jobs", "1", "--jobs", "2"], "--jobs: found it more than once"),
    ],
)
def test_numbers_that_cannot_be_are_refused_in_words(opdock, source, words, told):
    result = opdock("build", source, *words)
    assert result.status == 2 and told in result.err, result.err
    assert "see `opdock build --help`" in result.err


@pytest.mark.parametrize(
    "words, command",
    [
        (["doctor", "extra"], "doctor"),
        (["inspect"], "inspect"),
        (["run", "good", "--device", "tpu"], "run"),
        (["run", "--seed", "x", "good"], "run"),
        (["test", ".", "--seed", "1"], "test"),
        (["cache", "gc", "--all"], "cache gc"),
        (["cache"], "cache"),
        (["build"], "build"),
        (["build", "--jit", "--debug"], "build"),
        (["explain"], "explain"),
    ],
)
def test_bad_usage_points_to_the_help_of_the_command(opdock, tmp_path, words, command):
    (tmp_path / "plugin.toml").write_text("")
    result = opdock(*words, OPDOCK_PLUGIN_PATH=str(CASES / "good.so"))
    assert result.status == 2 and result.out == ""
    assert result.err.startswith("opdock: ") and result.err.count("\n") == 1
    assert result.err.endswith(f"see `opdock {command} --help`\n"), result.err


# ---- exit statuses


@pytest.mark.parametrize(
    "words",
    [
        *(["build"], ["test"], ["bench"], ["wheel"], ["inspect"], ["install"], ["trust"]),
        *(["cache", "import"], ["list", "--plugin-path"], ["doctor", "--plugin-path"]),
        *(["explain", "good", "--plugin-path"], ["show", "good", "--plugin-path"]),
        *(["run", "good", "--plugin-path"], ["build", "--all", "--plugin-path"]),
    ],
    ids=" ".join,
)
def test_a_path_that_is_not_there_is_bad_usage_everywhere(opdock, words):
    result = opdock(*words, "/nowhere/at/all")
    assert result.status == 2 and result.out == "", result.out
    assert "/nowhere/at/all" in result.err and "o such file" in result.err


def test_one_missing_path_of_several_is_named(opdock, folder):
    result = opdock("list", "--plugin-path", f"{folder}:/nowhere")
    assert result.status == 2 and "/nowhere" in result.err and str(folder) not in result.err


@pytest.mark.parametrize("kind", ["build", "test", "bench", "wheel", "install", "inspect"])
def test_a_name_that_is_neither_here_nor_found(opdock, source, folder, kind):
    """These commands take a path or a plugin's name; they suggest a similar name."""
    found = {"OPDOCK_PLUGIN_PATH": f"{folder}:{source}"}
    near = "good" if kind in ("inspect", "install") else "doubled"
    for name, told in ((f"{near}x", f"did you mean {near}?"), ("qqqqqq", "`opdock list` shows")):
        result = opdock(kind, name, **found)
        assert result.status == 2 and result.out == "", result.out
        assert f'"{name}": No such file or plugin' in result.err and told in result.err


def test_inspect_takes_the_name_of_a_plugin(opdock, folder, tmp_path):
    found = {"OPDOCK_PLUGIN_PATH": str(folder)}
    assert opdock("inspect", "good", "--json", **found).json["path"] == str(folder / "good.so")
    (tmp_path / "good").write_text("what lies here comes first")
    assert opdock("inspect", "good", "--json", **found).json["path"] == "good"


@pytest.mark.parametrize("kind", ["build", "test", "bench", "install"])
def test_a_fifo_is_refused_and_does_not_block(opdock, tmp_path, kind):
    os.mkfifo(tmp_path / "fifo")
    result = opdock(kind, tmp_path / "fifo")
    assert result.status == 2 and "neither a file nor a folder" in result.err


@pytest.mark.parametrize("kind", ["build", "test", "bench", "install"])
def test_a_folder_without_a_declaration_is_bad_usage_everywhere(opdock, tmp_path, kind):
    result = opdock(kind, tmp_path)
    assert result.status == 2 and f'no plugin.toml in "{tmp_path}"' in result.err


def test_a_result_that_cannot_be_written_is_an_error(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [COMMAND, "explain", "--codes"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1 and "cannot write the result: No space left" in done.stderr


def test_the_statuses_are_documented_once_and_the_same(opdock):
    page = (DOCS / "reference" / "command.md").read_text()
    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE))
    manual = opdock("help", "--man").out
    listed = re.findall(r"^\.B (\d+)\n(.+)$", manual, re.MULTILINE)
    assert table == {status: text.replace("\\-", "-") for status, text in listed}
    assert set(table) == {"0", "1", "2", "130"}
    assert set(re.findall(r"\b(\d+) \w", opdock("help").out.split("Exit status: ")[1])) == set(
        table
    )


# ---- errors as JSON


def same_as_reasons(result, status):
    report = json.loads(result.out)
    assert result.status == report["status"] == status
    assert result.err.startswith("opdock: " + report["error"].splitlines()[0])
    assert report["reasons"]
    for reason in report["reasons"]:
        assert reason.keys() >= REASON_KEYS | {"severity"}
    return report


@pytest.mark.parametrize(
    "words, found",
    [
        (["list", "--al"], '"--al"'),
        (["lst"], '"lst"'),
        (["build", "--jobs", "0"], "--jobs"),
        (["inspect", "/nowhere"], '"/nowhere"'),
        (["run", "good", "--arg", "y=1"], 'no parameter "y"'),
        (["cache", "lss"], '"cache lss"'),
    ],
)
def test_bad_usage_is_json_on_stdout_too(opdock, folder, words, found):
    result = opdock(*words, "--json", OPDOCK_PLUGIN_PATH=str(folder))
    report = same_as_reasons(result, 2)
    assert report["reasons"][0]["code"] == "usage" and found in report["reasons"][0]["found"]
    assert "--help`" in report["reasons"][0]["advice"]


def test_a_setting_that_cannot_be_is_json_too(opdock):
    report = same_as_reasons(opdock("list", "--json", OPDOCK_BUILD="nver"), 2)
    assert report["reasons"][0]["code"] == "usage"


def test_an_op_that_nothing_serves_has_its_reasons_as_json(opdock, folder):
    result = opdock("run", "note_major", "--json", OPDOCK_PLUGIN_PATH=str(folder))
    report = same_as_reasons(result, 1)
    assert [reason["code"] for reason in report["reasons"]] == ["abi-major"]
    report = same_as_reasons(opdock("run", "nothing", "--json", "--plugin-path", folder), 1)
    assert report["reasons"][0]["code"] == "request-failed"


def test_an_error_of_several_lines_keeps_them(opdock, folder):
    """Further lines are indented, so that no line of foreign text can pass for another error."""
    first, *others = opdock("run", "note_major", "--plugin-path", folder).err.splitlines()
    assert first.startswith("opdock: ") and "\\x0a" not in first
    assert others and all(line.startswith("  ") for line in others)


def test_without_the_option_nothing_is_on_stdout(opdock, tmp_path):
    (tmp_path / "plugin.toml").write_text("")
    for words in (["lst"], ["run", "nothing"], ["bench", ".", "--bad", "--", "--json"]):
        assert opdock(*words).out == ""


def test_the_codes_are_among_all_codes(opdock):
    codes = {code["code"] for code in opdock("explain", "--codes", "--json").json}
    assert {"usage", "request-failed"} <= codes


# ---- completion and manual


def all_commands():
    return [[name] for name in COMMANDS] + [["cache", action] for action in ACTIONS]


def bash_completes(opdock, tmp_path, *words):
    """Returns the completions that bash offers for the last of the words."""
    script = tmp_path / "opdock.bash"
    script.write_text(opdock("completion", "bash").out)
    program = (
        f'. {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _opdock; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", "opdock", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_words_and_files(opdock, tmp_path):
    (tmp_path / "some.so").write_text("")

    def completes(*words):
        return bash_completes(opdock, tmp_path, *words)

    assert set(COMMANDS) <= set(completes(""))
    assert completes("expl") == ["explain"]
    assert set(ACTIONS) <= set(completes("cache", ""))
    assert completes("cache", "exp") == ["export"]
    assert completes("new", "--kind", "") == ["cpu", "device", "nvcc"]
    assert completes("test", "--device", "=", "so") == ["soft"]
    assert completes("test", "--device", "=") == ["soft"]
    assert completes("completion", "z") == ["zsh"]
    assert completes("help", "cac") == ["cache"]
    assert completes("inspect", "so") == ["some.so"]
    assert completes("list", "--plugin-path", "so") == ["some.so"]
    assert completes("run", "--seed", "") == []


def test_bash_offers_every_option_of_every_command(opdock, tmp_path):
    for words in all_commands():
        offered = bash_completes(opdock, tmp_path, *words, "--")
        wanted = {one for one in offered if one.startswith("--")}
        shown = opdock(*words, "--help").out
        assert wanted and all(option in shown for option in wanted), words
        for option in re.findall(r"^  (?:-h,)?(--[a-z-]+)", shown, re.MULTILINE):
            assert option in wanted, (words, option)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_option_and_word(opdock, shell):
    script = opdock("completion", shell).out
    for words in all_commands():
        assert words[-1] in script
        for option in re.findall(r"^  (?:-h,)?--([a-z-]+)", opdock(*words, "--help").out, re.M):
            assert (f"-l {option}" if shell == "fish" else f"--{option}") in script
    assert "cpu device nvcc" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_takes_its_script(opdock, tmp_path, shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} was not found")
    script = tmp_path / "script"
    written = opdock("completion", shell)
    assert written.status == 0 and "plugin-path" in written.out
    script.write_text(written.out)
    done = subprocess.run([program, "-n", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_fish_completes(opdock, tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish was not found")
    script = tmp_path / "opdock.fish"
    script.write_text(opdock("completion", "fish").out)

    def completes(line):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f'source {script}; complete -C "{line}"'],
            capture_output=True,
            text=True,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert set(COMMANDS) <= set(completes("opdock "))
    assert set(completes("opdock cache ")) == set(ACTIONS)
    assert set(completes("opdock new --kind ")) == {"cpu", "device", "nvcc"}
    assert "--plugin-path" in completes("opdock list --")


def test_the_manual_has_every_command_and_option(opdock):
    manual = opdock("help", "--man").out.replace("\\-", "-")
    for words in all_commands():
        if words != ["cache"]:
            assert f".SS \\fBopdock {' '.join(words)}\\fR" in manual
        for option in re.findall(r"^  (--[a-z-]+)", opdock(*words, "--help").out, re.MULTILINE):
            assert f"\\fB{option}\\fR" in manual, (words, option)


def test_the_manual_is_good_roff(opdock):
    if shutil.which("groff") is None:
        pytest.skip("groff was not found")
    manual = opdock("help", "--man").out
    assert manual.startswith(".TH OPDOCK 1")
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-z"],
        input=manual,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert not [line for line in done.stderr.splitlines() if "cannot adjust line" not in line]
