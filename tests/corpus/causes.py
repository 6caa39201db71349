# SPDX-License-Identifier: Apache-2.0
"""The loader's messages and Opdock's reasons in common words: (cause, what it is about)."""

import re

# The loader's message -> cause. A group is what the message is about.
MESSAGES = [
    (r"^(\S+): cannot open shared object file", "library-missing"),
    (r"version `([^']+)' not found", "version"),
    (r"undefined symbol: ([^\s,]+)", "symbol"),
    (r"symbol ([^\s,]+), version \S+ not defined in file", "symbol"),
    (r"invalid ELF header|ELF file.s phentsize|ELF file version|object file has no dynamic section"
     r"|no loadable segments|ELF load command|unexpected reloc type|unexpected PLT reloc"
     r"|cannot read file data|Inconsistency detected by ld.so|cannot map"
     r"|without GLIBC_ABI_DT_RELR|^SIG(BUS|SEGV|FPE)", "damaged"),
    (r"file too short", "short"),
    (r"wrong ELF class|not little-endian|data encoding|internal error", "class"),
    (r"cannot open shared object file: No such file", "library-missing"),
    (r"ELF file OS ABI invalid|ELF file ABI version invalid", "abi"),
    (r"cannot dynamically load|only ET_DYN and ET_EXEC", "type"),
    (r"shared object cannot be dlopen", "no-open"),
    (r"static TLS block", "static-tls"),
    (r"executable stack", "stack"),
    (r"CPU ISA level", "cpu"),
]  # fmt: skip

# Opdock's codes that stand for each cause. The first is what a message of the file itself wants.
CODES = {
    "library-missing": {"library-missing"},
    "version": {"glibc-version", "libstdcxx-version", "symbol-version"},
    "symbol": {"symbols-unresolved", "symbol-missing"},
    "damaged": {"elf-malformed", "elf-truncated", "not-elf"},
    "short": {"file-empty", "elf-truncated", "not-elf"},
    "class": {"elf-class", "elf-machine"},
    "abi": {"elf-abi"},
    "type": {"elf-type"},
    "no-open": {"no-open"},
    "static-tls": {"static-tls"},
    "stack": {"executable-stack"},
    "cpu": {"cpu-level"},
}


def of_message(text):
    """(cause, subject) of a loader's message; the cause is "other" where it is not known."""
    for pattern, cause in MESSAGES:
        if found := re.search(pattern, text):
            groups = [group for group in found.groups() if group]
            return cause, groups[0] if groups else ""
    return "other", ""


def rejecting(report):
    """The reasons of a report that say that the system refuses the file, in their order."""
    return [
        reason
        for reason in report["reasons"]
        if reason["severity"] == "reject" and reason["code"] != "note-missing"
    ]


def verdict(report):
    """ "usable", "rejected" or "undecided": what the report says about loading the file."""
    if rejecting(report):
        return "rejected"
    undecided = any(reason["severity"] == "undecided" for reason in report["reasons"])
    return "undecided" if undecided else "usable"


def explains(reason, message):
    """Whether a reason is the cause that the loader's message names, and about the same thing."""
    cause, subject = of_message(message)
    if reason["code"] not in CODES.get(cause, ()):
        return False
    return cause not in ("library-missing", "version", "symbol") or subject in (
        f"{reason['found']} {reason['wanted']} {reason['text']}"
    )
