# SPDX-License-Identifier: Apache-2.0
"""Cases for where the loader looks for libraries, and which of several it takes."""

import os
import platform
import shutil

from made_case import Unmade, table
from made_symbols import CALL

CASES, case = table()

DEFINES = "void absent(void) {}"


@case
def library_missing(box):
    box.lib("libb.so")
    path = box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")
    (box.folder / "libb.so").unlink()
    return path


@case
def library_of_library_missing(box):
    box.lib("libc1.so")
    box.lib("libb.so", "", needs=["libc1.so"])
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


def chain(box, first, second):
    """Makes a.so, which needs one/libb.so, which needs two/libc1.so."""
    box.lib("two/libc1.so")
    box.lib("one/libb.so", "", needs=["two/libc1.so"], **second)
    return box.lib("a.so", "", needs=["one/libb.so"], **first)


@case
def runpath_is_not_inherited(box):
    return chain(box, {"runpath": "$ORIGIN/one:$ORIGIN/two"}, {})


@case
def rpath_is_inherited(box):
    return chain(box, {"rpath": "$ORIGIN/one:$ORIGIN/two"}, {})


@case
def rpath_is_not_inherited_past_runpath(box):
    return chain(box, {"rpath": "$ORIGIN/one:$ORIGIN/two"}, {"runpath": "$ORIGIN/three"})


@case
def rpath_of_runpath_user(box):
    return chain(box, {"runpath": "$ORIGIN/one"}, {"rpath": "$ORIGIN/../two"})


@case
def rpath_of_grandparent(box):
    box.lib("three/libd.so")
    box.lib("two/libc1.so", "", needs=["three/libd.so"])
    box.lib("one/libb.so", "", needs=["two/libc1.so"])
    return box.lib("a.so", "", needs=["one/libb.so"], rpath="$ORIGIN/one:$ORIGIN/two:$ORIGIN/three")


@case
def rpath_of_grandparent_past_runpath(box):
    box.lib("three/libd.so")
    box.lib("two/libc1.so", "", needs=["three/libd.so"])
    box.lib("one/libb.so", "", needs=["two/libc1.so"], runpath="$ORIGIN/../two")
    return box.lib("a.so", "", needs=["one/libb.so"], rpath="$ORIGIN/one:$ORIGIN/three")


@case
def rpath_beside_runpath(box):
    """One file has both: the loader ignores the RPATH."""
    box.lib("one/libb.so")
    path = box.lib("a.so", "", needs=["one/libb.so"], rpath="$ORIGIN/one")
    elf = box.edit("a.so")
    # DT_NULL entries follow: one becomes a DT_RUNPATH with an empty text.
    end = max(at for at, _ in elf.dynamic()) + 16
    elf.put("Q", end, 29)
    elf.put("Q", end + 8, 0)
    elf.put("Q", end + 16, 0)
    elf.save()
    return path


def one_folder(box, runpath, folder):
    box.lib(f"{folder}/libb.so")
    return box.lib("a.so", "", needs=[f"{folder}/libb.so"], runpath=runpath)


@case
def origin(box):
    return one_folder(box, "$ORIGIN/one", "one")


@case
def origin_in_braces(box):
    return one_folder(box, "${ORIGIN}/one", "one")


@case
def origin_within_a_word(box):
    return one_folder(box, "$ORIGINone", "one")


@case
def origin_after_text(box):
    return one_folder(box, f"{box.folder}/../$ORIGIN/one", "one")


@case
def lib_of_debian(box):
    triple = f"{platform.machine()}-linux-gnu"
    return one_folder(box, "$ORIGIN/$LIB", f"lib/{triple}")


@case
def lib_is_lib64(box):
    return one_folder(box, "$ORIGIN/$LIB", "lib64")


@case
def platform_is_the_machine(box):
    return one_folder(box, "$ORIGIN/${PLATFORM}", platform.machine())


