# SPDX-License-Identifier: Apache-2.0
"""Cases with symbol versions: needed ones, definitions, and references that do not match."""

import platform

from elf_edit import DT_VERNEED
from made_case import Unmade, table

CASES, case = table()

USE = "void {0}(void); void used(void) {{ {0}(); }}"


def linked_with(box, stub, code, *words, runpath="$ORIGIN"):
    """Makes a.so linked against a stub library, as on the machine that built it."""
    return box.lib(
        "a.so", code, "-nostdlib", *words, needs=[stub.relative_to(box.folder)], runpath=runpath
    )


def provider(box, versions, name="libprov.so"):
    """Makes the library that is found at run time, of the same form as Box.stub's."""
    stub = box.stub(name, versions)
    stub.rename(box.folder / name)


@case
def newer_glibc(box):
    return linked_with(
        box, box.stub("libc.so.6", {"GLIBC_2.99": ["brand_new"]}), USE.format("brand_new")
    )


@case
def newer_glibc_in_dependency(box):
    stub = box.stub("libc.so.6", {"GLIBC_2.99": ["brand_new"]})
    box.lib("libb.so", USE.format("brand_new"), "-nostdlib", needs=[stub.relative_to(box.folder)])
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def newer_libm(box):
    return linked_with(box, box.stub("libm.so.6", {"GLIBC_2.38": ["fmod"]}), USE.format("fmod"))


@case
def glibc_mark(box):
    stub = box.stub("libc.so.6", {"GLIBC_ABI_GNU2_TLS": ["marked"]})
    return linked_with(box, stub, USE.format("marked"))


@case
def glibc_version_present_symbol_absent(box):
    oldest = "GLIBC_2.2.5" if platform.machine() == "x86_64" else "GLIBC_2.17"
    return linked_with(box, box.stub("libc.so.6", {oldest: ["absent"]}), USE.format("absent"))


@case
def glibc_private(box):
    return linked_with(
        box, box.stub("libc.so.6", {"GLIBC_PRIVATE": ["absent"]}), USE.format("absent")
    )


@case
def newer_libstdcxx(box):
    return linked_with(
        box, box.stub("libstdc++.so.6", {"GLIBCXX_3.4.99": ["brand_new"]}), USE.format("brand_new")
    )


@case
def newer_zlib(box):
    return linked_with(
        box, box.stub("libz.so.1", {"ZLIB_9.9": ["brand_new"]}), USE.format("brand_new")
    )


@case
def version_present(box):
    stub = box.stub("libprov.so", {"PROV_1": ["f"]})
    path = linked_with(box, stub, USE.format("f"))
    provider(box, {"PROV_1": ["f"]})
    return path


