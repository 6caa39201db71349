# SPDX-License-Identifier: Apache-2.0
"""Damaged files, and files of other kinds: opened themselves, and as a dependency."""

import os

from elf_edit import (
    DT_GNU_HASH,
    DT_JMPREL,
    DT_PLTREL,
    DT_RELA,
    DT_RELACOUNT,
    DT_RELAENT,
    DT_STRSZ,
    DT_SYMENT,
    DT_VERNEED,
    DT_VERSYM,
    PT_DYNAMIC,
    PT_GNU_RELRO,
    PT_LOAD,
)
from made_case import both_of, table

CASES, _case = table()

CODE = (
    "void* malloc(unsigned long); void* make(void) { return malloc(1); } "
    "int a(void) { return 1; } int table[2000] = {1}; int* p = table; const char text[9000] = {1};"
)


both = both_of(CASES, CODE)


@both
def empty_file(box, path):
    path.write_bytes(b"")


@both
def text_file(box, path):
    path.write_text("This is no library, whatever its name says.\n" * 40)


@both
def short_text_file(box, path):
    path.write_text("INPUT(libreal.so)\n")


@_case
def needed_library_is_a_folder(box):
    box.lib("libb.so")
    path = box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")
    (box.folder / "libb.so").unlink()
    (box.folder / "libb.so").mkdir()
    return path


@both
def cut_in_the_header(box, path):
    os.truncate(path, 40)


@both
def cut_in_the_program_headers(box, path):
    os.truncate(path, 64 + 56 + 20)


