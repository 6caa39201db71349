# SPDX-License-Identifier: Apache-2.0
"""Maps the loader's messages and Opdock's reasons to common terms: (cause, its subject)."""

import os
import re

# Messages that name their subject, which is the pattern's group.
NAMING = [
    (r"^(\S+): cannot open shared object file", "library-missing"),
    (r"version `([^']+)' not found", "version"),
    (r"undefined symbol: ([^\s,]+)", "symbol"),
    (r"symbol ([^\s,]+), version \S+ not defined in file", "symbol"),
]
# Parts of the other messages, or of how the process ended.
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

# Opdock's codes for each cause, if it concerns the file itself; OF_A_LIBRARY has those for a
# library.
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
    """Returns (cause, subject) of a loader's message about the file at `path`; the cause is "other"
    if it is not known."""
    for pattern, cause in NAMING:
        if found := re.search(pattern, text):
            # A file for another machine exists, but the loader reports that it cannot be opened.
            if cause == "library-missing" and found[1] == str(path):
                return "class", ""
            return cause, found[1]
    for cause, phrases in PHRASES.items():
        if any(phrase in text for phrase in phrases):
            return cause, ""
    return "other", ""


def deciding(report):
    """Returns the reasons that decide a report's verdict, in their order."""
    severity = {"rejected": "reject", "undecided": "undecided"}.get(report["verdict"])
    return [reason for reason in report["reasons"] if reason["severity"] == severity]


def explains(reason, message, path, report):
    """Returns whether a report's reason is the cause that the loader's message names for the file
    at `path`, with the same symbol, version or library."""
    cause, subject = of_message(message, path)
    words = f"{reason['found']} {reason['wanted']} {reason['text']}"
    if "symbol" in reason["code"]:
        words += " " + " ".join(report["unresolved"])  # the reason names only the first ones
    of_file = re.match(r"(\S+): ", message)
    about_a_library = of_file is not None and of_file[1] != str(path)
    # All libraries together use up static TLS, so it does not matter which one comes last.
    if about_a_library and cause not in ("library-missing", "version", "static-tls"):
        if os.path.basename(of_file[1]) not in words:
            return False
        return reason["code"] in OF_A_LIBRARY.get(cause, {"library-refused"}) and subject in words
    # The process was killed, so the message does not name the file.
    if cause == "damaged" and of_file is None:
        return reason["code"] in CODES[cause] | {"library-refused"}
    return reason["code"] in CODES.get(cause, ()) and subject in words
