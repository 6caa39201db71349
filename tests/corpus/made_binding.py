# SPDX-License-Identifier: Apache-2.0
"""Files that no linker makes, and on which the loader fails only while it maps and binds, or
hangs."""

import os
import platform

from elf_edit import DT_GNU_HASH, DT_HASH, DT_JMPREL, DT_RELA, DT_RELR, DT_VERSYM, PT_LOAD
from made_case import Unmade, both_of, table
from made_damage import CODE

CASES, _case = table()
both = both_of(CASES, CODE)


def gnu_abi(version):
    def edit(box, path):
        elf = box.edit(path)
        elf.put("B", 7, 3)
        elf.put("B", 8, version)
        elf.save()

    return edit


for _version in (1, 3, 4):
    _edit = gnu_abi(_version)
    _edit.__name__ = f"osabi-gnu-version-{_version}"
    both(_edit)

# A library whose own data refers to its own symbol by name.
OWN = "int own = 1; int *p = &own; int f(void) { return *p; }"


of_own_symbol = both_of(CASES, OWN, "-Wl,--hash-style=gnu")


@of_own_symbol
def own_symbol_filtered_out(box, path):
    """The bloom filter is all zeros, so it rejects every lookup."""
    elf = box.edit(path)
    table = elf.place(elf.value(DT_GNU_HASH))
    for word in range(elf.get("I", table + 8)):
        elf.put("Q", table + 16 + 8 * word, 0)
    elf.save()


@of_own_symbol
def own_symbol_without_filter(box, path):
    elf = box.edit(path)
    elf.put("I", elf.place(elf.value(DT_GNU_HASH)) + 8, 0)
    elf.save()


@of_own_symbol
def own_symbol_without_hash_table(box, path):
    elf = box.edit(path)
    elf.put("Q", elf.entry(DT_GNU_HASH), 0x6FFFFEFF)  # a tag that no reader knows
    elf.save()


def symbols_version_beyond_all(box, path):
    elf = box.edit(path)
    index, _ = elf.symbol("malloc")
    elf.put("H", elf.place(elf.value(DT_VERSYM)) + 2 * index, 0x7FFF)
    elf.save()


symbols_version_beyond_all.__name__ = "symbol-of-a-version-beyond-all"
both(symbols_version_beyond_all)


def last_load(elf):
    return [at for at in elf.segments() if elf.get("I", at) == PT_LOAD][-1]


@both
def memory_of_64_tebibytes(box, path):
    elf = box.edit(path)
    elf.put("Q", last_load(elf) + 40, 1 << 46)
    elf.save()


INDIRECT = (
    "static void f(void) {} static void* pick(void) { return f; }"
    'void absent(void) __attribute__((ifunc("pick"))); int data[4] = {1};'
)


@_case
def indirect_function_in_data(box):
    """The address of the resolver function points to data instead of code."""
    box.lib("libb.so", INDIRECT)
    path = box.lib(
        "a.so",
        "void absent(void); void f(void) { absent(); }",
        needs=["libb.so"],
        runpath="$ORIGIN",
    )
    elf = box.edit("libb.so")
    _, data = elf.symbol("data")
    elf.put("Q", elf.symbol("absent")[1] + 8, elf.get("Q", data + 8))
    elf.save()
    return path


@_case
def indirect_relocation_into_data(box):
    code = INDIRECT.replace("void absent", '__attribute__((visibility("hidden"))) void absent')
    path = box.lib("a.so", code + "void* p = absent; void g(void) { absent(); }")
    elf = box.edit("a.so")
    address = elf.get("Q", elf.symbol("data")[1] + 8)
    kinds = {"x86_64": 37, "aarch64": 1032}
    found = False
    for tag in (DT_RELA, DT_JMPREL):
        start = next((elf.get("Q", at + 8) for at, one in elf.dynamic() if one == tag), 0)
        for at in range(elf.place(start), len(elf.bytes) - 24, 24) if start else ():
            if elf.get("I", at + 8) == kinds.get(platform.machine()) and elf.get("I", at + 12) == 0:
                elf.put("Q", at + 16, address)
                found = True
                break
    if not found:
        raise Unmade("a relocation for an indirect function")
    elf.save()
    return path


def with_relative_table(box, name):
    try:
        return box.lib(name, CODE, "-Wl,-z,pack-relative-relocs")
    except RuntimeError as error:
        raise Unmade("a linker that packs relative relocations") from error


for _name, _value in {
    "relative-relocation-outside": 1 << 44,
    "relative-relocations-of-no-address": 3,
}.items():

    def _build(box, value=_value):
        path = with_relative_table(box, "a.so")
        elf = box.edit("a.so")
        elf.put("Q", elf.place(elf.value(DT_RELR)), value)
        elf.save()
        return path

    CASES[_name] = _build


# ---- files on which the loader hangs


@_case
def hash_chain_in_a_circle(box):
    """Every name falls into a bucket whose chain has no end."""
    path = box.lib(
        "a.so",
        "void* malloc(unsigned long); void* f(void) { return malloc(1); }",
        "-Wl,--hash-style=sysv",
    )
    elf = box.edit("a.so")
    table = elf.place(elf.value(DT_HASH))
    buckets, chains = elf.get("I", table), elf.get("I", table + 4)
    for index in range(buckets):
        elf.put("I", table + 8 + 4 * index, chains - 1)
    elf.put("I", table + 8 + 4 * buckets + 4 * (chains - 1), chains - 1)
    elf.save()
    return path


@_case
def needs_a_fifo(box):
    path = box.lib("a.so", "", needs=[box.lib("libb.so").name], runpath="$ORIGIN")
    (box.folder / "libb.so").unlink()
    os.mkfifo(box.folder / "libb.so")
    return path


# The loader never answers, so it gets only one second. The values are the first reason that Opdock
# gives.
HANGING = {"hash-chain-in-a-circle": "elf-malformed", "needs-a-fifo": "library-refused"}
