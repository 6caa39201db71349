# SPDX-License-Identifier: Apache-2.0
"""Implements `opdock test PATH`, `opdock bench PATH` and `opdock wheel PATH`.

`test` and `bench` build a source plugin, then run the files that its author wrote next to it, with
only that plugin on the search path. `wheel` packs the built plugin. The opdock command starts this
and passes its own path.
"""

import json
import subprocess
import sys
from pathlib import Path

import opdock
from opdock._author.prepare import (
    FORMULA_CHECKS,
    Problem,
    at_once,
    build,
    check_packages,
    environment,
    find_files,
    formulas,
    may_lack_images,
)


def run(kind, folder, files, arguments, env):
    if kind == "test":
        options = ["-q", "-rs", "-p", "opdock.testing", "-p", "no:cacheprovider"]
        options += ["--import-mode=importlib", *map(str, files), *arguments]
        env = {**env, "OPDOCK_CHECK_PLANS": "all"}
        return subprocess.run([sys.executable, "-m", "pytest", *options], env=env).returncode
    statuses = [
        subprocess.run([sys.executable, str(file), *arguments], env=env).returncode
        for file in files
    ]
    return max(statuses, key=abs)


def make_wheel(command, folder, out, cuda_archs, hip_archs):
    """Writes the wheel and returns the exit status. out: a folder. cuda_archs, hip_archs: lists for
    `opdock build`, or empty texts."""
    from opdock._author import wheel

    lists = {"--archs": cuda_archs, "--hip-archs": hip_archs}
    plugin = build(command, folder, [f"{name}={archs}" for name, archs in lists.items() if archs])
    if plugin is None:
        return 1
    try:
        wheel.write(plugin, opdock.inspect(plugin), out)
    except OSError as error:
        raise Problem(f"cannot write the wheel to {out}: {error}; name another folder") from None
    return 0


def add_formulas(command, folder, files, plugin, report):
    """Returns the files with those that check ops that are formulas, and what these need in the
    environment."""
    more = formulas(command, folder, plugin, report["ops"])
    return [*files, *([FORMULA_CHECKS] if more else [])], more


def test_on_soft(folder, files, arguments, command, options):
    """Runs `opdock test --device=soft`; returns the exit status."""
    from opdock._author import soft

    try:
        archs = soft.wanted_archs(options)
    except ValueError as problem:
        raise Problem(str(problem)) from None
    plugin = build(command, folder, [] if may_lack_images(folder) else soft.build_arguments(archs))
    if plugin is None:
        return 1
    report = opdock.inspect(plugin)
    files, formula_env = add_formulas(command, folder, files, plugin, report)

    def run_tests(more, env):
        return run("test", folder, files, [*arguments, *more], env)

    base = environment(plugin, report) | formula_env
    return soft.test(run_tests, base, plugin, report, options)


def tune_or_forget(command, kind, words):
    """Runs `opdock bench --tune` or `--forget`; returns the exit status."""
    from opdock._author import tune

    try:
        return tune.forget(words) if kind == "forget" else tune.tune(command, words[0], words[1:])
    except opdock.OpdockError as error:
        raise Problem(str(error)) from None


def main(words):
    """Runs a command; returns the exit status: 0 for success, 1 for failure, 130 after Ctrl-C.

    words: the opdock command's path, then one of
        "test" or "bench", the plugin's folder, optionally --soft=JSON (written by
        core/cli/author_command.cc), and arguments of pytest or of the benches;
        "wheel" and the arguments of make_wheel();
        "tune", a device or "", and plugins;
        "forget" and plugins.
    """
    command, kind, *rest = words
    try:
        if kind in ("tune", "forget"):
            return tune_or_forget(command, kind, rest)
        path, *arguments = rest
        if kind == "wheel":
            return make_wheel(command, Path(path), *arguments)
        folder, files = find_files(kind, Path(path))
        check_packages(kind)
        if arguments and arguments[0].startswith("--soft="):
            options = json.loads(arguments[0].removeprefix("--soft="))
            return test_on_soft(folder, files, arguments[1:], command, options)
        plugin = build(command, folder)
        if plugin is None:
            return 1
        report = opdock.inspect(plugin)
        env = environment(plugin, report)
        if kind == "bench":
            env |= at_once(env)
        if kind == "test":
            files, more = add_formulas(command, folder, files, plugin, report)
            env |= more
        return 1 if run(kind, folder, files, arguments, env) else 0
    except Problem as problem:
        name = "bench" if kind in ("tune", "forget") else kind
        print(f"opdock: {name}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