@case
def version_absent(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_2": ["f"]}), USE.format("f"))
    provider(box, {"PROV_1": ["f"]})
    return path


@case
def version_absent_in_dependency(box):
    stub = box.stub("libprov.so", {"PROV_2": ["f"]})
    box.lib(
        "libb.so",
        USE.format("f"),
        "-nostdlib",
        needs=[stub.relative_to(box.folder)],
        runpath="$ORIGIN",
    )
    provider(box, {"PROV_1": ["f"]})
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def version_lower_absent(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_1": ["f"]}), USE.format("f"))
    provider(box, {"PROV_2": ["f"]})
    return path


@case
def version_without_number(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_BETA": ["f"]}), USE.format("f"))
    provider(box, {"PROV_1": ["f"]})
    return path


@case
def version_of_unknown_family(box):
    path = linked_with(box, box.stub("libprov.so", {"GHOST_1.0": ["f"]}), USE.format("f"))
    provider(box, {"PROV_1": ["f"]})
    return path


@case
def version_of_symbol_differs(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_2": ["f"]}), USE.format("f"))
    provider(box, {"PROV_1": ["f"], "PROV_2": ["g"]})
    return path


@case
def version_of_symbol_elsewhere(box):
    """The named library has the version; another one has the symbol, without versions."""
    stub = box.stub("libprov.so", {"PROV_1": ["f"]})
    box.lib("libplain.so", "void f(void) {}")
    path = box.lib(
        "a.so",
        USE.format("f"),
        "-nostdlib",
        runpath="$ORIGIN",
        needs=[stub.relative_to(box.folder), "libplain.so"],
    )
    provider(box, {"PROV_1": ["g"]})
    return path


@case
def version_of_symbol_elsewhere_versioned(box):
    stub = box.stub("libprov.so", {"PROV_1": ["f"]})
    box.lib("libother.so", "void f(void) {}", box.script("OTHER_1 { global: f; };"))
    path = box.lib(
        "a.so",
        USE.format("f"),
        "-nostdlib",
        runpath="$ORIGIN",
        needs=[stub.relative_to(box.folder), "libother.so"],
    )
    provider(box, {"PROV_1": ["g"]})
    return path


@case
def provider_without_versions(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_1": ["f"]}), USE.format("f"))
    box.lib("libprov.so", "void f(void) {}")
    return path


@case
def provider_without_versions_of_its_own_or_others(box):
    """The library has no version table at all: the loader ends the process."""
    path = linked_with(box, box.stub("libprov.so", {"PROV_1": ["f"]}), USE.format("f"))
    box.lib("libprov.so", "void f(void) {}", "-nostdlib")
    return path


@case
def provider_without_versions_nor_symbol(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_1": ["f"]}), USE.format("f"))
    box.lib("libprov.so", "void g(void) {}")
    return path


@case
def plain_reference_to_default_version(box):
    path = linked_with(
        box, box.lib("stubs/libprov.so", "void f(void) {}", soname="libprov.so"), USE.format("f")
    )
    provider(box, {"PROV_1": ["g"], "PROV_2": ["f"]})
    return path


def hidden_version(box, versions):
    code = 'void old(void) {} void g(void) {} __asm__(".symver old,f@' + versions[-1] + '");'
    text = "\n".join(
        f"{version} {{ global: g{index}; }};" for index, version in enumerate(versions)
    )
    path = linked_with(
        box, box.lib("stubs/libprov.so", "void f(void) {}", soname="libprov.so"), USE.format("f")
    )
    box.lib("libprov.so", code, box.script(text))
    return path


@case
def plain_reference_to_hidden_first_version(box):
    return hidden_version(box, ["PROV_1"])


@case
def plain_reference_to_hidden_second_version(box):
    return hidden_version(box, ["PROV_1", "PROV_2"])


@case
def reference_to_hidden_version(box):
    code = 'void old(void) {} __asm__(".symver old,f@PROV_1");'
    box.lib("libprov.so", code, box.script("PROV_1 { global: g; };"))
    return box.lib(
        "a.so",
        'void f1(void); __asm__(".symver f1,f@PROV_1");void used(void) { f1(); }',
        needs=["libprov.so"],
        runpath="$ORIGIN",
    )


@case
def weak_version_absent(box):
    path = linked_with(
        box,
        box.stub("libprov.so", {"PROV_2": ["f"]}),
        "__attribute__((weak)) void f(void); void used(void) { f(); }",
    )
    elf = box.edit("a.so")
    need = elf.place(elf.value(DT_VERNEED))
    elf.put("H", need + elf.get("I", need + 8) + 4, 2)  # VER_FLG_WEAK
    elf.save()
    provider(box, {"PROV_1": ["g"]})
    return path


@case
def version_of_weak_symbol_absent(box):
    path = linked_with(
        box,
        box.stub("libprov.so", {"PROV_2": ["f"]}),
        "__attribute__((weak)) void f(void); void used(void) { f(); }",
    )
    provider(box, {"PROV_1": ["g"]})
    return path


@case
def versions_of_library_not_needed(box):
    path = linked_with(box, box.stub("libprov.so", {"PROV_1": ["f"]}), USE.format("f"))
    provider(box, {"PROV_1": ["f"]})
    return box.patchelf(path, "--remove-needed", "libprov.so")


@case
def versions_of_library_needed_by_dependency(box):
    stub = box.stub("libprov.so", {"PROV_1": ["f"]})
    box.lib(
        "libb.so",
        USE.format("f").replace("used", "b"),
        "-nostdlib",
        runpath="$ORIGIN",
        needs=[stub.relative_to(box.folder)],
    )
    path = box.lib(
        "a.so",
        USE.format("f"),
        "-nostdlib",
        runpath="$ORIGIN",
        needs=[stub.relative_to(box.folder), "libb.so"],
    )
    provider(box, {"PROV_1": ["f"]})
    return box.patchelf(path, "--remove-needed", "libprov.so")


@case
def relative_relocations_with_mark(box):
    code = "static int a[64]; int* b[64] = {a, a + 1}; int f(void) { return *b[0]; }"
    code += " void* malloc(unsigned long); void* g(void) { return malloc(1); }"
    path = box.lib("a.so", code, "-Wl,-z,pack-relative-relocs")
    if "GLIBC_ABI_DT_RELR" not in box.run("readelf", "-VW", path):
        raise Unmade("the linker does not know -z pack-relative-relocs")
    return path


@case
def relative_relocations_without_mark(box):
    code = "static int a[64]; int* b[64] = {a, a + 1}; int f(void) { return *b[0]; }"
    code += " void* malloc(unsigned long); void* g(void) { return malloc(1); }"
    try:
        path = box.lib("a.so", code, "-fuse-ld=lld", "-Wl,--pack-dyn-relocs=relr")
    except RuntimeError:
        raise Unmade("lld is not installed, or does not know --pack-dyn-relocs") from None
    if "GLIBC_ABI_DT_RELR" in box.run("readelf", "-VW", path):
        raise Unmade("lld adds GLIBC_ABI_DT_RELR")
    return path


def edited_need(box, form, offset, value):
    """Makes the file of version-present with one changed field in the verneed record or its first
    version."""
    path = version_present(box)
    elf = box.edit("a.so")
    need = elf.place(elf.value(DT_VERNEED))
    elf.put(form, need + offset, value)
    elf.save()
    return path


@case
def version_need_of_another_format(box):
    return edited_need(box, "H", 0, 2)


@case
def version_need_with_a_wrong_hash(box):
    """The first of the two records follows directly, as every linker places it."""
    return edited_need(box, "I", 16, 0x12345678)
