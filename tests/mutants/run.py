#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the tests notice faults.

For each patch of this folder: applies it, builds what it changes, runs the tests that it names, and
reverts it (README.md).

    run.py [--build FOLDER] [--clean] [NAME…]

NAME: only these patches. --clean: runs their tests without the faults, which must pass. The exit
status is 1 if a fault was not noticed, or a patch no longer applies, compiles or finds its tests; 2
if nothing could be done."""

import argparse
import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The core's patches come last, since they put everything that is built with it out of date.
LAYERS = ("python", "plugins", "device", "core")
LIMIT = 300  # seconds for one command of tests; a fault may make them hang


class Broken(Exception):
    """Raised if a patch, or a file or test that it names, is invalid."""


@dataclass
class Mutant:
    name: str
    path: Path
    files: list  # that the patch changes
    tests: list  # a list of words for each
    builds: list  # patterns of files in the build folder


def read(path):
    """Reads a Mutant from a patch file."""
    head, _, diff = path.read_text().partition("\ndiff --git ")
    named = {"Tests": [], "Builds": []}
    for line in head.splitlines():
        key, colon, rest = line.partition(": ")
        if colon and key in named:
            named[key].append(shlex.split(rest))
    if not diff or not named["Tests"]:
        raise Broken('found no diff or no line "Tests: …", wanted both')
    files = re.findall(r"^\+\+\+ b/(.+)$", diff, re.MULTILINE)
    return Mutant(path.stem, path, files, named["Tests"], sum(named["Builds"], []))


def check_applies(mutant):
    """Raises Broken unless each hunk fits exactly one place of its file."""
    for part in mutant.path.read_text().split("\ndiff --git ")[1:]:
        file = re.search(r"^\+\+\+ b/(.+)$", part, re.MULTILINE)[1]
        if not (ROOT / file).exists():
            raise Broken(f"found no {file}; make the patch anew or delete it")
        text = (ROOT / file).read_text()
        for hunk in re.split(r"^@@ .*$\n", part, flags=re.MULTILINE)[1:]:
            lines = [line[1:] for line in hunk.splitlines(keepends=True) if line[0] in " -"]
            if (count := text.count("".join(lines))) != 1:
                raise Broken(f"found {count} places in {file} for a hunk, wanted 1; make it anew")


class Build:
    """A configured build folder: its tests and targets."""

    def __init__(self, folder):
        def info(what):
            return json.loads((folder / "meson-info" / f"intro-{what}.json").read_text())

        self.folder = folder
        self.files = {file for target in info("targets") for file in target["filename"]}
        self.tests = {}
        for test in info("tests"):
            for suite in ["", *(name.split(":")[-1] + ":" for name in test["suite"])]:
                self.tests.setdefault(suite + test["name"], []).append(test)

    def test(self, name):
        found = self.tests.get(name, [])
        if len(found) != 1:
            raise Broken(f"found {len(found)} Meson tests named {name!r}, wanted 1 (or suite:name)")
        return found[0]

    def needed(self, mutant):
        """Returns the paths, relative to the folder, that must be built for the mutant's tests."""
        paths = []
        for pattern in mutant.builds:
            found = fnmatch.filter(self.files, str(self.folder / pattern))
            if not found:
                raise Broken(f"found no {pattern} among what is built in {self.folder}")
            paths += found
        for file in mutant.files:  # the build copies the package's files
            if file.startswith("python/opdock/") and file.endswith(".py"):
                paths.append(self.folder / file)
        for words in map(without_variables, mutant.tests):
            if not words[0].startswith("soft:"):
                paths += [word for word in self.test(words[0])["cmd"][:1] if word in self.files]
        return sorted({os.path.relpath(path, self.folder) for path in paths})

    def make(self, targets, log):
        """Builds the targets; raises Broken if that fails."""
        words = ["ninja", "-C", str(self.folder), f"-j{len(os.sched_getaffinity(0))}", *targets]
        if targets and run(words, os.environ, ROOT, log, None) != 0:
            raise Broken(f"it does not build (log: {log.name})")

    def command(self, words):
        """Returns (words, environment, folder) for a line "Tests:"."""
        own = without_variables(words)
        variables = dict(word.split("=", 1) for word in words[: len(words) - len(own)])
        name, *more = own
        arch = name.removeprefix("soft:") if name.startswith("soft:") else None
        test = self.test("plugins-python" if arch else name)
        env = {**os.environ, "OMP_WAIT_POLICY": "passive", **test["env"], **variables}
        env |= {"PYTHONDONTWRITEBYTECODE": "1"}  # no compiled code with the fault may stay
        program = test["cmd"]
        if arch:
            program = [program[0], str(HERE / "on_software_gpu.py"), arch]
            env["LD_LIBRARY_PATH"] = str(self.folder / "core")
            env["OPDOCK_CACHE_DIR"] = str(self.folder / "mutants" / "cache")
        elif more and ".py" in more[0]:
            options = [word for word in program if word.startswith("--import-mode")]
            program = [program[0], "-m", "pytest", "-xq", "-p", "no:cacheprovider", *options]
        return [*program, *more], env, test["workdir"] or ROOT


