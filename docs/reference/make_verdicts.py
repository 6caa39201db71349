#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the list of reason codes in docs/reference/verdicts.md from core/base/reason_codes.def.

    docs/reference/make_verdicts.py           replaces what stands between the two marks
    docs/reference/make_verdicts.py --check   changes nothing; exit status 1 if it would

The rest of the page is written by hand.
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODES = ROOT / "core" / "base" / "reason_codes.def"
PAGE = ROOT / "docs" / "reference" / "verdicts.md"
BEGIN = "<!-- codes: written by make_verdicts.py -->"
END = "<!-- end of codes -->"

STAGES = {
    "discover": "Finding files",
    "trust": "Who may have written the file",
    "file": "What the bytes are",
    "note": "What the plugin says about itself",
    "abi": "The plugin ABI",
    "system": "CPU, C library, other libraries",
    "device": "Devices",
    "load": "Running the plugin's code",
    "cache": "What was compiled and built before",
    "jit": "Compiling device code at run time",
    "build": "Building a source plugin",
    "reference": "The reference implementation",
    "gemm": "The library that multiplies matrices",
    "attention": "The library that computes attention",
    "package": "Wheels, folders and installed packages",
    "command": "The command itself",
}
EFFECTS = {
    "kReject": "rejects",
    "kUndecided": "leaves undecided",
    "kNotice": "notice",
}


def strings(text):
    """The C string literals of `text`, adjacent ones joined, one entry a macro argument."""
    arguments, current, at = [], None, 0
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|,|\bk[A-Z]\w*', text):
        if match.group(0) == ",":
            if current is not None:
                arguments.append(current)
            current = None
        elif match.group(1) is not None:
            current = (current or "") + match.group(1).replace('\\"', '"')
        else:
            current = match.group(0)
        at = match.end()
    assert at <= len(text)
    return arguments + ([current] if current is not None else [])


def read_codes():
    """Yields (name, stage, severity, meaning, cause, advice) in the file's order."""
    source = re.sub(r"(?m)^\s*//.*$", "", CODES.read_text(encoding="utf-8"))
    for entry in re.split(r"\bOPDOCK_CODE\(", source)[1:]:
        body = entry[: entry.rindex(")")]
        fields = strings(body.split(",", 1)[1])  # behind the identifier
        if not 6 <= len(fields) <= 9:
            sys.exit(f"{CODES}: {len(fields)} fields, wanted 6 to 9: {fields}")
        yield fields[:6]  # the others are how a reason reads


def wrapped(text):
    """An item of a Markdown list, or a line that continues one."""
    indent = "" if text.startswith("- ") else "  "
    return textwrap.wrap(
        text,
        width=110,
        initial_indent=indent,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def codes():
    """The generated part of the page."""
    lines = []
    shown = None
    for name, stage, severity, meaning, cause, advice in read_codes():
        if stage != shown:
            lines += ["", f"### {STAGES[stage]} (stage `{stage}`)", ""]
            shown = stage
        lines += wrapped(f"- **`{name}`** ({EFFECTS[severity]}): {meaning}")
        lines += wrapped(f"*Cause:* {cause}")
        lines += wrapped(f"*Remedy:* {advice[0].upper() + advice[1:]}.")
    return "\n".join([BEGIN, *lines, "", END])


def main():
    page = PAGE.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{PAGE}: the two marks are missing")
    before, rest = page.split(BEGIN)
    wanted = before + codes() + rest.split(END)[1]
    if wanted == page:
        return
    if "--check" in sys.argv[1:]:
        sys.exit(
            f"{PAGE} is older than core/base/reason_codes.def: run docs/reference/make_verdicts.py"
        )
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