@case
def platform_is_haswell(box):
    return one_folder(box, "$ORIGIN/$PLATFORM", "haswell")


@case
def unknown_token(box):
    return one_folder(box, "$ORIGIN/$WHERE", "$WHERE")


@case
def empty_folder_is_the_working_one(box):
    return one_folder(box, ":/nowhere", "cwd")


@case
def relative_folder(box):
    return one_folder(box, "sub", "cwd/sub")


@case
def trailing_slash(box):
    return one_folder(box, "$ORIGIN/one//", "one")


@case
def semicolon_separates(box):
    return one_folder(box, "/nowhere;$ORIGIN/one", "one")


def renamed_need(box, name):
    box.lib("one/libb.so")
    path = box.lib("a.so", "", needs=["one/libb.so"], runpath="$ORIGIN")
    return box.patchelf(path, "--replace-needed", "libb.so", name)


@case
def need_with_a_slash(box):
    """The path is relative to the working folder, not to the file's."""
    return renamed_need(box, "one/libb.so")


@case
def need_with_a_slash_in_the_working_folder(box):
    path = renamed_need(box, "sub/libb.so")
    box.path("cwd/sub/libb.so")
    shutil.copy(box.folder / "one/libb.so", box.folder / "cwd/sub/libb.so")
    return path


@case
def need_with_origin(box):
    return renamed_need(box, "$ORIGIN/one/libb.so")


@case
def need_with_an_absolute_path(box):
    return renamed_need(box, f"{box.folder}/one/libb.so")


@case
def need_is_empty(box):
    return renamed_need(box, "")


@case
def need_is_twice(box):
    path = box.lib("one/libb.so")
    return box.lib("a.so", "", path, path, runpath="$ORIGIN/one")


@case
def without_default_folders(box):
    return box.lib("a.so", "", "-Wl,-z,nodefaultlib", "-lm")


@case
def without_default_folders_but_a_runpath(box):
    box.lib("one/libb.so")
    return box.lib("a.so", "", "-Wl,-z,nodefaultlib", needs=["one/libb.so"], runpath="$ORIGIN/one")


def shadow(box, name, library):
    """Makes an empty library with the system library's name in the RUNPATH's folder."""
    path = box.lib("a.so", CODE_OF[library], f"-l{library}", runpath="$ORIGIN/one")
    box.lib(f"one/{name}", "", "-nostdlib")
    return path


CODE_OF = {
    "m": "double fmod(double, double); double f(double a) { return fmod(a, a); }",
    "c": "void* malloc(unsigned long); void* f(void) { return malloc(1); }",
}


@case
def runpath_shadows_libm(box):
    return shadow(box, "libm.so.6", "m")


@case
def runpath_shadows_libc(box):
    """The process has already loaded the C library."""
    return shadow(box, "libc.so.6", "c")


@case
def needs_the_loader(box):
    name = "ld-linux-x86-64.so.2" if platform.machine() == "x86_64" else "ld-linux-aarch64.so.1"
    return box.patchelf(box.lib("a.so"), "--add-needed", name)


@case
def needs_the_kernels_library(box):
    return box.patchelf(box.lib("a.so"), "--add-needed", "linux-vdso.so.1")


@case
def needs_a_linker_script(box):
    """libc.so is a text file where the C library's headers are installed."""
    return box.patchelf(box.lib("a.so"), "--add-needed", "libc.so")


@case
def needs_itself(box):
    path = box.lib("a.so", soname="a.so")
    return box.patchelf(path, "--add-needed", "a.so")


@case
def cycle(box):
    box.lib("libb.so", "int b(void) { return 1; }")
    box.lib(
        "libc1.so",
        "int b(void); int c1(void) { return b(); }",
        needs=["libb.so"],
        runpath="$ORIGIN",
    )
    box.lib(
        "libb.so",
        "int c1(void); int b(void) { return c1(); }",
        needs=["libc1.so"],
        runpath="$ORIGIN",
    )
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def diamond(box):
    box.lib("libd.so", DEFINES)
    box.lib("libb.so", CALL, needs=["libd.so"], runpath="$ORIGIN")
    box.lib("libc1.so", CALL, needs=["libd.so"], runpath="$ORIGIN")
    return box.lib("a.so", CALL, needs=["libb.so", "libc1.so"], runpath="$ORIGIN")


