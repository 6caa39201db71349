# SPDX-License-Identifier: Apache-2.0
"""Known causes of verdicts that differ from the loader's answer."""

import re

# (pattern for the text of file name, reasons and loader's message; the cause)
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
    """Returns the cause of a difference that compare.examine found, or None if it is not known."""
    words = f"{result['file']} {' '.join(result['reasons'])} | {result['loader']}"
    return next((text for pattern, text in CAUSES if re.search(pattern, words)), None)