def without_variables(words):
    first = next(i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    return words[first:]


def run(words, env, folder, log, limit):
    """Runs a command with its output in the log. Returns its exit status, or None if it was killed
    at the limit."""
    print("+", shlex.join(words), file=log, flush=True)
    with subprocess.Popen(
        words, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            return process.wait(limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def failing_case(build, words, log):
    """Returns what failed in a line "Tests:", or "" if nothing did; raises Broken if no test
    ran."""
    begin = log.tell()
    command, env, folder = build.command(words)
    status = run(command, env, folder, log, LIMIT)
    output = Path(log.name).read_bytes()[begin:].decode(errors="replace")
    if status is None:
        return f"{words[0]} did not end in {LIMIT} s"
    nothing = r"^\[  PASSED  \] 0 tests" if status == 0 else r": not run: |, nothing ran$"
    if status in (4, 5) or re.search(nothing, output, re.MULTILINE):
        raise Broken(f"no test ran: {shlex.join(words)} (log: {log.name})")
    if status == 0:
        return ""
    named = re.search(r"^\[  FAILED  \] (\S+?)[,\s]|^FAILED (.+?)(?: - |$)", output, re.MULTILINE)
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    case = next(filter(None, named.groups())) if named else begun[-1] if begun else "ended"
    return f"{words[0]}: {case}"


def try_out(mutant, build, log):
    """Returns what noticed the fault, or "" if nothing did. Restores the tree afterwards."""
    before = {file: (ROOT / file).read_bytes() for file in mutant.files}
    words = ["git", "apply", str(mutant.path)]
    try:
        if run(words, os.environ, ROOT, log, None) != 0:
            raise Broken(f"git apply fails (log: {log.name}); make the patch anew")
        build.make(build.needed(mutant), log)
        for words in mutant.tests:
            if case := failing_case(build, words, log):
                return case
        return ""
    finally:
        for file, text in before.items():
            (ROOT / file).write_bytes(text)


def run_clean(mutants, build, log):
    """Runs each line "Tests:" once; returns those that fail."""
    build.make(sorted({path for mutant in mutants for path in build.needed(mutant)}), log)
    bad = []
    for words in map(list, dict.fromkeys(tuple(t) for mutant in mutants for t in mutant.tests)):
        try:
            case = failing_case(build, words, log)
        except Broken as problem:
            case = str(problem)
            print(case, flush=True)
        print(f"{'failed' if case else 'passed'}   {shlex.join(words)}", flush=True)
        bad += [case] if case else []
    return bad


def chosen(names):
    paths = [path for path in HERE.glob("*.patch") if not names or path.stem in names]
    if unknown := set(names) - {path.stem for path in paths}:
        sys.exit(f"run.py: found no patch named {', '.join(sorted(unknown))} in {HERE}")
    return sorted(paths, key=lambda path: (LAYERS.index(path.stem.partition("-")[0]), path.stem))


def refuse_changed(mutants):
    files = sorted({file for mutant in mutants for file in mutant.files})
    words = ["git", "diff", "--name-only", "HEAD", "--", *files]
    changed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    if changed:
        sys.exit("run.py: found changes that are not committed, and would be lost, in\n" + changed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="FOLDER")
    parser.add_argument("--clean", action="store_true", help="run the tests without the faults")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the tree is restored
    # Tests send SIGINT to processes that they start. A shell makes its background processes ignore
    # SIGINT, and they would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Ninja may be in this folder.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    build = Build(options.build.resolve())
    logs = build.folder / "mutants"
    logs.mkdir(exist_ok=True)
    outcomes = {"killed": [], "survived": [], "broken": []}
    mutants = []

    def tell(name, outcome, what, began):
        outcomes[outcome].append(name)
        print(f"{outcome:8} {name} ({what}, {time.monotonic() - began:.0f} s)", flush=True)

    for path in chosen(options.names):
        try:
            mutants.append(read(path))
            check_applies(mutants[-1])
            build.needed(mutants[-1])
        except Broken as problem:
            tell(path.stem, "broken", problem, time.monotonic())
    mutants = [mutant for mutant in mutants if mutant.name not in outcomes["broken"]]
    refuse_changed(mutants)
    if options.clean:
        with (logs / "clean.log").open("w") as log:
            sys.exit(1 if run_clean(mutants, build, log) or outcomes["broken"] else 0)
    built = set()
    for mutant in mutants:
        began = time.monotonic()
        with (logs / f"{mutant.name}.log").open("w") as log:
            try:
                built.update(build.needed(mutant))
                case = try_out(mutant, build, log)
                outcome = ("killed", case) if case else ("survived", "nothing failed")
            except Broken as problem:
                outcome = "broken", problem
        tell(mutant.name, *outcome, began)
    with (logs / "clean.log").open("w") as log:
        build.make(sorted(built), log)  # no binary with a fault may stay
    print(", ".join(f"{len(names)} {outcome}" for outcome, names in outcomes.items()))
    for outcome in ("survived", "broken"):
        for name in outcomes[outcome]:
            print(f"{outcome}: {name}")
    sys.exit(1 if outcomes["survived"] or outcomes["broken"] else 0)


if __name__ == "__main__":
    main()
