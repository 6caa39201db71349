# SPDX-License-Identifier: Apache-2.0
"""`opdock test PATH` and `opdock bench PATH`: build a source plugin, then run what its author wrote
beside it, with that plugin alone on the search path. `opdock wheel PATH` packs it. The command
starts this with its own path.
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
    """What was found, what was wanted, what to do."""


def check_packages(kind):
    missing = [name for name in NEEDED[kind] if importlib.util.find_spec(name) is None]
    if missing:
        raise Problem(
            f"found no {' and no '.join(missing)} in {sys.executable}, wanted what plugins' tests "
            f"and benches use; install it with {sys.executable} -m pip install {' '.join(missing)}"
        )


def find_files(kind, path):
    """The plugin's folder, and the files there that are to be run."""
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
    """Prints a failure as `opdock build` does: a compiler's message keeps its lines, and what
    consecutive reasons share is printed once."""
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
    """The path of what `opdock build` makes, or finds in the cache; None if it cannot. archs: more
    arguments of it."""
    # --retry: a test should show the error itself, not that there was one before.
    words = [command, "build", "--retry", "--json", *archs, str(folder)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout) if done.stdout.strip() else {"error": ""}
    if "error" in report:  # it has said on stderr what is wrong
        return None
    if not report.get("path"):
        tell(report)
    return report.get("path")


def inspect(plugin):
    import opdock

    return opdock.inspect(plugin)


def environment(plugin, report):
    """This process's variables, so that only the built plugin is found and no reference replaces
    it. report: of inspect()."""
    claimed = {device["device"].split(":")[0] for device in report["devices"]}
    return {
        **os.environ,
        "OPDOCK_PLUGIN_PATH": plugin,
        "OPDOCK_FALLBACK": "error",
        "OPDOCK_BUILD": "never",
        "OPDOCK_TEST_DEVICES": ",".join(sorted(claimed)),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Which of pytest's plugins happen to be installed must not matter, and importing them takes
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
    """Returns the exit status. out: a folder; the lists: of `opdock build`, or empty."""
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
    """`opdock test --device=soft`: returns the exit status."""
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
    """`opdock bench --tune` and `--forget`: returns the exit status."""
    from opdock import OpdockError
    from opdock._author import tune

    try:
        return tune.forget(words) if kind == "forget" else tune.tune(command, words[0], words[1:])
    except OpdockError as error:
        raise Problem(str(error)) from None


def main(words):
    """words: the command's path, "test" or "bench", the plugin's folder, perhaps --soft=JSON (the
    command's core/cli/author_command.cc writes it), arguments of pytest or of the benches; or the
    path, "wheel" and the arguments of make_wheel(); or the path, "tune", a device or "", and
    plugins; or the path, "forget" and plugins. Returns the exit status: 0 good, 1 not, 2 bad
    usage."""
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
