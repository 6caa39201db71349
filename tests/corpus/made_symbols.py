# SPDX-License-Identifier: Apache-2.0
"""Cases with undefined and defined symbols of all kinds, and flags that change their binding."""

from elf_edit import DT_GNU_HASH, DT_HASH
from made_case import table

CASES, case = table()

CALL = "void absent(void); void used(void) { absent(); }"


@case
def good(box):
    return box.lib("a.so", "int a(void) { return 1; }")


@case
def undefined_function(box):
    return box.lib("a.so", CALL)


@case
def undefined_data(box):
    return box.lib("a.so", "extern int absent; int used(void) { return absent; }")


@case
def undefined_weak(box):
    return box.lib("a.so", "__attribute__((weak)) void absent(void); void f(void) { absent(); }")


@case
def undefined_without_relocation(box):
    return box.lib("a.so", "", "-Wl,-u,absent", "-Wl,--export-dynamic")


@case
def undefined_name_of_the_compiler(box):
    """Every library refers to this symbol weakly; here the reference is strong."""
    path = box.lib("a.so", "void _ITM_deregisterTMCloneTable(void);")
    elf = box.edit("a.so")
    elf.put("B", elf.symbol("_ITM_deregisterTMCloneTable")[1] + 4, 0x10)
    elf.save()
    return path


@case
def undefined_in_dependency(box):
    box.lib("libb.so", CALL)
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def undefined_in_second_dependency(box):
    box.lib("libc1.so", CALL)
    box.lib("libb.so", "", needs=["libc1.so"], runpath="$ORIGIN")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def dependency_resolved_by_its_user(box):
    box.lib("libb.so", CALL)
    return box.lib("a.so", "void absent(void) {}", needs=["libb.so"], runpath="$ORIGIN")


@case
def dependency_resolved_by_its_sibling(box):
    box.lib("libb.so", CALL)
    box.lib("libd.so", "void absent(void) {}")
    return box.lib("a.so", "", needs=["libb.so", "libd.so"], runpath="$ORIGIN")


@case
def resolved_by_second_dependency(box):
    box.lib("libc1.so", "void absent(void) {}")
    box.lib("libb.so", "", needs=["libc1.so"], runpath="$ORIGIN")
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def weak_undefined_in_dependency(box):
    box.lib("libb.so", "__attribute__((weak)) void absent(void); void f(void) { absent(); }")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def symbol_of_programs_only(box):
    return box.lib("a.so", "extern int main(int, char**); int f(void) { return main(0, 0); }")


@case
def symbol_of_a_plugin_host(box):
    return box.lib("a.so", "int opdock_version(void); int f(void) { return opdock_version(); }")


@case
def symbolic(box):
    return box.lib(
        "a.so", "int a(void) { return 1; } int b(void) { return a(); }", "-Wl,-Bsymbolic"
    )


@case
def symbolic_and_undefined(box):
    return box.lib("a.so", CALL, "-Wl,-Bsymbolic")


@case
def definition_is_local(box):
    box.lib(
        "libb.so",
        "void absent(void) {} void f(void) { absent(); }",
        box.script("{ global: f; local: absent; };"),
    )
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def definition_is_protected(box):
    box.lib("libb.so", '__attribute__((visibility("protected"))) void absent(void) {}')
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def definition_is_marked_hidden(box):
    box.lib("libb.so", "void absent(void) {}")
    elf = box.edit("libb.so")
    elf.put("B", elf.symbol("absent")[1] + 5, 2)
    elf.save()
    return box.lib(
        "a.so", CALL, "-Wl,--unresolved-symbols=ignore-all", needs=["libb.so"], runpath="$ORIGIN"
    )


@case
def reference_is_marked_hidden(box):
    path = box.lib("a.so", CALL)
    elf = box.edit("a.so")
    elf.put("B", elf.symbol("absent")[1] + 5, 2)
    elf.save()
    return path


@case
def definition_is_weak(box):
    box.lib("libb.so", "__attribute__((weak)) void absent(void) {}")
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def definition_at_address_zero(box):
    box.lib("libb.so", "void absent(void) {}")
    path = box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")
    elf = box.edit("libb.so")
    elf.put("Q", elf.symbol("absent")[1] + 8, 0)
    elf.save()
    return path


