# SPDX-License-Identifier: Apache-2.0
"""Checks that this torch has what the operators need."""

#: The first torch whose dispatcher, tags and functorch are as this package uses them.
OLDEST = (2, 11)


def check(version):
    """Raises ImportError for a torch that is too old. version: torch.__version__."""
    numbers = version.split("+")[0].split(".")[:2]
    if len(numbers) == 2 and all(n.isdigit() for n in numbers) and (*map(int, numbers),) < OLDEST:
        raise ImportError(
            f"opdock.torch: found torch {version}, wanted {OLDEST[0]}.{OLDEST[1]} or newer; update "
            "torch, or call the functions of opdock.ops"
        )
