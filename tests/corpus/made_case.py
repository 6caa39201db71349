# SPDX-License-Identifier: Apache-2.0
"""The table that the modules made_*.py fill."""


class Unmade(Exception):
    """A case that this machine's tools cannot make."""


def table():
    """(dict of name -> builder, decorator that adds a function under its name with dashes)."""
    cases = {}

    def case(build):
        cases[build.__name__.replace("_", "-")] = build
        return build

    return cases, case
