#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a formula as it is written beside the graph that it becomes: formula-graph.svg.

    docs/reference/make_formula_graph.py PROGRAM           writes the drawing and the page's text
    docs/reference/make_formula_graph.py PROGRAM --check   changes nothing; 1 if it would

PROGRAM: graph_lines (tests/unit/formula), which prints the nodes of both.
"""

import subprocess
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
PICTURE = HERE / "formula-graph.svg"
PAGE = HERE / "formulas.md"
FORMULA = """\
y = (x - mean(x)) * rsqrt(mean((x - mean(x)) * (x - mean(x))) + eps)
return 1.0 * y * weight
"""
NUMBERS = ["eps"]
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "neg": "-"}
STEP_X, STEP_Y, MARGIN = 78, 58, 20  # from one node to the next
WIDTH, HEIGHT, BEND = 66, 26, 60  # of a node; of an edge that passes others
TITLES = {"written": "as it is written", "graph": "the graph"}


class Graph:
    """labels, operands: of each node, by its number. results: numbers."""

    def __init__(self):
        self.labels, self.operands, self.results = {}, {}, []

    def rows(self):
        """Returns the nodes in rows from the top: each below all of its operands."""
        depth = {}

        def depth_of(node):
            if node not in depth:
                depth[node] = 1 + max((depth_of(x) for x in self.operands[node]), default=-1)
            return depth[node]

        rows = [[] for _ in range(1 + max(map(depth_of, self.labels)))]
        # A leaf stands directly above what uses it first.
        for node in self.labels:
            users = [x for x, operands in self.operands.items() if node in operands]
            is_leaf = not self.operands[node] and users
            rows[min(map(depth_of, users)) - 1 if is_leaf else depth_of(node)].append(node)
        return self._sorted(rows)

    def _sorted(self, rows):
        """Returns the rows with each node near its neighbours in the rows above and below."""
        near = {node: set(operands) for node, operands in self.operands.items()}
        for node, operands in self.operands.items():
            for x in operands:
                near[x].add(node)
        places = {}
        for row in rows:
            places.update({node: i - len(row) / 2 for i, node in enumerate(row)})
        for _ in range(8):
            for row in rows:
                row.sort(key=lambda x: sum(places[y] for y in near[x]) / max(len(near[x]), 1))
                places.update({node: i - len(row) / 2 for i, node in enumerate(row)})
        return rows


def read(program):
    """Returns {"written": Graph, "graph": Graph} of the formula."""
    lines = subprocess.run(
        [program, FORMULA, *NUMBERS], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    graphs = {}
    for line in lines:
        words = line.split()
        if line in TITLES:
            graph = graphs[line] = Graph()
        elif words[0] == "results":
            graph.results = list(map(int, words[1:]))
        else:
            graph.labels[int(words[0])] = SIGNS.get(words[1], words[1])
            graph.operands[int(words[0])] = list(map(int, words[3:]))
    return graphs


def operations(graph):
    return sum(bool(operands) for operands in graph.operands.values())


def drawn(graph, left, title):
    """Returns (elements, width, height) of the drawing of a graph."""
    rows = graph.rows()
    width = max(map(len, rows)) * STEP_X
    at = {}
    for y, row in enumerate(rows):
        for x, node in enumerate(row):
            shift = (width - len(row) * STEP_X) / 2
            at[node] = (left + shift + x * STEP_X + STEP_X / 2, 62 + y * STEP_Y)
    out = [f'<text class="title" x="{left + width / 2:g}" y="28">{escape(title)}</text>']
    for node, operands in graph.operands.items():
        x, y = at[node]
        for i, operand in enumerate(operands):
            x0, y0 = at[operand]
            if y - y0 > STEP_Y:  # past the nodes between the two
                x0, x1 = x0 - WIDTH / 2, x - WIDTH / 2
                curve = f"C{x0 - BEND:g} {y0 + 20:g} {x1 - BEND:g} {y - 20:g} {x1:g} {y:g}"
                out.append(f'<path d="M{x0:g} {y0:g} {curve}"/>')
                continue
            x1 = x + (i - (len(operands) - 1) / 2) * 16  # the first operand arrives on the left
            out.append(f'<path d="M{x0:g} {y0 + HEIGHT / 2:g} L{x1:g} {y - HEIGHT / 2:g}"/>')
    for node, (x, y) in at.items():
        kind = "leaf" if not graph.operands[node] else "node"
        kind = "result" if node in graph.results else kind
        out.append(
            f'<rect class="{kind}" x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" '
            f'height="{HEIGHT}" rx="6"/>'
        )
        out.append(f'<text x="{x:g}" y="{y + 4:g}">{escape(graph.labels[node])}</text>')
    return out, width, 62 + len(rows) * STEP_Y


def svg(graphs):
    out, left, height = [], MARGIN, 0
    for name, graph in graphs.items():
        title = f"{TITLES[name]}: {operations(graph)} operations"
        more, width, tall = drawn(graph, left, title)
        out += more
        left += width + 3 * MARGIN
        height = max(height, tall)
    size = f"{left - 2 * MARGIN:g} {height:g}"
    style = (
        "text{font:13px sans-serif;text-anchor:middle;fill:#1f2328}.title{font-weight:bold}"
        "path{stroke:#8b949e;fill:none}rect{stroke:#57606a;fill:#fff}"
        ".leaf{fill:#ddf4ff}.result{fill:#dafbe1}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
        'aria-label="A formula as it is written, and the graph that it becomes">'
    )
    return "\n".join(
        [
            "<!-- written by make_formula_graph.py -->",
            head,
            f"<style>{style}</style>",
            '<rect width="100%" height="100%" fill="#fff" style="stroke:none"/>',
            *out,
            "</svg>",
            "",
        ]
    )


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    text = svg(read(sys.argv[1]))
    shown = f"```text\n{FORMULA}```\n\n![The formula as it is written"
    if shown not in PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE} does not show this formula above the drawing:\n{FORMULA}")
    if sys.argv[2:]:
        if PICTURE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PICTURE} is not what make_formula_graph.py writes: run it")
        return
    PICTURE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
