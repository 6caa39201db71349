# SPDX-License-Identifier: Apache-2.0
"""Compares the #include lines of core with the order of its folders in the picture of
architecture.md, and in the list of core/meson.build; and README's tree with the folders."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORE = ROOT / "core"
SUFFIXES = {".c", ".cc", ".cuh", ".h", ".hpp"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"((\w+)/[^"]+)"', re.MULTILINE)


def listed_folders():
    """The library's folders, in the order of core/meson.build."""
    text = (CORE / "meson.build").read_text(encoding="utf-8")
    return re.findall(r"'(\w+)'", re.search(r"foreach folder : \[(.*?)\]", text, re.DOTALL)[1])


def section():
    """The section of architecture.md about the folders."""
    (page,) = (ROOT / "docs").rglob("architecture.md")
    return page.read_text(encoding="utf-8").split("\n## The folders\n")[1].split("\n## ")[0]


def picture_rows(folders):
    """The rows of the picture, from the top; a row's text follows the names of its folders."""
    rows = []
    for line in section().split("```")[1].splitlines():
        names = []
        for word in re.findall(r"[\w'-]+(?:/\w*)?", re.sub("[─-╿]", " ", line)):
            name = word.removeprefix("core/")
            if name not in folders:
                break
            names.append(name)
        if names:
            rows.append(names)
    return rows


def uses_within_rows():
    """{(user, used)} of the sentence "Within a row, `load` uses `discover`; …"."""
    sentence = re.search(r"Within a row, (.*?)\.\s", section(), re.DOTALL)[1]
    uses = set()
    for part in re.split(r";|, and", " ".join(sentence.split())):
        users, used = part.split(" use", 1)
        for user in re.findall(r"`(\w+)`", users):
            uses |= {(user, name) for name in re.findall(r"`(\w+)`", used)}
    return uses


def includes(folders):
    """{(user, used): an include line} of the library's folders."""
    found = {}
    for user in folders:
        for path in sorted((CORE / user).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            for header, used in INCLUDE.findall(path.read_text(encoding="utf-8")):
                if used != user and (CORE / used).is_dir():
                    line = f'{path.relative_to(ROOT)}: #include "{header}"'
                    found.setdefault((user, used), line)
    return found


@pytest.fixture(scope="module")
def folders():
    return listed_folders()


@pytest.fixture(scope="module")
def edges(folders):
    found = includes(folders)
    assert len(found) > 100, "the includes were not found"
    return found


def test_no_include_goes_against_the_order_of_the_list(folders, edges):
    # So that there is no cycle either.
    place = {name: i for i, name in enumerate(folders)}
    wrong = [line for (user, used), line in edges.items() if place.get(used, 99) > place[user]]
    assert not wrong, "included from above"


def test_no_include_goes_against_the_picture(folders, edges):
    row = {name: i for i, names in enumerate(picture_rows(folders)) for name in names}
    within = uses_within_rows()
    wrong = [
        line
        for (user, used), line in edges.items()
        if row.get(used, -1) <= row[user] and (user, used) not in within
    ]
    assert not wrong, "not below, and not named as used within the row"


def test_the_picture_is_complete_and_true(folders, edges):
    names = [name for row in picture_rows(folders) for name in row]
    assert sorted(names) == sorted(folders)
    assert uses_within_rows() <= set(edges), "what the page says is used is not included"


@pytest.mark.parametrize("top", ["core", "tests"])
def test_readmes_tree_names_each_folder(top):
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## The tree")[1].split("```")[1]
    part = re.search(rf"^{top}/(.*?)(?=^\S)", tree, re.DOTALL | re.MULTILINE)[1]
    # A folder that was renamed may still hold Python's caches.
    files = [path for path in (ROOT / top).glob("*/**/*") if path.is_file()]
    there = {path.relative_to(ROOT / top).parts[0] for path in files if path.suffix != ".pyc"}
    assert set(re.findall(r"(?<![\w/])(\w+)/(?!\w)", part)) == there
