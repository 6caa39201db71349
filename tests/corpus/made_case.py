# SPDX-License-Identifier: Apache-2.0
"""The table that the modules made_*.py fill."""


class Unmade(Exception):
    """Raised for a case that this machine's tools cannot make."""


def table():
    """Returns (dict of name -> builder, decorator that adds a function under its name with
    dashes)."""
    cases = {}

    def case(build):
        cases[build.__name__.replace("_", "-")] = build
        return build

    return cases, case


def both_of(cases, code, *words):
    """Returns a decorator for functions that edit a library compiled from `code`. It adds two cases
    for each: the library is opened itself, or another file needs it."""

    def both(build):
        name = build.__name__.replace("_", "-")

        def alone(box):
            box.lib("a.so", code, *words)
            build(box, box.folder / "a.so")
            return box.folder / "a.so"

        def needed(box):
            box.lib("libb.so", code, *words)
            path = box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")
            build(box, box.folder / "libb.so")
            return path

        cases[name] = alone
        cases[name + "-in-dependency"] = needed
        return build

    return both
