# SPDX-License-Identifier: Apache-2.0
"""One file: what Opdock says of it beside what the loader does and other tools read."""

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
    """Whether this Python is the one that a file is for: by its name, else by its wheel's tag."""
    name = os.path.basename(path)
    if ".abi3." in name:
        return True
    if found := re.search(r"\.(cpython|pypy|graalpy)-?(\d+)\w*-", name):
        return found[1] == "cpython" and found[0].strip(".-") == f"cpython-{PYTHON}"
    return tag in (f"cp{PYTHON}", "py3")


def differences(report, facts, path, cwd, loaded, plain):
    """What a report says otherwise than readelf, ldd and cuobjdump: list of texts. `loaded`: the
    loader took the file; `plain`: in a process that brings nothing, as ldd's."""
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
        # Where a library is missing, ldd leaves out what it may define.
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
            # cuobjdump names a cubin of sm_100f as one of sm_100.
            ours = {re.sub(r"^(sm_\d+)f$", r"\1", arch) for arch in report["cuda_archs"]}
            differ("cuda_archs", ours, images)
    if ".hip_fatbin" in facts.sections:
        images = elf_tools.hip_images(path)
        if images is not None:
            differ("hip_archs", set(report["hip_archs"]), images)
    return found


def examine(path, tag, inspect, loader, cwd):
    """A dict of JSON values on one file. `tag` is the Python of its wheel (cp311).

    "agreement": agree, disagree, undecided (Opdock does not decide), no-oracle (the file is for a
    Python that is not here) or no-answer (the loader did not end).
    """
    result = {"file": str(path)}
    with open(path, "rb") as file:
        is_elf = file.read(4) == b"\x7fELF"
    facts = elf_tools.readelf(path) if is_elf else None
    try:
        report = inspect(path, cwd)
    except RuntimeError as error:
        return {
            **result,
            "agreement": "disagree",
            "verdict": "error",
            "reasons": [str(error)],
            "loader": "not asked",
        }
    verdict = report["verdict"]
    for_python = facts is not None and any(map(is_python_symbol, facts.undefined))
    answer = None
    if not for_python:
        answer = loader.ask(path, cwd)
        of_python = re.search(r"undefined symbol: (\w+)", answer.text)
        for_python = of_python is not None and is_python_symbol(of_python[1])
    if for_python and (verdict == "rejected" or python_here(path, tag)):
        # Another Python's file may be refused for what no Python has: a missing library.
        answer = loader.ask(path, cwd, python=True)
        by_symbol = "undefined symbol: Py" in answer.text or "undefined symbol: _Py" in answer.text
        if by_symbol and not python_here(path, tag):
            answer = None
    elif for_python:
        answer = None

    reasons = causes.deciding(report)
    result.update(
        verdict=verdict,
        asked="python" if for_python else "plain",
        reasons=[f"{r['code']}: {r['text']}" for r in reasons],
    )
    if answer is None:
        result.update(loader="no-oracle", agreement="no-oracle")
    else:
        result.update(loader=f"{answer.outcome} {answer.text}".strip())
        if verdict == "undecided":
            result["agreement"] = "undecided"
        elif answer.loads is None:
            result["agreement"] = "no-answer"
        else:
            result["agreement"] = "agree" if answer.loads == (verdict == "usable") else "disagree"
        if verdict == "rejected" and answer.loads is False:
            result["refused_for"] = causes.of_message(answer.text, path)[0]
            result["same_cause"] = causes.explains(reasons[0], answer.text, path, report)
    if facts is not None and report["is_elf"] and facts.machine == elf_tools.THIS_MACHINE:
        loaded = answer is not None and answer.loads and (python_here(path, tag) or not for_python)
        result["differences"] = differences(report, facts, path, cwd, loaded, not for_python)
    return result
