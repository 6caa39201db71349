# SPDX-License-Identifier: Apache-2.0
"""Checks that every relative link of a Markdown page leads somewhere, that every page that a file
names exists, and every file that a page names."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "docs", "examples", "plugins", "python", "tests")
TEXTS = {
    ".md",
    ".h",
    ".hpp",
    ".c",
    ".cc",
    ".cu",
    ".cuh",
    ".hip",
    ".def",
    ".py",
    ".build",
    ".toml",
    ".txt",
}
# Lists the changes of all versions, and so names pages where they were at the time.
OLD = {"CHANGELOG.md"}


def files():
    """Yields the repository's text files; a build folder is not below one of FOLDERS."""
    yield from (ROOT / "dev", *(path for path in ROOT.iterdir() if path.suffix in TEXTS))
    for folder in FOLDERS:
        for path, folders, names in os.walk(ROOT / folder):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield from (Path(path) / name for name in names if Path(name).suffix in TEXTS)


TREE = [path for path in files() if path.name not in OLD]
PAGES = [path for path in TREE if path.suffix == ".md"]


def anchors(page):
    """Returns the anchors that GitHub gives a page's headings; equal headings are numbered."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    names = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found]
    counts = {}
    for i, name in enumerate(names):
        counts[name] = counts.get(name, -1) + 1
        names[i] += f"-{counts[name]}" if counts[name] else ""
    return set(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(target)
    assert broken == []


def test_every_page_that_a_file_names_exists():
    broken = []
    for path in TREE:
        text = path.read_text(errors="replace")
        for name in re.findall(r"(?<![\w/.-])docs/[\w/.-]*\.md\b", text):
            if not (ROOT / name).exists():
                broken.append(f"{path.relative_to(ROOT)}: {name}")
    assert broken == []


def test_every_file_that_a_page_names_exists():
    """By its path from the root, as in the tables of docs/concepts/architecture.md."""
    broken = []
    for page in PAGES:
        for name in re.findall(r"`((?:core|python|tests|examples)/[\w/.-]*)`", page.read_text()):
            if not (ROOT / name).exists():
                broken.append(f"{page.relative_to(ROOT)}: {name}")
    assert broken == []


def test_the_list_of_pages_is_complete():
    """README.md lists the pages of each folder, one a line."""
    listed = re.findall(
        r"^- .*\]\((docs/.*?\.md)\)", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    pages = [str(path.relative_to(ROOT)) for path in PAGES if path.is_relative_to(ROOT / "docs")]
    assert sorted(listed) == sorted(pages)
    order = [Path(page).parent.name for page in listed]
    assert order == sorted(order, key=["guide", "concepts", "reference"].index)
