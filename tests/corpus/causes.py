# SPDX-License-Identifier: Apache-2.0
"""The loader's messages and Opdock's reasons in common words: (cause, what it is about)."""

import os
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
    "abi": ["ELF file OS ABI invalid", "ELF file ABI version invalid"],
    "type": ["cannot dynamically load", "only ET_DYN and ET_EXEC"],
    "no-open": ["shared object cannot be dlopen"],
    "static-tls": ["static TLS block"],
    "stack": ["executable stack"],
    "cpu": ["CPU ISA level"],
    "relr": ["without GLIBC_ABI_DT_RELR"],
    "folder": ["Is a directory"],
    "damaged": [
        "invalid ELF header",
        "nonzero padding in e_ident",
        "unsupported version",
        "ELF file's phentsize",
        "ELF load command",
        "object file has no",
        "cannot read file data",
        "cannot map zero-fill pages",
        "unexpected reloc type",
        "unexpected PLT reloc",
        "Inconsistency detected by ld.so",
        "SIGBUS",
        "SIGSEGV",
        "SIGFPE",
    ],
}

# Opdock's codes that stand for each cause, where it is the file's own and where a library's.
CODES = {
    "library-missing": {"library-missing"},
    "version": {"glibc-version", "libstdcxx-version", "symbol-version", "elf-malformed"},
    "symbol": {"symbols-undefined"},
    "short": {"file-empty", "elf-truncated", "not-elf"},
    "class": {"elf-class", "elf-machine"},
    "version-of-elf": {"elf-class", "elf-malformed"},
    "abi": {"elf-abi"},
    "type": {"elf-type"},
    "no-open": {"no-open"},
    "static-tls": {"static-tls-full"},
    "stack": {"executable-stack"},
    "cpu": {"cpu-level"},
    "relr": {"elf-malformed", "glibc-version"},
    "folder": {"not-regular"},
    "damaged": {"elf-malformed", "elf-truncated", "not-elf"},
}
OF_A_LIBRARY = {
    "symbol": CODES["symbol"],
    "cpu": CODES["cpu"] | {"library-refused"},
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


def deciding(report):
    """The reasons that make a report's verdict what it is, in their order."""
    severity = {"rejected": "reject", "undecided": "undecided"}.get(report["verdict"])
    return [reason for reason in report["reasons"] if reason["severity"] == severity]


def explains(reason, message, path, report):
    """Whether a report's reason is the cause that the loader's message names for the file at
    `path`, and about the same symbol, version or library."""
    cause, subject = of_message(message, path)
    words = f"{reason['found']} {reason['wanted']} {reason['text']}"
    if "symbol" in reason["code"]:
        words += " " + " ".join(report["unresolved"])  # the reason names only the first ones
    of_file = re.match(r"(\S+): ", message)
    about_a_library = of_file is not None and of_file[1] != str(path)
    # Static TLS runs out by all libraries together: which one comes last says nothing.
    if about_a_library and cause not in ("library-missing", "version", "static-tls"):
        if os.path.basename(of_file[1]) not in words:
            return False
        return reason["code"] in OF_A_LIBRARY.get(cause, {"library-refused"}) and subject in words
    if cause == "damaged" and of_file is None:  # the process was killed: by which file is not said
        return reason["code"] in CODES[cause] | {"library-refused"}
    return reason["code"] in CODES.get(cause, ()) and subject in words