@both
def cut_in_the_middle(box, path):
    os.truncate(path, path.stat().st_size // 2)


@both
def cut_at_the_last_segment(box, path):
    elf = box.edit(path)
    last = [at for at in elf.segments() if elf.get("I", at) == PT_LOAD][-1]
    os.truncate(path, elf.get("Q", last + 8))


@both
def cut_within_the_last_page(box, path):
    """The last segment's bytes end early, inside a page that exists in part."""
    elf = box.edit(path)
    last = [at for at in elf.segments() if elf.get("I", at) == PT_LOAD][-1]
    os.truncate(path, elf.get("Q", last + 8) + elf.get("Q", last + 32) - 100)


@both
def without_section_headers(box, path):
    elf = box.edit(path)
    del elf.bytes[elf.get("Q", 40) :]
    elf.save()


@both
def section_headers_zeroed(box, path):
    elf = box.edit(path)
    elf.put("Q", 40, 0)
    elf.put("H", 60, 0)
    elf.put("H", 62, 0)
    elf.save()


@both
def object_file(box, path):
    source = path.with_suffix(".so.c")
    box.run(box.compiler, "-c", "-fPIC", "-o", path, source)


@both
def archive(box, path):
    member = path.with_suffix(".o")
    box.run(box.compiler, "-c", "-fPIC", "-o", member, path.with_suffix(".so.c"))
    path.unlink()
    box.run("ar", "rcs", path, member)


def program(box, path, *words):
    source = box.path("program.c")
    source.write_text("int main(void) { return 0; }\n")
    box.run(box.compiler, "-o", path, source, "-Wl,-soname,libb.so", *words)


@both
def program_at_any_address(box, path):
    program(box, path, "-fPIE", "-pie", "-rdynamic")


@both
def program_at_one_address(box, path):
    program(box, path, "-no-pie")


@both
def program_without_libraries(box, path):
    program(box, path, "-static")


@both
def program_static_at_any_address(box, path):
    program(box, path, "-static-pie")


def put(form, offset, value):
    def edit(box, path):
        elf = box.edit(path)
        elf.put(form, offset, value)
        elf.save()

    return edit


for _name, _edit in {
    "other-class": put("B", 4, 1),
    "big-endian": put("B", 5, 2),
    "ident-version": put("B", 6, 9),
    "osabi-gnu": put("B", 7, 3),
    "osabi-freebsd": put("B", 7, 9),
    "abi-version": put("B", 8, 9),
    "abi-version-1": put("B", 8, 1),
    "ident-padding": put("B", 9, 1),
    "type-core": put("H", 16, 4),
    "other-machine": put("H", 18, 243),
    "header-version": put("I", 20, 9),
    "header-size": put("H", 52, 10),
    "program-header-size": put("H", 54, 55),
    "no-program-headers": put("H", 56, 0),
    "program-headers-outside": put("Q", 32, 1 << 40),
}.items():
    _edit.__name__ = _name
    both(_edit)


def edit_segment(kind, form, offset, value):
    def edit(box, path):
        elf = box.edit(path)
        elf.put(form, elf.segment(kind) + offset, value)
        elf.save()

    return edit


for _name, _edit in {
    "no-dynamic-section": edit_segment(PT_DYNAMIC, "I", 0, 0x60000000),
    "dynamic-section-empty": edit_segment(PT_DYNAMIC, "Q", 32, 0),
    "alignment-of-16": edit_segment(PT_LOAD, "Q", 48, 16),
    "alignment-of-2-mib": edit_segment(PT_LOAD, "Q", 48, 1 << 21),
    "alignment-of-3-pages": edit_segment(PT_LOAD, "Q", 48, 3 << 12),
    "file-larger-than-memory": edit_segment(PT_LOAD, "Q", 40, 16),
}.items():
    _edit.__name__ = _name
    both(_edit)


@both
def no_loadable_segment(box, path):
    elf = box.edit(path)
    for at in elf.segments():
        if elf.get("I", at) == PT_LOAD:
            elf.put("I", at, 0)
    elf.save()


@both
def segment_offset_unaligned(box, path):
    elf = box.edit(path)
    loads = [at for at in elf.segments() if elf.get("I", at) == PT_LOAD]
    elf.put("Q", loads[1] + 8, elf.get("Q", loads[1] + 8) + 8)
    elf.save()


@both
def relocation_of_unknown_kind(box, path):
    elf = box.edit(path)
    elf.put("I", elf.place(elf.value(DT_RELA)) + 8, 250)
    elf.save()


@both
def relocation_outside(box, path):
    elf = box.edit(path)
    elf.put("Q", elf.place(elf.value(DT_RELA)), 1 << 44)
    elf.save()


@both
def bytes_appended(box, path):
    with open(path, "ab") as file:
        file.write(b"appended" * 1000)


@both
def mode_not_executable(box, path):
    path.chmod(0o444)


def edit_entry(tag, value):
    """Returns an edit that sets another value in an entry of the dynamic section."""

    def edit(box, path):
        elf = box.edit(path)
        elf.put("Q", elf.entry(tag) + 8, value)
        elf.save()

    return edit


def edit_table(tag, form, offset, value):
    """Returns an edit that sets another value in the table that a dynamic entry points to."""

    def edit(box, path):
        elf = box.edit(path)
        elf.put(form, elf.place(elf.value(tag)) + offset, value)
        elf.save()

    return edit


for _name, _edit in {
    "relocations-of-25-bytes": edit_entry(DT_RELAENT, 25),
    "relative-relocations-too-many": edit_entry(DT_RELACOUNT, 1 << 20),
    "plt-without-addends": edit_entry(DT_PLTREL, 17),
    "symbols-of-32-bytes": edit_entry(DT_SYMENT, 32),
    "string-table-size-0": edit_entry(DT_STRSZ, 0),
    "relocations-outside": edit_entry(DT_RELA, 1 << 40),
    "plt-relocation-of-unknown-kind": edit_table(DT_JMPREL, "I", 8, 250),
    "plt-relocation-of-a-symbol-outside": edit_table(DT_JMPREL, "I", 12, 1 << 24),
    "version-of-a-library-not-loaded": edit_table(DT_VERNEED, "I", 4, 1),
    "version-outside-the-string-table": edit_table(DT_VERNEED, "I", 24, 1 << 28),
    "hash-table-of-3-words": edit_table(DT_GNU_HASH, "I", 8, 3),
    "hash-table-of-no-buckets": edit_table(DT_GNU_HASH, "I", 0, 0),
    "read-only-after-relocation-outside": edit_segment(PT_GNU_RELRO, "Q", 40, 1 << 44),
    "first-segment-not-readable": edit_segment(PT_LOAD, "I", 4, 0),
}.items():
    _edit.__name__ = _name
    both(_edit)


@both
def symbol_of_a_version_that_is_not_there(box, path):
    elf = box.edit(path)
    index, _ = elf.symbol("malloc")
    elf.put("H", elf.place(elf.value(DT_VERSYM)) + 2 * index, 99)
    elf.save()


@both
def symbol_named_outside_the_string_table(box, path):
    elf = box.edit(path)
    elf.put("I", elf.symbol("malloc")[1], 1 << 28)
    elf.save()


@both
def data_segment_not_writable(box, path):
    elf = box.edit(path)
    last = [at for at in elf.segments() if elf.get("I", at) == PT_LOAD][-1]
    elf.put("I", last + 4, 4)
    elf.save()
