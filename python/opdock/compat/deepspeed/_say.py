# SPDX-License-Identifier: Apache-2.0
"""Prints lines on stderr, some of them only once in a process."""

import sys

_said = set()


def say(text):
    """Prints one line on stderr by a single write, so that the lines of several ranks do not
    mix."""
    try:
        sys.stderr.write(f"opdock: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # there is no stderr, or it is closed
        pass


def say_once(key, text):
    """Prints the line as say() does, but only the first time for each `key` in this process."""
    if key not in _said:
        _said.add(key)
        say(text)
