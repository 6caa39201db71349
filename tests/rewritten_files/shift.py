# SPDX-License-Identifier: Apache-2.0
"""Shifts all virtual addresses of a shared object by a constant, as prelink did.

A reader that finds parts by anything but the addresses in the ELF specification fails on such a
file."""

import struct

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK = 1, 2, 0x6474E551
SHF_ALLOC, SHT_SYMTAB, SHT_DYNSYM = 2, 2, 11
SHN_UNDEF, SHN_ABS, STT_TLS = 0, 0xFFF1, 6
# The DT_… tags whose value is an address.
POINTERS = {3, 4, 5, 6, 7, 12, 13, 23, 25, 26, 32, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE}
DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_JMPREL, DT_PLTGOT, DT_RELR = 2, 7, 8, 23, 3, 36
# Relocation types: those whose addend is an address (RELATIVE, IRELATIVE), and those whose place
# holds one until it is bound.
ADDRESSES = {62: (8, 37), 183: (1027, 1032)}
SLOTS = {62: 7, 183: 1026}


class Shifter:
    def __init__(self, data, distance):
        self.data = data
        self.distance = distance
        (self.machine,) = self.read("<H", 18)
        phoff, shoff = self.read("<QQ", 32)
        phsize, phnum, shsize, shnum = self.read("<HHHH", 54)
        self.segments = [phoff + i * phsize for i in range(phnum)]
        self.sections = [shoff + i * shsize for i in range(shnum)]
        self.loads = [
            self.read("<QQ", at + 8) + self.read("<Q", at + 32)
            for at in self.segments
            if self.read("<I", at) == (PT_LOAD,)
        ]

    def read(self, form, at):
        return struct.unpack_from(form, self.data, at)

    def add(self, at, only_if_set=False):
        (value,) = self.read("<Q", at)
        if value or not only_if_set:
            struct.pack_into("<Q", self.data, at, value + self.distance)

    def place(self, address):
        """Returns the file offset of the bytes at an address that is not yet shifted."""
        for offset, begin, size in self.loads:
            if begin <= address < begin + size:
                return offset + address - begin
        raise ValueError(f"found {address:#x}, wanted an address in a segment")

    def symbols(self, begin, size):
        for at in range(begin, begin + size, 24):
            kind, _, section = self.read("<BBH", at + 4)
            if section not in (SHN_UNDEF, SHN_ABS) and kind & 15 != STT_TLS:
                self.add(at + 8)

    def relocations(self, begin, size):
        for at in range(begin, begin + size, 24):
            place, info = self.read("<QQ", at)
            if info & 0xFFFFFFFF in ADDRESSES[self.machine]:
                self.add(at + 16)
            if info & 0xFFFFFFFF == SLOTS[self.machine]:
                self.add(self.place(place), only_if_set=True)
            self.add(at)

    def dynamic(self):
        (header,) = [at for at in self.segments if self.read("<I", at) == (PT_DYNAMIC,)]
        (begin,) = self.read("<Q", header + 8)
        (size,) = self.read("<Q", header + 32)
        entries = {}
        for at in range(begin, begin + size, 16):
            tag, value = self.read("<QQ", at)
            if tag == 0:
                break
            entries[tag] = value
            if tag in POINTERS:
                self.add(at + 8)
        assert DT_RELR not in entries, "not written: relative relocations without addends"
        for table, length in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            if table in entries:
                self.relocations(self.place(entries[table]), entries[length])
        if DT_PLTGOT in entries and self.machine == 62:
            # It holds the dynamic section's address.
            self.add(self.place(entries[DT_PLTGOT]), only_if_set=True)

    def run(self):
        self.dynamic()
        for at in self.sections:
            _, kind, flags = self.read("<IIQ", at)
            offset, size = self.read("<QQ", at + 24)
            if flags & SHF_ALLOC:
                self.add(at + 16)
            if kind in (SHT_SYMTAB, SHT_DYNSYM):
                self.symbols(offset, size)
        for at in self.segments:
            if self.read("<I", at) != (PT_GNU_STACK,):
                self.add(at + 16)
                self.add(at + 24)


def shift(path, distance):
    """Rewrites the file. distance: in bytes, a multiple of every segment's alignment."""
    data = bytearray(path.read_bytes())
    Shifter(data, distance).run()
    path.write_bytes(data)
