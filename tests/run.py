#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a build folder and closes with one line over all suites.

    tests/run.py [--nightly] BUILD_FOLDER [SUITE…]
    tests/run.py --needs [--nightly] BUILD_FOLDER [SUITE…]

The second form only prints what has to be built for these tests, as targets of ninja. --nightly:
runs also the suite nightly, and the long form of other tests (OPDOCK_TEST_NIGHTLY is set).

Meson runs everything. GoogleTest programs report their cases to Meson; pytest runs write JUnit
files into BUILD_FOLDER/test-results. Both are read here, so that a skip or a failure is counted and
named as a case. A test program that reports no cases counts as one. The slowest programs and cases
are listed with their CPU time. The exit status is 1 if a case failed or if none ran.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

SLOWEST = 30  # how many programs and cases are listed with their time


MEASURE = Path(__file__).resolve().with_name("measure.py")


def introspect(folder, what):
    """Returns what Meson reports about its targets or tests."""
    return json.loads((folder / "meson-info" / f"intro-{what}.json").read_text())


def needs(folder, suites, nightly):
    """Returns the files, relative to the folder, that the tests of the suites use (of all suites if
    none is named)."""
    files = {target["id"]: target["filename"] for target in introspect(folder, "targets")}
    used = set()
    for test in introspect(folder, "tests"):
        of = {name.split(":")[-1] for name in test["suite"]}
        if (not suites or of & set(suites)) and (nightly or "nightly" not in of):
            used.update(file for target in test["depends"] for file in files[target])
    return sorted(os.path.relpath(file, folder) for file in used)


# Meson's own options, plus one: the runtime must not guess where the TLS of libraries opened later
# is. With an address 16 bytes into a page it guesses wrong (it assumes glibc before 2.25), and then
# crashes.
ASAN_OPTIONS = "halt_on_error=1:abort_on_error=1:print_summary=1:intercept_tls_get_addr=0"


def run_meson(folder, suites, nightly):
    """Runs `meson test`; returns its exit status. The output of failing programs is shown."""
    command = [sys.executable, "-m", "mesonbuild.mesonmain", "test", "-C", str(folder)]
    # One more process than cores, because tests also wait: for processes that hang and for each
    # other.
    command += ["--print-errorlogs", "--no-stdsplit", f"--num-processes={os.cpu_count() + 1}"]
    # Machines differ by a factor of three, and a test's time depends on what runs at the same time.
    command += ["--timeout-multiplier=5"]
    command += [f"--wrapper={shlex.join([sys.executable, '-IS', str(MEASURE)])}"]
    for suite in suites:
        command += ["--suite", suite]
    environment = {"ASAN_OPTIONS": ASAN_OPTIONS, **os.environ}
    if nightly:
        environment["OPDOCK_TEST_NIGHTLY"] = "1"
    else:
        command += ["--no-suite", "nightly"]
    environment["OPDOCK_TEST_RESULTS"] = str(folder / "test-results")
    return subprocess.run(command, env=environment).returncode


def programs(folder, path):
    """Yields (test's name, CPU seconds, wall seconds) from measure.py's records."""
    tests = introspect(folder, "tests")
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        for test in tests:
            command, wanted = test["cmd"], test["env"].items()
            settings = {name: value for name, value in wanted if name.startswith("OPDOCK_")}
            if run["argv"][: len(command)] == command and settings.items() <= run["env"].items():
                yield test["name"], run["cpu"], run["wall"]
                break
        else:
            yield " ".join(run["argv"]), run["cpu"], run["wall"]


def reason(element, case):
    """Returns the text of a <skipped> or <failure> of a <testcase> on one line: its message,
    otherwise its content, otherwise the last line that the test printed."""
    printed = (case.findtext("system-out") or "").strip().splitlines()
    text = element.get("message") or element.text or (printed or ["no reason given"])[-1]
    return " ".join(text.split())


def seconds(case):
    """Returns (CPU seconds, or None if only the wall time is known; wall seconds) of a
    <testcase>."""
    cpu = case.find("properties/property[@name='cpu']")
    return None if cpu is None else float(cpu.get("value")), float(case.get("time") or 0)


def print_slowest(title, rows):
    """Prints the slowest rows: (name, CPU seconds or None, wall seconds)."""
    rows.sort(key=lambda row: row[2] if row[1] is None else row[1], reverse=True)
    print(f"{title}: CPU s, wall s")
    for name, cpu, wall in rows[:SLOWEST]:
        print(f"{'-' if cpu is None else format(cpu, '.1f'):>8} {wall:7.1f}  {name}")


def cases(path):
    """Yields (name, outcome, reason, seconds()) for each test case of a JUnit file."""
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.findall("testcase"):
            # Meson puts the program's name on the suite, pytest the module's name on the case.
            name = f"{case.get('classname') or suite.get('name')}.{case.get('name')}"
            failure = next((e for e in case if e.tag in ("failure", "error")), None)
            skipped = case.find("skipped")
            if failure is not None:
                yield name, "failed", reason(failure, case), seconds(case)
            elif skipped is not None or case.get("result") == "suppressed":
                why = reason(skipped, case) if skipped is not None else "disabled"
                yield name, "skipped", why, seconds(case)
            else:
                yield name, "passed", "", seconds(case)


def main():
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if not words or set(options) - {"--needs", "--nightly"}:
        sys.exit("usage: tests/run.py [--needs] [--nightly] BUILD_FOLDER [SUITE…]")
    folder, suites, nightly = Path(words[0]).resolve(), words[1:], "--nightly" in options
    if "--needs" in options:
        for file in needs(folder, suites, nightly):
            print(file)
        return
    results = folder / "test-results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    # Meson's log names contain the wrapper's name: testlog-python.junit.xml.
    meson_logs = folder / "meson-logs"
    for report in meson_logs.glob("testlog*.junit.xml"):
        report.unlink()

    status = run_meson(folder, suites, nightly)

    reports = sorted(results.glob("*.xml"))
    # A pytest run is one case to Meson and many in its own file, which is used instead.
    detailed = {report.stem for report in reports}
    found = [case for report in reports for case in cases(report)]
    meson_reports = sorted(meson_logs.glob("testlog*.junit.xml"))
    for report in meson_reports:
        # Meson names a case "opdock.NAME - PROJECT:SUITE"; older releases leave out the suite.
        for case in cases(report):
            if case[0].split(".")[-1].split(" - ")[0] not in detailed:
                found.append(case)
    print_slowest("The slowest programs", list(programs(folder, results / "programs")))
    print_slowest("The slowest cases", [(name, *spent) for name, _, _, spent in found])
    counts = Counter(outcome for _, outcome, _, _ in found)
    skips = defaultdict(list)
    for name, outcome, why, _ in found:
        if outcome == "skipped":
            skips[name.rsplit(".", 1)[0], why].append(name)
    # A parametrised test that needs a GPU is hundreds of cases with one reason.
    for (group, why), names in skips.items():
        print(f"skipped: {names[0] if len(names) == 1 else f'{group} ({len(names)} cases)'}: {why}")
    for name, outcome, why, _ in found:
        if outcome == "failed":
            print(f"failed: {name}: {why}")
    if not meson_reports:
        print(f"failed: found no report of Meson's in {meson_logs}, wanted testlog*.junit.xml")
        counts["failed"] += 1
    if status != 0 and not counts["failed"]:
        print(f"failed: meson test ended with status {status}; see {meson_logs}")
        counts["failed"] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
