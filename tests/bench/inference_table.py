# SPDX-License-Identifier: Apache-2.0
"""Prepares table.py's rows on inference.py's records: one for each function and dtype."""

import statistics


def _largest(rows):
    """Returns the largest error of the rows that have one, as text."""
    errors = [row["error"] for row in rows if "error" in row]
    return f"{max(errors):.1e}" if errors else ""


def _verdict(rows, total):
    """Returns "" if all are right; otherwise how many are not, and what was found for the first of
    them."""
    wrong = [row for row in rows if not row["right"]]
    if not wrong:
        return ""
    shape = wrong[0]["name"].split()[-2]
    return f"{len(wrong)} of {total}; {shape}: {wrong[0]['found']}".replace("|", "/")


def by_function(rows):
    """Condenses the rows of one run to one for each function and dtype.

    least, median, most: DeepSpeed's time divided by Opdock's, over all shapes that ran in both,
    right or not; slower: at how many shapes Opdock takes longer. A name is "FUNCTION SHAPE DTYPE".
    """
    found = {}
    for row in rows:
        function, _, dtype = row["name"].rsplit(" ", 2)
        peers = found.setdefault((function, dtype), {})
        peers.setdefault(row["peer"], {})[row["name"]] = row
    made = []
    for (function, dtype), peers in found.items():
        ours, theirs = peers.get("opdock", {}), peers.get("DeepSpeed", {})
        ratios = [
            theirs[name]["us"] / row["us"]
            for name, row in ours.items()
            if "us" in row and "us" in theirs.get(name, {})
        ]
        made.append(
            {
                "name": f"{function}, {dtype}",
                "shapes": len(ours),
                "least": round(min(ratios), 2) if ratios else "",
                "median": round(statistics.median(ratios), 2) if ratios else "",
                "most": round(max(ratios), 2) if ratios else "",
                "slower": sum(ratio < 1 for ratio in ratios),
                "error": _largest(ours.values()),
                "DeepSpeed's error": _largest(theirs.values()),
                "wrong": _verdict(ours.values(), len(ours)),
                "DeepSpeed's wrong": _verdict(theirs.values(), len(theirs)),
                "where": rows[-1]["where"],
            }
        )
    return made
