# SPDX-License-Identifier: Apache-2.0
"""Replaces the generated part of a page that people edit too: the text between two marks."""

import sys

END = "<!-- end -->"


def filled(path, begin, text):
    """Returns the page at `path` with `text` between the mark `begin` and the next END. Exits where
    one is missing."""
    before, found, rest = path.read_text().partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        sys.exit(f"{path}: found no {begin} before {END}, between which figures stand; add both")
    return f"{before}{begin}\n\n{text}\n{end}{after}"
