# SPDX-License-Identifier: Apache-2.0
"""Goes through all code blocks of all pages: each is compiled, run or read by what its language is
for, or has a comment that says why it cannot be. So a new block is never left out."""

import functools
import json
import tempfile
from collections import Counter
from pathlib import Path

import console
import pytest
import python_blocks
import sources
from blocks import ROOT, all_blocks, blocks_of
from test_shown import COMPARED, COMPARED_ELSEWHERE

BLOCKS, WRITTEN_WRONGLY = all_blocks()


def compared(page, first):
    """Returns by what the output of a command, or a block of text, is compared."""
    if (page, first) in COMPARED:
        return "compared by test_shown.py"
    test, beginning = COMPARED_ELSEWHERE.get(page, ("", "-"))
    if first.startswith(beginning):
        return f"compared by {test}"
    return "of another machine, not compared" if first.startswith("$ ") else "only shown"


def check_text(blocks, _):
    """Blocks of text are output, grammars and drawings; test_shown.py compares some of them."""
    problems = [problem for block in blocks for problem in console.check_synopsis(block)]
    return {block: compared(block.page, block.first()) for block in blocks}, problems


CHECKS = {
    "python": python_blocks.check,
    "cpp": sources.check_cpp,
    "c": sources.check_c,
    "toml": sources.check_toml,
    "meson": sources.check_meson,
    "json": sources.check_json,
    "mermaid": sources.check_mermaid,
    "console": console.check,
    "sh": console.check,
    "text": check_text,
}


def followed_pages():
    """Returns the pages whose files tests/plugins/tutorial.py writes, builds and runs."""
    tests = json.loads((console.BUILD / "meson-info" / "intro-tests.json").read_text())
    words = [one["cmd"] for one in tests if one["name"] in ("tutorial", "readme")]
    return {page for command in words for page in command[2].split(",")}


@functools.cache
def checked(language):
    """Returns {block: what was done with it} and the problems of the blocks of a language."""
    followed, pages = {}, followed_pages()
    mine = [block for block in BLOCKS if block.language == language]
    for block in mine:
        if block.name and str(ROOT / block.page) in pages:
            followed[block] = "built and run by tests/plugins/tutorial.py"
        elif block.name == "run":
            return {}, [f'{block.place}: found "run", which only pages of tutorial.py can have']
    rest = [block for block in mine if block not in followed]
    left_out = {block: "not run" for block in rest if "not run" in block.comments}
    if language != "python":  # its check looks at these too
        rest = [block for block in rest if block not in left_out]
    # A folder below /tmp would not be trusted.
    with tempfile.TemporaryDirectory(dir=console.BUILD, prefix="pages-") as folder:
        done, problems = CHECKS[language](rest, Path(folder))
    return {**followed, **done, **left_out}, problems


def test_each_block_has_a_known_language_and_each_comment_a_reason():
    problems = WRITTEN_WRONGLY + [
        f'{block.place}: found the language "{block.language}", wanted one of {", ".join(CHECKS)}'
        for block in BLOCKS
        if block.language and block.language not in CHECKS
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("language", CHECKS)
def test_the_blocks_of_a_language(language):
    done, problems = checked(language)
    assert not problems, "\n".join(problems)
    assert {block for block in BLOCKS if block.language == language} == done.keys()


def test_what_was_done_is_told(capsys):
    """Prints how many blocks of each language were treated how, and why some were not run."""
    counts = Counter()
    for language in CHECKS:
        counts.update((language, how) for how in checked(language)[0].values())
    assert counts.total() == len(BLOCKS)
    outputs = Counter(
        compared(block.page, f"$ {command}")
        for block in BLOCKS
        if block.language == "console"
        for command, lines in console.split(block)
        if lines
    )
    with capsys.disabled():
        print(f"\n{len(BLOCKS)} code blocks of {len({block.page for block in BLOCKS})} pages")
        for (language, how), count in sorted(counts.items()):
            print(f"{count:4} {language}: {how}")
        for how, count in sorted(outputs.items()):
            print(f"{count:4} outputs of commands: {how}")
        for block in BLOCKS:
            if "not run" in block.comments:
                print(f"not run: {block.place}: {block.comments['not run']}")
            elif "needs" in block.comments and checked(block.language)[0].get(block) != "run":
                print(f"not run here: {block.place}: it needs {block.comments['needs']}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\nx\n```\n", 'p.md:2: found no language, wanted one after "```"'),
        ("```text\nx\n", 'p.md:1: found a block without an end, wanted "```"'),
        ("<!-- not run: -->\n```text\n```\n", 'found "not run" without a text'),
        ("<!-- not run -->\n```text\n```\n", 'found "not run" without a text'),
        ("<!-- not  run: x -->\n\n```text\n```\n", "wanted at most one each of"),
        ("<!-- needs: luck -->\n```text\n```\n", 'found needs: luck, wanted "cuda"'),
        ("```cpp a b\n```\n", 'found "cpp a b", wanted LANGUAGE [FILE]'),
    ],
)
def test_what_is_written_wrongly_is_told(text, problem):
    _, [told] = blocks_of("p.md", text)
    assert problem in told


def test_a_block_in_a_list_and_its_comments_are_read():
    text = "- x\n\n  <!-- given:\n  a\n  …\n  b\n  -->\n  ~~~ cpp  f.cc\n    ```\n  ~~~\n"
    [block], problems = blocks_of("p.md", text)
    assert not problems and (block.language, block.name, block.line) == ("cpp", "f.cc", 9)
    assert block.text == "  ```\n" and [one.strip() for one in block.given()] == ["a", "b"]
