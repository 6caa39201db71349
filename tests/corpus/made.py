# SPDX-License-Identifier: Apache-2.0
"""Small libraries, each with one defect (or none): name -> builder of the file under test.

A builder takes a Box and returns the path to open. The expected result is not written here: the
loader of this machine decides it. By hand, `made.py OPDOCK [CASE…]` prints both sides' messages on
each."""

import os
import sys
import tempfile
from pathlib import Path

from box import Box
from causes import deciding, explains
from loader import Loader
from made_binding import CASES as BINDING
from made_binding import HANGING
from made_case import Unmade
from made_damage import CASES as DAMAGE
from made_graph import graph
from made_python import CASES as PYTHON
from made_search import CASES as SEARCH
from made_symbols import CASES as SYMBOLS
from made_tls import CASES as TLS
from made_versions import CASES as VERSIONS
from opdock_inspect import Inspector

CASES = {**SYMBOLS, **TLS, **VERSIONS, **SEARCH, **DAMAGE, **BINDING, **PYTHON}
for _seed in range(40 if "OPDOCK_TEST_NIGHTLY" in os.environ else 12):
    CASES[f"graph-{_seed}"] = lambda box, seed=_seed: graph(box, seed)


def compare(build, folder, loader, inspect, python=False, hangs=None):
    """Returns (the result for a builder's file, both sides' messages). The result is "right";
    "wrong": the verdict is not what the loader does; "undecided"; or "other cause": rejected, but
    not for the loader's reason.

    `folder` becomes the builder's Box; `python`: the loader is asked in a process of Python;
    `hangs`: the loader never answers, and the file should be rejected with this code. Raises Unmade
    if this machine cannot make the file."""
    (folder / "cwd").mkdir(parents=True)
    path = build(Box(folder))
    answer = loader.ask(path, folder / "cwd", python=python, **({"seconds": 1} if hangs else {}))
    report = inspect(path, folder / "cwd")
    said = report["verdict"]
    reasons = "; ".join(f"{r['code']}: {r['text']}" for r in report["reasons"])
    words = f"loader {answer.outcome} {answer.text} | opdock {said} {reasons}"
    words = words.replace(str(folder), "").replace("\n", " ")
    if hangs:
        codes = [reason["code"] for reason in deciding(report)]
        is_right = answer.outcome == "no-answer" and said == "rejected" and codes[:1] == [hangs]
        return ("right" if is_right else "wrong"), words
    if answer.loads is None:
        raise RuntimeError(f"the loader gave no answer: {words}")
    if said == "undecided":
        return "undecided", words
    if (said == "usable") != answer.loads:
        return "wrong", words
    if said == "rejected" and not explains(deciding(report)[0], answer.text, path, report):
        return "other cause", words
    return "right", words


def compare_case(case, folder, loader, inspect):
    """Calls compare() for a case by its name."""
    return compare(
        CASES[case], folder, loader, inspect, python=case in PYTHON, hangs=HANGING.get(case)
    )


def main(command, cases):
    inspect = Inspector(command)
    with tempfile.TemporaryDirectory() as top:
        loader = Loader(top)
        for case in cases or CASES:
            try:
                what, words = compare_case(case, Path(top, case), loader, inspect)
            except Unmade as error:
                what, words = "not made", str(error)
            print(f"{what:<12} {case}: {words}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
