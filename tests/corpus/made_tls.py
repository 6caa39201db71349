# SPDX-License-Identifier: Apache-2.0
"""Cases with thread-local storage that needs a part of the loader's small static reserve, or
not."""

from elf_edit import DT_FLAGS
from made_case import table

CASES, case = table()

TLS = (
    'static __thread char block[{}] __attribute__((tls_model("initial-exec"))); '
    "char* f(int i) {{ return block + i; }}"
)


def static_tls(box, size):
    return box.lib("a.so", TLS.format(size))


for _size in (64, 400, 1024, 1400, 1536, 1600, 1664, 1728, 2048, 4096, 65536):
    CASES[f"static-tls-{_size}"] = lambda box, size=_size: static_tls(box, size)


@case
def static_tls_in_dependency(box):
    box.lib("libb.so", TLS.format(65536))
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def static_tls_of_many(box):
    for index in range(4):
        box.lib(f"libb{index}.so", TLS.format(700).replace("f(", f"f{index}("))
    return box.lib("a.so", "", needs=[f"libb{index}.so" for index in range(4)], runpath="$ORIGIN")


@case
def static_tls_aligned(box):
    return box.lib(
        "a.so", TLS.format(512).replace("__attribute__((", "__attribute__((aligned(4096), ")
    )


@case
def dynamic_tls_large(box):
    return box.lib(
        "a.so", "static __thread char block[65536]; char* f(int i) { return block + i; }"
    )


@case
def tls_descriptors(box):
    return box.lib(
        "a.so",
        "__thread char block[65536]; char* f(int i) { return block + i; }",
        "-mtls-dialect=gnu2",
    )


def set_static_tls(box, name, wanted):
    """Sets or clears the flag DF_STATIC_TLS of a library that has DT_FLAGS."""
    elf = box.edit(name)
    at = elf.entry(DT_FLAGS) + 8
    elf.put("Q", at, elf.get("Q", at) & ~0x10 | (0x10 if wanted else 0))
    elf.save()
    return box.folder / name


@case
def static_tls_without_its_flag(box):
    """The relocations need it, whatever the flag states."""
    box.lib("a.so", TLS.format(65536), "-Wl,-Bsymbolic")
    return set_static_tls(box, "a.so", False)


@case
def static_tls_flag_without_use(box):
    code = "static __thread char block[65536]; char* f(int i) { return block + i; }"
    box.lib("a.so", code, "-Wl,-Bsymbolic")
    return set_static_tls(box, "a.so", True)


def of_dependency(box, size):
    """Makes a.so, which accesses libb.so's thread-local variable as a static one."""
    box.lib("libb.so", f"__thread char block[{size}];")
    code = f'extern __thread char block[{size}] __attribute__((tls_model("initial-exec")));'
    code += "char* f(int i) { return block + i; }"
    return box.lib("a.so", code, needs=["libb.so"], runpath="$ORIGIN")


@case
def static_tls_of_a_dependency_small(box):
    return of_dependency(box, 100)


@case
def static_tls_of_a_dependency_large(box):
    return of_dependency(box, 65536)


@case
def static_tls_of_the_c_library(box):
    code = 'extern __thread int errno __attribute__((tls_model("initial-exec")));'
    return box.lib("a.so", code + "int f(void) { return errno; }", "-Wl,--no-gc-sections")
