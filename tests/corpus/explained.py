# SPDX-License-Identifier: Apache-2.0
"""Why a verdict differs from the loader's answer, where that was looked into."""

import re

# (what the file, the reasons or the loader's message have, the cause).
CAUSES = [
    (
        r"executable-stack.*\| loaded",
        "The file asks for an executable stack. This C library still grants it; from 2.41 on it "
        "refuses.",
    ),
    (
        r"-3[0-9]m?-\S+\.so .*symbols-undefined.*\| loaded",
        "An extension module for another Python, which wants functions of libm that it does not "
        "name: every interpreter brings that library.",
    ),
]


def cause(result):
    """The cause of a difference as compare.examine found it, or None where it is not known."""
    words = f"{result['file']} {' '.join(result['reasons'])} | {result['loader']}"
    return next((text for pattern, text in CAUSES if re.search(pattern, words)), None)
