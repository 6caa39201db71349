# SPDX-License-Identifier: Apache-2.0
"""Extension modules: opened in a process of the Python that runs the tests."""

import sysconfig

from made_case import table

CASES, case = table()

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")  # for example .cpython-311-x86_64-linux-gnu.so
USE = "void* {0}(long); void* used(void) {{ return {0}(1); }}"


@case
def python_extension(box):
    return box.lib("a" + SUFFIX, USE.format("PyLong_FromLong"))


@case
def python_extension_named_for_all(box):
    return box.lib("a.abi3.so", USE.format("PyLong_FromLong"))


@case
def python_extension_without_tag(box):
    return box.lib("a.so", USE.format("PyLong_FromLong"))


@case
def python_symbol_absent(box):
    return box.lib("a" + SUFFIX, USE.format("PyLong_FromNowhere"))


@case
def python_symbol_removed(box):
    """Uses a symbol of Python 2."""
    return box.lib("a" + SUFFIX, USE.format("PyString_FromLong"))


@case
def python_extension_with_another_undefined(box):
    return box.lib(
        "a" + SUFFIX,
        USE.format("PyLong_FromLong") + USE.format("absent").replace("used", "used_too"),
    )


@case
def python_symbols_in_dependency(box):
    box.lib("libb.so", USE.format("PyLong_FromLong"))
    return box.lib("a.so", "", needs=["libb.so"], runpath="$ORIGIN")


@case
def python_extension_without_library(box):
    box.lib("libb.so")
    path = box.lib("a" + SUFFIX, USE.format("PyLong_FromLong"), needs=["libb.so"])
    return path