def two_of_one_name(box, first, second):
    """libb.so and libc1.so each find a libs.so in a folder of their own: the one found first serves
    both."""
    box.lib("one/libs.so", first)
    box.lib("two/libs.so", second)
    box.lib("libb.so", "", needs=["one/libs.so"], runpath="$ORIGIN/one")
    box.lib("libc1.so", CALL, needs=["two/libs.so"], runpath="$ORIGIN/two")
    return box.lib("a.so", "", needs=["libb.so", "libc1.so"], runpath="$ORIGIN")


@case
def first_of_one_name_lacks_the_symbol(box):
    return two_of_one_name(box, "", DEFINES)


@case
def first_of_one_name_has_the_symbol(box):
    return two_of_one_name(box, DEFINES, "")


def other_soname(box, order):
    """liba.so has the soname libx.so.1; no file has that name."""
    box.lib("liba.so", DEFINES, soname="libx.so.1")
    path = box.lib("a.so", CALL, needs=["liba.so"], runpath="$ORIGIN")
    box.patchelf(path, "--remove-needed", "libx.so.1")
    for name in reversed(order):  # patchelf puts a new need first
        box.patchelf(path, "--add-needed", name)
    return path


@case
def soname_of_a_library_before(box):
    return other_soname(box, ["liba.so", "libx.so.1"])


@case
def soname_of_a_library_after(box):
    return other_soname(box, ["libx.so.1", "liba.so"])


@case
def same_file_by_two_names(box):
    box.lib("libb.so", DEFINES)
    os.symlink("libb.so", box.folder / "libl.so")
    path = box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")
    return box.patchelf(path, "--add-needed", "libl.so")


@case
def library_is_a_link(box):
    box.lib("deep/libreal.so", soname="libb.so")
    os.symlink("deep/libreal.so", box.folder / "libb.so")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def library_is_a_broken_link(box):
    path = library_missing(box)
    os.symlink("nowhere", box.folder / "libb.so")
    return path


@case
def origin_of_a_link(box):
    """The file is opened by a link in another folder, so $ORIGIN is that folder."""
    box.lib("real/libb.so")
    box.lib("real/a.so", "", needs=["real/libb.so"], runpath="$ORIGIN")
    os.symlink("real/a.so", box.folder / "a.so")
    return box.folder / "a.so"


@case
def origin_of_a_linked_library(box):
    box.lib("real/libc1.so")
    box.lib("real/libb.so", "", needs=["real/libc1.so"], runpath="$ORIGIN")
    os.symlink("real/libb.so", box.folder / "libb.so")
    return box.lib("a.so", "", needs=["real/libb.so"], runpath="$ORIGIN")


def shadowed(box, edit):
    """An earlier folder has a file with the right name before the good library."""
    box.lib("two/libb.so")
    path = box.lib("a.so", "", needs=["two/libb.so"], runpath="$ORIGIN/one:$ORIGIN/two")
    shutil.copy(box.folder / "two/libb.so", box.path("one/libb.so"))
    edit(box.folder / "one/libb.so")
    return path


def with_byte(box, offset, value):
    def edit(path):
        elf = box.edit(path)
        elf.bytes[offset] = value
        elf.save()

    return shadowed(box, edit)


@case
def earlier_is_of_another_class(box):
    return with_byte(box, 4, 1)


@case
def earlier_is_32_bit(box):
    """The header is a complete 32-bit one, as an i686 library has."""

    def edit(path):
        import struct

        path.write_bytes(
            b"\x7fELF\x01\x01\x01"
            + bytes(9)
            + struct.pack("<HHIIIIIHHHHHH", 3, 3, 1, 0, 52, 0, 0, 52, 32, 1, 0, 0, 0)
            + bytes(4096)
        )

    return shadowed(box, edit)


