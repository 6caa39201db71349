# SPDX-License-Identifier: Apache-2.0
"""Implements `opdock test PATH`, `opdock bench PATH` and `opdock wheel PATH`.

`test` and `bench` build a source plugin, then run the files that its author wrote next to it, with
only that plugin on the search path. `wheel` packs the built plugin. The opdock command starts this
and passes its own path.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

KINDS = {"test": "test_*.py", "bench": "bench_*.py"}
NEEDED = {"test": ["pytest", "torch"], "bench": ["pytest", "torch"]}


class Problem(Exception):
    """An error for the user; its text says what was found, what was wanted and what to do."""


def check_packages(kind):
    missing = [name for name in NEEDED[kind] if importlib.util.find_spec(name) is None]
    if missing:
        raise Problem(
            f"found no {' and no '.join(missing)} in {sys.executable}, wanted what plugins' tests "
            f"and benches use; install it with {sys.executable} -m pip install {' '.join(missing)}"
        )


def find_files(kind, path):
    """Returns the plugin's folder and the sorted test or bench files in it."""
    folder = path.parent if path.name == "plugin.toml" else path
    if not (folder / "plugin.toml").is_file():
        raise Problem(
            f"found no plugin.toml in {folder}, wanted a plugin's folder, as `opdock new NAME` "
            "makes"
        )
    files = sorted(folder.glob(KINDS[kind]))
    if not files:
        raise Problem(
            f"found no {KINDS[kind]} in {folder}, wanted at least one; `opdock new NAME` makes a "
            "folder with an example"
        )
    return folder, files


def tell(report):
    """Prints a failed build as `opdock build` does: a compiler's message keeps its lines, and a
    code or advice that consecutive reasons share is printed once."""
    lines = [f"{report.get('plugin') or report.get('folder')} could not be built"]
    reasons = report.get("reasons", [])
    for before, reason, after in zip([{}, *reasons], reasons, [*reasons[1:], {}], strict=False):
        if reason["code"] != before.get("code"):
            lines.append(f"{reason['code']}:")
        lines += [f"  {line}" for line in reason["text"].splitlines()]
        shared = all(reason.get(member) == after.get(member) for member in ("code", "advice"))
        if reason.get("advice") and not shared:
            lines.append(f"  -> {reason['advice']}")
    if report.get("log"):
        lines.append(f"the whole log is {report['log']}")
    print("\n".join(lines), file=sys.stderr)


def build(command, folder, archs=()):
    """Returns the path of the plugin that `opdock build` makes or finds in the cache; None if it
    fails. archs: further arguments of `opdock build`."""
    # --retry: a test should show the build error itself, not report that an earlier build failed.
    words = [command, "build", "--retry", "--json", *archs, str(folder)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout) if done.stdout.strip() else {"error": ""}
    if "error" in report:  # the command has printed the error
        return None
    if not report.get("path"):
        tell(report)
    return report.get("path")


def inspect(plugin):
    import opdock

    return opdock.inspect(plugin)


def environment(plugin, report):
    """Returns this process's environment, changed so that only the built plugin is found and no
    reference replaces it. report: what inspect() returned."""
    claimed = {device["device"].split(":")[0] for device in report["devices"]}
    return {
        **os.environ,
        "OPDOCK_PLUGIN_PATH": plugin,
        "OPDOCK_FALLBACK": "error",
        "OPDOCK_BUILD": "never",
        "OPDOCK_TEST_DEVICES": ",".join(sorted(claimed)),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The result must not depend on which pytest plugins are installed, and importing them takes
        # longer than the tests.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),
    }


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
        wheel.write(plugin, inspect(plugin), out)
    except OSError as error:
        raise Problem(f"cannot write the wheel to {out}: {error}; name another folder") from None
    return 0


def test_on_soft(folder, files, arguments, command, options):
    """Runs `opdock test --device=soft`; returns the exit status."""
    from opdock._author import soft

    try:
        archs = soft.wanted_archs(options)
    except ValueError as problem:
        raise Problem(str(problem)) from None
    plugin = build(command, folder, soft.build_arguments(archs))
    if plugin is None:
        return 1
    report = inspect(plugin)

    def run_tests(more, env):
        return run("test", folder, files, [*arguments, *more], env)

    return soft.test(run_tests, environment(plugin, report), plugin, report, options)


def tune_or_forget(command, kind, words):
    """Runs `opdock bench --tune` or `--forget`; returns the exit status."""
    from opdock import OpdockError
    from opdock._author import tune

    try:
        return tune.forget(words) if kind == "forget" else tune.tune(command, words[0], words[1:])
    except OpdockError as error:
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
        env = environment(plugin, inspect(plugin))
        return 1 if run(kind, folder, files, arguments, env) else 0
    except Problem as problem:
        name = "bench" if kind in ("tune", "forget") else kind
        print(f"opdock: {name}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
