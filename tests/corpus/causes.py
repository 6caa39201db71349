# SPDX-License-Identifier: Apache-2.0
"""The loader's messages and Opdock's reasons in common words: (cause, what it is about)."""

import re

# Messages that name what they are about: the group.
NAMING = [
    (r"^(\S+): cannot open shared object file", "library-missing"),
    (r"version `([^']+)' not found", "version"),
    (r"undefined symbol: ([^\s,]+)", "symbol"),
    (r"symbol ([^\s,]+), version \S+ not defined in file", "symbol"),
]
# Other messages, or how the process ended, begin with or have one of these.
PHRASES = {
    "short": ["file too short"],
    "class": ["wrong ELF class", "ELF file data encoding"],
    "version-of-elf": ["ELF file version"],
    "abi": ["ELF file OS ABI invalid", "ELF file ABI version invalid", "nonzero padding"],
    "type": ["cannot dynamically load", "only ET_DYN and ET_EXEC"],
    "no-open": ["shared object cannot be dlopen"],
    "static-tls": ["static TLS block"],
    "stack": ["executable stack"],
    "cpu": ["CPU ISA level"],
    "relr": ["without GLIBC_ABI_DT_RELR"],
    "folder": ["Is a directory"],
    "damaged": [
        "invalid ELF header",
        "ELF file's phentsize",
        "ELF load command",
        "object file has no",
        "cannot read file data",
        "unexpected reloc type",
        "unexpected PLT reloc",
        "Inconsistency detected by ld.so",
        "SIGBUS",
        "SIGSEGV",
        "SIGFPE",
    ],
}

# Opdock's codes that stand for each cause.
CODES = {
    "library-missing": {"library-missing"},
    "version": {"glibc-version", "libstdcxx-version", "symbol-version"},
    "symbol": {"symbols-unresolved", "symbol-missing"},
    "damaged": {"elf-malformed", "elf-truncated", "not-elf"},
    "short": {"file-empty", "elf-truncated", "not-elf"},
    "class": {"elf-class", "elf-machine"},
    "version-of-elf": {"elf-class", "elf-malformed"},
    "relr": {"elf-malformed", "glibc-version"},
    "folder": {"not-regular"},
    "abi": {"elf-abi"},
    "type": {"elf-type"},
    "no-open": {"no-open"},
    "static-tls": {"static-tls"},
    "stack": {"executable-stack"},
    "cpu": {"cpu-level"},
}


def of_message(text, path=None):
    """(cause, subject) of a loader's message about the file at `path`; the cause is "other" where
    it is not known."""
    for pattern, cause in NAMING:
        if found := re.search(pattern, text):
            # A file of another machine is there, and "cannot be opened".
            if cause == "library-missing" and found[1] == str(path):
                return "class", ""
            return cause, found[1]
    for cause, phrases in PHRASES.items():
        if any(phrase in text for phrase in phrases):
            return cause, ""
    return "other", ""


def rejecting(report):
    """The reasons of a report that say that the system refuses the file, in their order."""
    return [
        reason
        for reason in report["reasons"]
        if reason["severity"] == "reject"
        and reason["code"] != "note-missing"
        and reason["stage"] != "device"
    ]


def undecided(report):
    """The reasons that leave open whether the file loads."""
    return [
        reason
        for reason in report["reasons"]
        if reason["severity"] == "undecided" and reason["stage"] != "device"
    ]


def verdict(report):
    """ "usable", "rejected" or "undecided": what the report says about loading the file."""
    if rejecting(report):
        return "rejected"
    return "undecided" if undecided(report) else "usable"


def explains(reason, message, path):
    """Whether a reason is the cause that the loader's message names for the file at `path`,
    and about the same thing."""
    cause, subject = of_message(message, path)
    if reason["code"] not in CODES.get(cause, ()):
        return False
    return cause not in ("library-missing", "version", "symbol") or subject in (
        f"{reason['found']} {reason['wanted']} {reason['text']}"
    )
