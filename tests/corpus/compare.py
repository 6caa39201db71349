# SPDX-License-Identifier: Apache-2.0
"""Compares Opdock's report on one file with the loader's answer and what other tools read."""

import os
import re
import sys

import causes
import elf_tools

PYTHON = f"{sys.version_info.major}{sys.version_info.minor}"
LISTS = ("soname", "rpath", "runpath", "needed", "executable_stack", "static_tls", "unique_symbols")


def is_python_symbol(name):
    return name.startswith(("Py", "_Py"))


def python_here(path, tag):
    """Returns whether a file is for this Python: by its name, otherwise by its wheel's tag."""
    name = os.path.basename(path)
    if ".abi3." in name:
        return True
    if found := re.search(r"\.(cpython|pypy|graalpy)-?(\d+)\w*-", name):
        return found[1] == "cpython" and found[0].strip(".-") == f"cpython-{PYTHON}"
    return tag in (f"cp{PYTHON}", "py3")


def differences(report, facts, path, cwd, loaded, plain):
    """Returns a list of texts: where a report differs from readelf, ldd and cuobjdump. `loaded`:
    the loader took the file; `plain`: it was asked in a process without other libraries, as ldd's
    is."""
    found = []

    def differ(name, ours, theirs):
        if ours != theirs:
            if isinstance(ours, set) and isinstance(theirs, set):
                ours, theirs = sorted(ours - theirs)[:5], sorted(theirs - ours)[:5]
                found.append(f"{name}: only opdock has {ours}, only the tool has {theirs}")
            else:
                found.append(f"{name}: opdock has {ours!r}, the tool has {theirs!r}")

    for name in LISTS:
        differ(name, report[name], getattr(facts, name))
    differ("undefined", set(report["undefined"]), facts.undefined)
    for library in sorted({*report["symbol_versions_by_library"], *facts.versions}):
        differ(
            f"versions of {library}",
            set(report["symbol_versions_by_library"].get(library, ())),
            facts.versions.get(library, set()),
        )
    if loaded:
        differ("unresolved", set(report["unresolved"]), set())
    elif plain and (resolution := elf_tools.ldd(path, cwd)):
        # If a library is missing, ldd does not report symbols that the library may define.
        if resolution.with_libc and not resolution.missing:
            of_file = resolution.undefined.get(os.path.realpath(path), set())
            ours = {name.split("@")[0] for name in report["unresolved"]}
            differ("unresolved", ours, of_file)
        said = " ".join(r["text"] for r in report["reasons"] if r["code"] == "library-missing")
        if not re.search(r"and \d+ more", said):
            words = set(re.split(r"[\s,:]+", said))
            for library in sorted(resolution.missing - words):
                found.append(f"missing libraries: only ldd has {library}")
    if {".nv_fatbin", ".nvFatBinSegment"} & facts.sections:
        images = elf_tools.cuda_images(path)
        if images is not None:
            # cuobjdump reports a cubin of sm_100f as one of sm_100.
            ours = {re.sub(r"^(sm_\d+)f$", r"\1", arch) for arch in report["cuda_archs"]}
            differ("cuda_archs", ours, images)
    if ".hip_fatbin" in facts.sections:
        images = elf_tools.hip_images(path)
        if images is not None:
            differ("hip_archs", set(report["hip_archs"]), images)
    return found


def ask(path, tag, facts, verdicts, loader, cwd):
    """Returns (the loader's Answer, or None if no process can be asked; whether the file is for a
    Python)."""
    for_python = facts is not None and any(map(is_python_symbol, facts.undefined))
    if not for_python:
        answer = loader.ask(path, cwd)
        missing = re.search(r"undefined symbol: (\w+)", answer.text)
        if missing is None or not is_python_symbol(missing[1]):
            return answer, False
    if python_here(path, tag):
        return loader.ask(path, cwd, python=True), True
    if "rejected" not in verdicts:
        return None, True
    # A file for another Python may be refused for a reason that holds for every Python: a missing
    # library.
    answer = loader.ask(path, cwd, python=True)
    missing = re.search(r"undefined symbol: (\w+)", answer.text)
    return (None if missing and is_python_symbol(missing[1]) else answer), True


def judge(report, answer, path):
    """Compares a report's verdict with the loader's answer; returns a dict of JSON values."""
    verdict = report["verdict"]
    reasons = causes.deciding(report)
    found = {"verdict": verdict, "reasons": [f"{r['code']}: {r['text']}" for r in reasons]}
    if answer is None:
        return {**found, "agreement": "no-oracle"}
    if verdict == "undecided":
        return {**found, "agreement": "undecided"}
    if answer.loads is None:
        return {**found, "agreement": "no-answer"}
    if answer.loads != (verdict == "usable"):
        return {**found, "agreement": "disagree"}
    if verdict == "rejected":
        found["refused_for"] = causes.of_message(answer.text, path)[0]
        found["same_cause"] = causes.explains(reasons[0], answer.text, path, report)
    return {**found, "agreement": "agree"}


def examine(path, tag, inspect, loader, cwd, member):
    """Examines one file; returns a dict of JSON values. `tag` is the Python of its wheel (cp311);
    `member` is Opdock's report on it as a part of its wheel or folder, or None if there is none.

    "agreement": agree, disagree, undecided (Opdock does not decide), no-oracle (the file is for a
    Python that is not installed) or no-answer (the loader did not end). "member" has the same
    values; there a program is compared with its behaviour as a program, and "absent" means that
    there is no report."""
    with open(path, "rb") as file:
        is_elf = file.read(4) == b"\x7fELF"
    facts = elf_tools.readelf(path) if is_elf else None
    try:
        report = inspect(path, cwd)
    except RuntimeError as error:
        return {
            "file": str(path),
            "agreement": "disagree",
            "verdict": "error",
            "reasons": [str(error)],
            "loader": "not asked",
            "member": {"agreement": "absent"},
        }
    verdicts = {report["verdict"], *([member["verdict"]] if member else [])}
    answer, for_python = ask(path, tag, facts, verdicts, loader, cwd)
    result = {
        "file": str(path),
        "asked": "python" if for_python else "plain",
        "loader": f"{answer.outcome} {answer.text}".strip() if answer else "no-oracle",
        **judge(report, answer, path),
        "member": {"agreement": "absent"},
    }
    if member:
        of_member = answer
        if facts is not None and facts.is_program:
            of_member = elf_tools.start(path, facts, cwd)
            result["program"] = f"{of_member.outcome} {of_member.text}".strip()
        result["member"] = judge(member, of_member, path)
    if facts is not None and report["is_elf"] and facts.machine == elf_tools.THIS_MACHINE:
        loaded = answer is not None and answer.loads and (python_here(path, tag) or not for_python)
        result["differences"] = differences(report, facts, path, cwd, loaded, not for_python)
    return result
