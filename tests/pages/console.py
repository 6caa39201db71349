# SPDX-License-Identifier: Apache-2.0
"""Checks the commands of console blocks: that the programs, subcommands, options and files exist.
Those of opdock that are quick and change nothing are run."""

import ast
import functools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from blocks import ROOT

BUILD = Path(os.environ["OPDOCK_BUILD_DIR"])
OPDOCK = BUILD / "core" / "cli" / "opdock"

# Subcommands that change nothing outside of the current folder and take less than a second.
HARMLESS = {"list", "show", "explain", "doctor", "inspect", "help", "completion"}
# Programs of others, whose arguments are not checked.
OTHERS = {"cmake", "ls", "man", "meson", "mkdir", "ninja", "pip", "sed", "source"}
PUNCTUATION = set("();<>|&")


def split(block):
    """Returns [(command line, its output's lines)] of a block; in sh each line is a command."""
    found = []
    lines = iter(block.text.splitlines())
    for line in lines:
        if block.language == "sh" or line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\"):
                command = command[:-1] + " " + next(lines, "").strip()
            found.append((command, []))
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f'found "{line}", wanted a command, "$ …", as the first line')
    return [one for one in found if one[0].split("#")[0].strip()]


def simple_commands(line):
    """Returns ({variable: value}, words) for each program that a command line starts."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found, words, redirected = [], [], False
    for token in [*lexer, ";"]:
        if set(token) <= PUNCTUATION:
            if words:
                found.append(words)
            words, redirected = [], token.endswith(">")
        elif redirected:
            redirected = False
        else:
            words.append(token)
    for i, words in enumerate(found):
        variables = {}
        if words[0] == "export":
            words = words[1:]
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, variables[name] = words.pop(0).partition("=")
        found[i] = variables, words
    return found


def run(*words, cwd=None, **variables):
    """Runs a program; a variable that is None is left out of its environment."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=60,
    )


@functools.cache
def help_of(*subcommands):
    """Returns the subcommands, the options that take a value, and all options, as the real command
    lists them."""
    text = run(OPDOCK, *subcommands, "--help").stdout
    below = text.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
    options = r"^  (?:-\w,)?(--[\w-]+)"
    valued = re.findall(options + r" \S", text, re.MULTILINE)
    all_options = re.findall(options, text, re.MULTILINE)
    return set(re.findall(r"^  (\w+)", below, re.MULTILINE)), set(valued), set(all_options)


def check_opdock(words):
    """Returns the problems of `opdock WORDS`."""
    subcommands = []
    below, _, options = help_of()
    for word in words:
        if word == "--":
            break
        name = word.partition("=")[0]
        if name.startswith("-"):
            if name not in options:
                known = ", ".join(sorted(options))
                return [f"found {name} of `opdock {' '.join(subcommands)}`, wanted one of {known}"]
        elif below:
            if word not in below:
                known = ", ".join(sorted(below))
                return [f"found `opdock {' '.join([*subcommands, word])}`, wanted one of {known}"]
            subcommands.append(word)
            below, _, options = help_of(*subcommands)
    return []


def check_synopsis(block):
    """A block of text that begins with a subcommand shows all of its options."""
    match = re.match(r"opdock (\w+) ", block.text)
    if not match:
        return []
    options = help_of(match[1])[2] - {"--help"}
    found = set(re.findall(r"--[\w-]+", block.text))
    differ = ", ".join(sorted(options ^ found))
    return [f"{block.place}: found other options than the command's: {differ}"] if differ else []


def run_opdock(words, variables, folder):
    """Runs `opdock WORDS` if that is harmless; returns its problems, or None if it was not run.
    What is inspected is a plugin of the build, in place of files that only the reader has."""
    if words[:1] and words[0] not in HARMLESS or "--environment" in words:
        return None
    if words[:1] == ["inspect"]:
        _, valued, _ = help_of("inspect")
        for i, word in enumerate(words[1:], 1):
            if not word.startswith("-") and words[i - 1] not in valued:
                words[i] = BUILD / "plugins" / "noop.so"
    own = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "OPDOCK_CACHE_DIR")}
    done = run(OPDOCK, *words, cwd=folder, **{**own, **variables})
    if done.returncode in (0, 1):
        return []
    return [f"found status {done.returncode}, wanted 0 or 1: {done.stderr}"]


