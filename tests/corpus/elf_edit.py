# SPDX-License-Identifier: Apache-2.0
"""Edits 64-bit little-endian ELF files in place, to give them defects that no linker makes."""

import struct
from pathlib import Path

PT_LOAD, PT_DYNAMIC, PT_GNU_RELRO = 1, 2, 0x6474E552
DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELAENT = 0, 4, 5, 6, 7, 9
DT_STRSZ, DT_SYMENT, DT_PLTREL, DT_JMPREL, DT_FLAGS = 10, 11, 20, 23, 30
DT_RELRSZ, DT_RELR = 35, 36
DT_GNU_HASH, DT_VERSYM, DT_RELACOUNT = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFF9
DT_VERNEED = 0x6FFFFFFE


class Elf:
    """The bytes of a file; the edits are written by save()."""

    def __init__(self, path):
        self.path = Path(path)
        self.bytes = bytearray(self.path.read_bytes())

    def save(self):
        self.path.write_bytes(self.bytes)

    def get(self, form, offset):
        return struct.unpack_from("<" + form, self.bytes, offset)[0]

    def put(self, form, offset, value):
        struct.pack_into("<" + form, self.bytes, offset, value)

    def segments(self):
        """Returns the offsets of the program headers."""
        first, size, count = self.get("Q", 32), self.get("H", 54), self.get("H", 56)
        return [first + i * size for i in range(count)]

    def segment(self, kind):
        """Returns the offset of the first program header of a type."""
        return next(at for at in self.segments() if self.get("I", at) == kind)

    def place(self, address):
        """Returns the file offset of a virtual address."""
        for at in self.segments():
            start, size = self.get("Q", at + 16), self.get("Q", at + 32)
            if self.get("I", at) == PT_LOAD and start <= address < start + size:
                return self.get("Q", at + 8) + address - start
        raise ValueError(f"{self.path}: no segment holds {address:#x}")

    def dynamic(self):
        """Yields (offset of the entry, tag) of the dynamic section, without its end."""
        at = self.get("Q", self.segment(PT_DYNAMIC) + 8)
        while (tag := self.get("Q", at)) != DT_NULL:
            yield at, tag
            at += 16

    def entry(self, tag):
        """Returns the offset of the first entry with a tag."""
        return next(at for at, found in self.dynamic() if found == tag)

    def value(self, tag):
        return self.get("Q", self.entry(tag) + 8)

    def text(self, offset):
        """Returns the text at an offset of the dynamic string table."""
        start = self.place(self.value(DT_STRTAB)) + offset
        return self.bytes[start : self.bytes.index(0, start)].decode()

    def symbol(self, name):
        """Returns (index, file offset) of a dynamic symbol."""
        table = self.place(self.value(DT_SYMTAB))
        for index in range(1, 10000):
            if self.text(self.get("I", table + 24 * index)) == name:
                return index, table + 24 * index
        raise ValueError(f"{self.path}: no symbol {name}")
