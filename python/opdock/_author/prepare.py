# SPDX-License-Identifier: Apache-2.0
"""Prepares a run of a plugin's tests or benches: finds their files, builds the plugin, and makes
the environment in which only that plugin is found."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

KINDS = {"test": "test_*.py", "bench": "bench_*.py"}
FORMULA_CHECKS = Path(__file__).with_name("formula_checks.py")
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
    if not files and not (kind == "test" and may_have_formulas(folder)):
        raise Problem(
            f"found no {KINDS[kind]} in {folder}, wanted at least one; `opdock new NAME` makes a "
            "folder with an example"
        )
    return folder, files


def may_have_formulas(folder):
    """Returns whether plugin.toml seems to have ops that are formulas: they are tested without a
    test of the plugin's own."""
    text = (folder / "plugin.toml").read_text()
    return re.search(r"^\s*formula\s*=", text, re.MULTILINE) is not None


def may_lack_images(folder):
    """Returns whether plugin.toml seems to have ops that are formulas and nothing else, whose
    kernels are compiled when a test needs them. That takes less time than to build all of them."""
    text = (folder / "plugin.toml").read_text()
    return may_have_formulas(folder) and not re.search(
        r"^\s*(sources\s*=|\[device\])", text, re.MULTILINE
    )


def formulas(command, folder, plugin, ops):
    """Returns what formula_checks.py needs in its environment; nothing if no op is a formula.

    folder: of the sources. plugin: the built file. ops: the names of its ops."""
    found = {}
    for op in ops if may_have_formulas(folder) else ():
        words = [command, "show", op, "--json", "--plugin-path", plugin]
        done = subprocess.run(words, stdout=subprocess.PIPE)
        report = json.loads(done.stdout) if done.stdout.strip() else {}
        if report.get("formula"):
            found[op] = report["candidates"][0]["op"]["dtypes"]
    if not found:
        return {}
    declared = re.search(
        r"^reference\s*=\s*[\"'](.*)[\"']", (folder / "plugin.toml").read_text(), re.MULTILINE
    )
    reference = {"OPDOCK_TEST_REFERENCE": str((folder / declared[1]).resolve())} if declared else {}
    return {"OPDOCK_TEST_FORMULAS": json.dumps(found), **reference}


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


def at_once(env):
    """Returns what an environment needs so that a bench times what a program comes to in the end:
    cuDNN's plans from the first call on, which a program has to earn."""
    return {} if env.get("OPDOCK_ATTENTION") else {"OPDOCK_ATTENTION": "cudnn"}


def environment(plugin, report):
    """Returns this process's environment, changed so that only the built plugin is found and no
    reference replaces it. report: what opdock.inspect() returned."""
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
