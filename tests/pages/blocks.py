# SPDX-License-Identifier: Apache-2.0
"""Reads the code blocks of Markdown pages, with the comments before them that tell the tests more.

A comment does not show where the page is rendered. It stands right before the block:

    <!-- given: CODE -->       CODE comes before the block, or around it: a line "…" is its place
    <!-- needs: cuda -->       the block is only run where torch has a GPU
    <!-- not run: REASON -->   the block cannot be run by a test
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "docs", "examples", "plugins", "python", "tests")
KINDS = ("given", "needs", "not run")


@dataclass(eq=False)
class Block:
    page: str  # its path from the root
    line: int  # of the block's first line
    language: str
    name: str  # what follows the language: a file's name, or "run"
    text: str
    comments: dict = field(default_factory=dict)  # kind -> text

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    def given(self):
        """Returns what comes before the block and what comes after it."""
        before, _, after = self.comments.get("given", "").partition("\n…\n")
        return before + "\n", after + "\n"

    def first(self):
        return self.text.partition("\n")[0]


def pages():
    """Returns all pages of the tree; a build folder is not below one of FOLDERS."""
    found = [path for path in ROOT.iterdir() if path.suffix == ".md"]
    for folder in FOLDERS:
        for path, _, names in os.walk(ROOT / folder):
            found += [Path(path) / name for name in names if name.endswith(".md")]
    return sorted(found)


def comments_before(lines):
    """Returns the text of each comment at the end of these lines, where blank lines may follow
    it."""
    found = []
    rest = "\n".join(lines).rstrip()
    while rest.endswith("-->"):
        at = rest.rfind("<!--")
        found.insert(0, rest[at + 4 : -3])
        rest = rest[:at].rstrip()
    return found


def read_comments(block, texts):
    """Gives the block its comments; returns what is wrong with them."""
    problems = []
    for text in texts:
        kind, colon, value = text.strip("\n").partition(":")
        kind = kind.strip()
        if kind not in KINDS or kind in block.comments:
            wanted = ", ".join(f"<!-- {one}: … -->" for one in KINDS)
            problems.append(
                f"{block.place}: found <!--{text}-->, wanted at most one each of {wanted}"
            )
        elif not colon or not value.strip():
            problems.append(
                f'{block.place}: found "{kind}" without a text, wanted the reason after ":"'
            )
        block.comments[kind] = value.strip() if kind != "given" else value.strip(" ")
    if block.comments.get("needs", "cuda") != "cuda":
        problems.append(f'{block.place}: found needs: {block.comments["needs"]}, wanted "cuda"')
    return problems


def blocks_of(page, text):
    """Returns the blocks of a page, and what is wrong with how they are written."""
    found, problems = [], []
    lines = text.split("\n")
    begin = end = 0  # the lines since the last block are lines[end:begin]
    fence = None
    for number, line in enumerate(lines):
        match = re.match(r" *(`{3,}|~{3,}) *([^`]*)$", line)
        if fence is None and match:
            fence, words, begin = match[1], match[2].split(), number
        elif fence is not None and match and match[1].startswith(fence) and not match[2]:
            indent = lines[begin].index(fence)
            body = "".join(f"{one[indent:]}\n" for one in lines[begin + 1 : number])
            language, name = [*words, "", ""][:2]
            block = Block(page, begin + 2, language, name, body)
            before = [one[indent:] for one in lines[end:begin]]
            problems += read_comments(block, comments_before(before))
            if not language:
                problems.append(f'{block.place}: found no language, wanted one after "{fence}"')
            elif len(words) > 2:
                problems.append(f'{block.place}: found "{" ".join(words)}", wanted LANGUAGE [FILE]')
            found.append(block)
            fence, end = None, number + 1
    if fence is not None:
        problems.append(f'{page}:{begin + 1}: found a block without an end, wanted "{fence}"')
    return found, problems


def all_blocks():
    found, problems = [], []
    for path in pages():
        some, wrong = blocks_of(str(path.relative_to(ROOT)), path.read_text())
        found += some
        problems += wrong
    return found, problems