@case
def earlier_is_big_endian(box):
    return with_byte(box, 5, 2)


@case
def earlier_is_of_another_machine(box):
    return with_byte(box, 18, 243)


@case
def earlier_is_of_another_system(box):
    return with_byte(box, 7, 9)


@case
def earlier_is_of_a_newer_abi(box):
    return with_byte(box, 8, 9)


@case
def earlier_is_a_program(box):
    return with_byte(box, 16, 2)


@case
def earlier_is_text(box):
    return shadowed(box, lambda path: path.write_text("no library, but a long text\n" * 100))


@case
def earlier_is_empty(box):
    return shadowed(box, lambda path: path.write_bytes(b""))


@case
def earlier_is_a_folder(box):
    def edit(path):
        path.unlink()
        path.mkdir()

    return shadowed(box, edit)


@case
def earlier_is_truncated(box):
    return shadowed(box, lambda path: path.write_bytes(path.read_bytes()[:100]))


def hwcaps(box, level, defective):
    """Puts a variant of libb.so for an x86-64 level next to it."""
    if platform.machine() != "x86_64":
        raise Unmade("glibc-hwcaps of x86-64")
    box.lib("libb.so", "" if defective else CALL)
    box.lib(f"glibc-hwcaps/x86-64-v{level}/libb.so", CALL if defective else "")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


for _level in (2, 3, 4):
    CASES[f"hwcaps-v{_level}-defective"] = lambda box, level=_level: hwcaps(box, level, True)
    CASES[f"hwcaps-v{_level}-good"] = lambda box, level=_level: hwcaps(box, level, False)


@case
def hwcaps_of_before_glibc_2_37(box):
    if platform.machine() != "x86_64":
        raise Unmade("a subfolder of x86-64")
    box.lib("libb.so", CALL)
    box.lib("x86_64/libb.so")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


def isa(box, level, dependency):
    if platform.machine() != "x86_64":
        raise Unmade("x86-64's levels")
    mark = f"-Wl,-z,x86-64-v{level}"
    if not dependency:
        return box.lib("a.so", "", mark)
    box.lib("libb.so", "", mark)
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


for _level in (2, 3, 4):
    CASES[f"isa-v{_level}"] = lambda box, level=_level: isa(box, level, False)
CASES["isa-v4-in-dependency"] = lambda box: isa(box, 4, True)


def isa_unknown(box, dependency):
    """The bit is above v4, and no processor here has it."""
    path = isa(box, 4, dependency)
    name = "libb.so" if dependency else "a.so"
    elf = box.edit(name)
    at = elf.bytes.index(bytes.fromhex("028000c004000000"))  # GNU_PROPERTY_X86_ISA_1_NEEDED
    elf.put("I", at + 8, 0x8000)
    elf.save()
    return path


CASES["isa-unknown"] = lambda box: isa_unknown(box, False)
CASES["isa-unknown-in-dependency"] = lambda box: isa_unknown(box, True)


def for_kernel(box, dependency, system, version):
    """Makes a library whose note names the lowest Linux version. One of Qt's had 3.17, on machines
    with 3.10."""
    note = f"4, 16, 1, 0x554e47, {system}, {version}, 0, 0"
    code = f'__asm__(".pushsection .note.ABI-tag,\\"a\\",@note; .long {note}; .popsection");'
    if not dependency:
        return box.lib("a.so", code)
    box.lib("libb.so", code)
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


for _name, _note in {"present": (0, 2), "future": (0, 99), "of-another-system": (1, 2)}.items():
    for _of, _in in {"": False, "-in-dependency": True}.items():
        CASES[f"kernel-{_name}{_of}"] = lambda box, note=_note, of=_in: for_kernel(box, of, *note)