@functools.cache
def usage_of_dev():
    """Returns {subcommand: its part of the usage of ./dev}."""
    text = run(ROOT / "dev", "help").stdout
    return {part.split()[0]: part for part in re.split(r"^\./dev ", text, flags=re.MULTILINE)[1:]}


def check_dev(words):
    usage = usage_of_dev()
    if words[0] not in usage:
        return [f"found ./dev {words[0]}, wanted one of {', '.join(sorted(usage))}"]
    if words[0] in ("opdock", "python"):
        return []
    text = usage[words[0]]
    suites = re.search(r"Suites: ([\w\s]*)", text)
    options = {
        name + value
        for name, values in re.findall(r"(--\w+)((?:=[\w|]+)?)", text)
        for value in re.sub(r"\|", "|=", values).split("|")
    }
    problems = []
    for word in words[1:]:
        if word.startswith("-") and "ARGS…" not in text and word not in options:
            known = ", ".join(sorted(options))
            problems.append(f"found {word} of ./dev {words[0]}, wanted one of: {known}")
        elif suites and not word.startswith("-") and word not in suites[1].split():
            problems.append(f"found the suite {word}, wanted one of: {suites[1].strip()}")
    return problems


def check_python(words):
    """A script of this tree must exist and know its options; a program must compile."""
    if "-c" in words:
        ast.parse(words[words.index("-c") + 1])
        return []
    scripts = [word for word in words if word.endswith(".py")]
    problems = [f"found no {script}" for script in scripts if not (ROOT / script).is_file()]
    if scripts and not problems and "-m" not in words:
        text = (ROOT / scripts[0]).read_text()
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        problems += [f"found no {one} in {scripts[0]}" for one in options if f'"{one}"' not in text]
    return problems


def check_meson_test(words):
    """`meson test -C build NAME --test-args=--gtest_filter=SUITE.*`"""
    tests = {one["name"] for one in json.loads((BUILD / "meson-info/intro-tests.json").read_text())}
    names = [word for word in words[2:] if not word.startswith("-") and word != "build"]
    problems = [f"found no test {name}" for name in names if name not in tests]
    for word in words:
        for suite in re.findall(r"--gtest_filter=(\w+)", word):
            sources = (ROOT / "tests").rglob("*.cc")
            if not any(re.search(rf"TEST\w*\({suite},", path.read_text()) for path in sources):
                problems.append(f"found no test suite {suite}")
    return problems


@functools.cache
def variables_of_opdock():
    """Returns the names of the variables that occur in the sources and in ./dev."""
    texts = [(ROOT / "dev").read_text()]
    for folder in ("core", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".py"):
                texts.append(path.read_text())
    return set(re.findall(r"\bOPDOCK_[A-Z_]+\b", "\n".join(texts)))


def check_command(variables, words, folder):
    """Returns the problems of one command, and whether it was run."""
    problems = [
        f"found the variable {name}, which nothing reads"
        for name in variables
        if name.startswith("OPDOCK_") and name not in variables_of_opdock()
    ]
    if not words:
        return problems, False
    program, *rest = words
    if program == "./dev":
        problems += check_dev(rest)
        program, *rest = rest
        if program not in ("opdock", "python"):
            return problems, False
    name = program.rpartition("/")[2]
    if name == "opdock":
        problems += check_opdock(rest)
        told = None if problems else run_opdock(rest, variables, folder)
        return problems + (told or []), told is not None
    if name == "python":
        problems += check_python(rest)
    elif name == "meson" and rest[:1] == ["test"]:
        problems += check_meson_test(words)
    elif name not in OTHERS:
        problems.append(f"found the program {program}, wanted one of {', '.join(sorted(OTHERS))}")
    return problems, False


def check(blocks, folder):
    """Returns {block: what was done with it}, and the problems."""
    done, problems = {}, []
    for block in blocks:
        ran = False
        try:
            for line, _ in split(block):
                for variables, words in simple_commands(line):
                    told, was_run = check_command(variables, words, folder)
                    problems += [f"{block.place}: `{line}`: {one}" for one in told]
                    ran |= was_run
        except (ValueError, SyntaxError) as error:
            problems.append(f"{block.place}: {error}")
        done[block] = "commands parsed, and the harmless ones run" if ran else "commands parsed"
    return done, problems
