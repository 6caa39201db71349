# SPDX-License-Identifier: Apache-2.0
"""Lines on stderr that a process says once."""

import sys

_said = set()


def say(text):
    """One line on stderr, whole also where several ranks write."""
    try:
        sys.stderr.write(f"opdock: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # no stderr, or a closed one: nobody listens
        pass


def say_once(key, text):
    """As say(), the first time that this process has something to say about `key`."""
    if key not in _said:
        _said.add(key)
        say(text)
