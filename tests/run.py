#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a build folder and closes with one line over all suites.

    tests/run.py BUILD_FOLDER [SUITE…]
    tests/run.py --needs BUILD_FOLDER [SUITE…]

The second form only prints what has to be built for these tests, as targets of ninja.

Meson runs everything. GoogleTest programs report their cases to Meson; pytest runs write JUnit
files into BUILD_FOLDER/test-results. Both are read here, so that a skip or a failure is counted and
named as a case. A test program that reports no cases counts as one. The exit status is 1 if a case
failed or if none ran.
"""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path


def needs(folder, suites):
    """The files, relative to the folder, that the tests of the suites (of all, without any) use."""

    def read(what):
        return json.loads((folder / "meson-info" / f"intro-{what}.json").read_text())

    files = {target["id"]: target["filename"] for target in read("targets")}
    used = set()
    for test in read("tests"):
        if not suites or {name.split(":")[-1] for name in test["suite"]} & set(suites):
            used.update(file for target in test["depends"] for file in files[target])
    return sorted(os.path.relpath(file, folder) for file in used)


# Meson's own, and: the runtime does not guess where the TLS of libraries opened later lies. With an
# address 16 bytes into a page it guesses wrong (it means glibc before 2.25), and then crashes.
ASAN_OPTIONS = "halt_on_error=1:abort_on_error=1:print_summary=1:intercept_tls_get_addr=0"


def run_meson(folder, suites):
    """Runs `meson test`; returns its exit status. The output of failing programs is shown."""
    command = [sys.executable, "-m", "mesonbuild.mesonmain", "test", "-C", str(folder)]
    # One more than cores: tests wait too, for processes that hang and for each other.
    command += ["--print-errorlogs", "--no-stdsplit", f"--num-processes={os.cpu_count() + 1}"]
    for suite in suites:
        command += ["--suite", suite]
    environment = {"ASAN_OPTIONS": ASAN_OPTIONS, **os.environ}
    environment["OPDOCK_TEST_RESULTS"] = str(folder / "test-results")
    return subprocess.run(command, env=environment).returncode


def reason(element, case):
    """The text of a <skipped> or <failure> of a <testcase>: its message, else its content, else the
    last line that the test printed, on one line."""
    printed = (case.findtext("system-out") or "").strip().splitlines()
    text = element.get("message") or element.text or (printed or ["no reason given"])[-1]
    return " ".join(text.split())


def cases(path):
    """Yields (name, outcome, reason) for each test case of a JUnit file."""
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.findall("testcase"):
            # Meson puts the program's name on the suite, pytest the module's on the case.
            name = f"{case.get('classname') or suite.get('name')}.{case.get('name')}"
            failure = next((e for e in case if e.tag in ("failure", "error")), None)
            skipped = case.find("skipped")
            if failure is not None:
                yield name, "failed", reason(failure, case)
            elif skipped is not None or case.get("result") == "suppressed":
                yield (
                    name,
                    "skipped",
                    reason(skipped, case) if skipped is not None else "disabled",
                )
            else:
                yield name, "passed", ""


def main():
    if sys.argv[1:2] == ["--needs"] and len(sys.argv) > 2:
        for file in needs(Path(sys.argv[2]).resolve(), sys.argv[3:]):
            print(file)
        return
    if len(sys.argv) < 2:
        sys.exit("usage: tests/run.py [--needs] BUILD_FOLDER [SUITE…]")
    folder = Path(sys.argv[1]).resolve()
    results = folder / "test-results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    meson_report = folder / "meson-logs" / "testlog.junit.xml"
    meson_report.unlink(missing_ok=True)

    status = run_meson(folder, sys.argv[2:])

    reports = sorted(results.glob("*.xml"))
    # A pytest run is one case to Meson and many in its own file: the file speaks for it.
    detailed = {report.stem for report in reports}
    found = [case for report in reports for case in cases(report)]
    if meson_report.exists():
        # Meson names a case "opdock.NAME - PROJECT:SUITE"; older releases leave out the suite.
        for case in cases(meson_report):
            if case[0].split(".")[-1].split(" - ")[0] not in detailed:
                found.append(case)
    counts = Counter(outcome for _, outcome, _ in found)
    skips = defaultdict(list)
    for name, outcome, why in found:
        if outcome == "skipped":
            skips[name.rsplit(".", 1)[0], why].append(name)
    # A parametrised test that wants a GPU is hundreds of cases with one reason.
    for (group, why), names in skips.items():
        print(f"skipped: {names[0] if len(names) == 1 else f'{group} ({len(names)} cases)'}: {why}")
    for name, outcome, why in found:
        if outcome == "failed":
            print(f"failed: {name}: {why}")
    if status != 0 and not counts["failed"]:
        print(f"failed: meson test ended with status {status}; see {folder}/meson-logs/testlog.txt")
        counts["failed"] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