@case
def definition_is_absolute_zero(box):
    box.lib("libb.so", "", "-Wl,--defsym=absent=0")
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def definition_is_indirect(box):
    box.lib(
        "libb.so",
        "static void f(void) {} static void* pick(void) { return f; }"
        'void absent(void) __attribute__((ifunc("pick")));',
    )
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def definition_is_unique(box):
    box.lib(
        "libb.so",
        '__asm__(".globl absent; .type absent,@gnu_unique_object;'
        '.data; absent: .long 1; .size absent,4");',
    )
    return box.lib(
        "a.so",
        "extern int absent; int used(void) { return absent; }",
        needs=["libb.so"],
        runpath="$ORIGIN",
    )


@case
def definition_is_thread_local(box):
    box.lib("libb.so", "__thread int absent;")
    return box.lib(
        "a.so",
        "extern __thread int absent; int f(void) { return absent; }",
        needs=["libb.so"],
        runpath="$ORIGIN",
    )


@case
def undefined_thread_local(box):
    return box.lib("a.so", "extern __thread int absent; int f(void) { return absent; }")


@case
def provider_with_sysv_hash(box):
    box.lib("libb.so", "void absent(void) {}", "-Wl,--hash-style=sysv")
    return box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")


@case
def provider_without_hash(box):
    box.lib("libb.so", "void absent(void) {}", "-Wl,--hash-style=gnu")
    path = box.lib("a.so", CALL, needs=["libb.so"], runpath="$ORIGIN")
    elf = box.edit("libb.so")
    for at, tag in list(elf.dynamic()):
        if tag in (DT_HASH, DT_GNU_HASH):
            elf.put("Q", at, 0x6FFFFEFF)  # a tag that no reader knows
    elf.save()
    return path


@case
def nodlopen(box):
    return box.lib("a.so", "", "-Wl,-z,nodlopen")


@case
def nodlopen_in_dependency(box):
    box.lib("libb.so", "", "-Wl,-z,nodlopen")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def initfirst_nodelete(box):
    return box.lib("a.so", "", "-Wl,-z,initfirst", "-Wl,-z,nodelete", "-Wl,-z,interpose")


@case
def executable_stack(box):
    return box.lib("a.so", "", "-Wl,-z,execstack")


@case
def executable_stack_in_dependency(box):
    box.lib("libb.so", "", "-Wl,-z,execstack")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def text_relocations(box):
    return box.lib("a.so", 'int a; int* const p = &a; __asm__(".text; .quad a");', "-Wl,-z,notext")


@case
def constructor_aborts(box):
    return box.lib("a.so", "void abort(void); __attribute__((constructor)) void f(void) {abort();}")


@case
def constructor_aborts_in_dependency(box):
    box.lib("libb.so", "void abort(void); __attribute__((constructor)) void f(void) {abort();}")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def filter_present(box):
    box.lib("libb.so", "void absent(void) {}")
    return box.lib("a.so", "", "-Wl,-F,libb.so", runpath="$ORIGIN")


@case
def filter_missing(box):
    return box.lib("a.so", "", "-Wl,-F,libabsent.so", runpath="$ORIGIN")


@case
def filter_missing_in_dependency(box):
    box.lib("libb.so", "", "-Wl,-F,libabsent.so")
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def auxiliary_missing(box):
    return box.lib("a.so", "", "-Wl,-f,libabsent.so", runpath="$ORIGIN")


@case
def auxiliary_defines(box):
    box.lib("libb.so", "void absent(void) {}")
    return box.lib("a.so", CALL, "-Wl,-f,libb.so", runpath="$ORIGIN")


@case
def auxiliary_undefined(box):
    box.lib("libb.so", CALL)
    return box.lib("a.so", "", "-Wl,-f,libb.so", runpath="$ORIGIN")


@case
def auxiliary_damaged(box):
    box.path("libb.so").write_text("no library\n")
    return box.lib("a.so", "", "-Wl,-f,libb.so", runpath="$ORIGIN")
