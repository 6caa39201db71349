// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

namespace opdock_test {

std::vector<Fault> elf_faults() {
  constexpr uint64_t kHuge = ~uint64_t{0};
  // Offsets of members within a program header, which starts at p.load0 and the like.
  constexpr size_t kType = 0, kOffset = 8, kAddress = 16, kFileSize = 32, kMemorySize = 40,
                   kAlignment = 48;
  return {
      {"no bytes at all", Code::kFileEmpty, [](Plugin& p) { p.cut(0); }},
      {"one byte", Code::kNotElf, [](Plugin& p) { p.cut(1); }},
      {"three bytes of the magic", Code::kNotElf, [](Plugin& p) { p.cut(3); }},
      {"a text file", Code::kNotElf, [](Plugin& p) { p.file() = Bytes("not a plugin\n"); }},
      {"a linker script", Code::kNotElf, [](Plugin& p) { p.file() = Bytes("INPUT(libx.so.1)\n"); }},
      {"an archive", Code::kNotElf, [](Plugin& p) { p.file() = Bytes("!<arch>\n"); }},
      {"a gzip file", Code::kNotElf, [](Plugin& p) { p.file() = Bytes("\x1f\x8b\x08 rest"); }},
      {"the magic damaged", Code::kNotElf, [](Plugin& p) { p.file().u8(1, 'e'); }},
      {"only zeros", Code::kNotElf, [](Plugin& p) { p.file() = Bytes(std::string(4096, '\0')); }},
      {"the magic alone", Code::kElfTruncated, [](Plugin& p) { p.cut(4); }},
      {"half an ELF header", Code::kElfTruncated, [](Plugin& p) { p.cut(32); }},
      {"one byte less than an ELF header", Code::kElfTruncated, [](Plugin& p) { p.cut(63); }},
      {"class 32 bits", Code::kElfClass, [](Plugin& p) { p.file().u8(4, 1); }},
      {"class 0", Code::kElfClass, [](Plugin& p) { p.file().u8(4, 0); }},
      {"class 255", Code::kElfClass, [](Plugin& p) { p.file().u8(4, 255); }},
      {"big-endian", Code::kElfClass, [](Plugin& p) { p.file().u8(5, 2); }},
      {"byte order 0", Code::kElfClass, [](Plugin& p) { p.file().u8(5, 0); }},
      {"identity version 0", Code::kElfClass, [](Plugin& p) { p.file().u8(6, 0); }},
      {"identity version 2", Code::kElfClass, [](Plugin& p) { p.file().u8(6, 2); }},
      {"header version 2", Code::kElfClass, [](Plugin& p) { p.file().u32(20, 2); }},
      {"OS ABI FreeBSD", Code::kElfAbi, [](Plugin& p) { p.file().u8(7, 9); }},
      {"OS ABI Solaris", Code::kElfAbi, [](Plugin& p) { p.file().u8(7, 6); }},
      {"OS ABI 255", Code::kElfAbi, [](Plugin& p) { p.file().u8(7, 255); }},
      {"type none", Code::kElfType, [](Plugin& p) { p.file().u16(16, 0); }},
      {"an object file", Code::kElfType, [](Plugin& p) { p.file().u16(16, 1); }},
      {"an executable", Code::kElfType, [](Plugin& p) { p.file().u16(16, 2); }},
      {"a core dump", Code::kElfType, [](Plugin& p) { p.file().u16(16, 4); }},
      {"type 0xfe00", Code::kElfType, [](Plugin& p) { p.file().u16(16, 0xfe00); }},
      {"a position-independent program", Code::kElfType, [](Plugin& p) { p.flags_1 = 0x8000000; }},
      {"e_phnum 0", Code::kElfMalformed, [](Plugin& p) { p.file().u16(56, 0); }},
      {"e_phnum 65535", Code::kElfMalformed, [](Plugin& p) { p.file().u16(56, 65535); }},
      {"e_phnum 2000", Code::kElfMalformed, [](Plugin& p) { p.file().u16(56, 2000); }},
      {"e_phnum 1000", Code::kElfTruncated, [](Plugin& p) { p.file().u16(56, 1000); }},
      {"e_phentsize 0", Code::kElfMalformed, [](Plugin& p) { p.file().u16(54, 0); }},
      {"e_phentsize 32", Code::kElfMalformed, [](Plugin& p) { p.file().u16(54, 32); }},
      {"e_phoff past the end", Code::kElfTruncated, [](Plugin& p) { p.file().u64(32, 1 << 20); }},
      {"e_phoff at the end", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64(32, p.file().size()); }},
      {"e_phoff that overflows", Code::kElfTruncated, [](Plugin& p) { p.file().u64(32, kHuge); }},
      {"e_phoff 0: the header is read as segments", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(32, 0); }},
      {"no PT_LOAD", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.load0 + kType, 0).u32(p.load1 + kType, 0); }},
      {"a PT_LOAD one byte past the end", Code::kElfTruncated,
       [](Plugin& p) {
         const uint64_t size = p.file().size() - p.dynamic + 1;
         p.file().u64(p.load1 + kFileSize, size).u64(p.load1 + kMemorySize, size);
       }},
      {"a PT_LOAD far past the end", Code::kElfTruncated,
       [](Plugin& p) {
         p.file().u64(p.load0 + kFileSize, 1 << 30).u64(p.load0 + kMemorySize, 1 << 30);
       }},
      {"a PT_LOAD whose offset is past the end", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64(p.load1 + kOffset, 1 << 20); }},
      {"a PT_LOAD whose offset plus size overflows", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64(p.load1 + kOffset, kHuge - 8); }},
      {"a PT_LOAD whose size overflows", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64(p.load0 + kFileSize, kHuge); }},
      {"a PT_LOAD whose address plus size overflows", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load0 + kAddress, kHuge - 4095); }},
      {"a PT_LOAD above the user's address space", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load1 + kAddress, uint64_t{1} << 63); }},
      {"a PT_LOAD of 2^60 bytes in memory", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load1 + kMemorySize, uint64_t{1} << 60); }},
      {"a PT_LOAD larger in the file than in memory", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load0 + kMemorySize, 16); }},
      {"a PT_LOAD aligned to 3", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load0 + kAlignment, 3); }},
      {"a PT_LOAD aligned to 6144, no power of two", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load0 + kAlignment, 0x1800); }},
      {"a PT_LOAD whose address and offset disagree", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load0 + kAddress, 8); }},
      {"a PT_LOAD aligned to 8 whose address and offset disagree within a page",
       Code::kElfMalformed,
       [](Plugin& p) {
         p.file().u64(p.load1 + kAlignment, 8).u64(p.load1 + kAddress, p.dynamic + 0x1008);
       }},
      {"two PT_LOADs at one address", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load1 + kAddress, p.dynamic); }},
      {"PT_LOADs in descending order", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.load0 + kAddress, 0x100000); }},
      {"no PT_DYNAMIC", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.dynamic_header + kType, 0); }},
      {"two PT_DYNAMICs", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.stack_header + kType, 2); }},
      {"PT_DYNAMIC past the end", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64(p.dynamic_header + kOffset, 1 << 20); }},
      {"PT_DYNAMIC whose size overflows", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64(p.dynamic_header + kFileSize, kHuge); }},
      {"PT_DYNAMIC outside every PT_LOAD", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dynamic_header + kAddress, 0x700000); }},
      {"PT_DYNAMIC whose address is elsewhere than its offset", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dynamic_header + kAddress, 0x40); }},
      {"PT_DYNAMIC of no bytes", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dynamic_header + kFileSize, 0); }},
      {"a dynamic section without DT_NULL", Code::kElfMalformed,
       [](Plugin& p) {
         const uint64_t size = p.file().get(p.dynamic_header + kFileSize, 8);
         p.file().u64(p.dynamic_header + kFileSize, size - 16);
       }},
      {"a dynamic section over 1 MiB", Code::kElfMalformed,
       [](Plugin& p) {
         const size_t more = 2 << 20;
         p.file().u8(p.file().size() + more, 0);
         p.file().u64(p.dynamic_header + kFileSize, more).u64(p.load1 + kFileSize, more);
         p.file().u64(p.load1 + kMemorySize, more);
       }},
      {"a string table outside the segments", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(5), 0x500000); }},
      {"a string table longer than its segment", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(10), 1 << 20); }},
      {"a string table whose size overflows", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(10), kHuge); }},
      {"no string table", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(5) - 8, 0x60000000); }},
      {"a string table without size", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(10) - 8, 0x60000000); }},
      {"symbols of 32 bytes", Code::kElfMalformed, [](Plugin& p) { p.file().u64(p.dyn(11), 32); }},
      {"a symbol table outside the segments", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(6), kHuge); }},
      {"a symbol named outside the string table", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.dynsym + 24, 1 << 30); }},
      {"a hash table outside the segments", Code::kElfMalformed,
       [](Plugin& p) { p.file().u64(p.dyn(0x6ffffef5), 0x500000); }},
      {"a hash table of 2^32 buckets", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.hash, 0xffffffff); }},
      {"a hash table of 2^32 bloom words", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.hash + 8, 0xffffffff); }},
      {"a hash bucket below the first symbol", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.hash + 4, 7).u32(p.hash + 24, 5); }},
      {"a hash bucket far above the last symbol", Code::kElfMalformed,
       [](Plugin& p) { p.file().u32(p.hash + 24, 0x7fffffff); }},
      {"a hash chain without end", Code::kElfMalformed,
       [](Plugin& p) {
         for (size_t at = p.hash + (p.file(), 28); at + 4 <= p.dynamic; at += 4)
           p.file().u32(at, 2);
       }},
      {"a System V hash table with 2^32 chains", Code::kElfMalformed,
       [](Plugin& p) {
         p.sysv_hash = true;
         p.file().u32(p.hash + 4, 0xffffffff);
       }},
      {"a needed library named outside the string table", Code::kElfMalformed,
       [](Plugin& p) {
         p.needed = {"libm.so.6"};
         p.file().u64(p.dyn(1), 1 << 20);
       }},
      {"a soname named outside the string table", Code::kElfMalformed,
       [](Plugin& p) {
         p.soname = "libaxpy.so";
         p.file().u64(p.dyn(14), kHuge);
       }},
      {"a RUNPATH named outside the string table", Code::kElfMalformed,
       [](Plugin& p) {
         p.runpath = "$ORIGIN";
         p.file().u64(p.dyn(29), kHuge / 2);
       }},
      {"a string table whose last text has no end", Code::kElfMalformed,
       [](Plugin& p) {
         p.soname = "libaxpy.so";
         p.file().u64(p.dyn(10), p.file().get(p.dyn(14), 8) + 4);
       }},
      {"version needs outside the segments", Code::kElfMalformed,
       [](Plugin& p) {
         p.versions = {{"libc.so.6", {"GLIBC_2.34"}}};
         p.file().u64(p.dyn(0x6ffffffe), 0x500000);
       }},
      {"version needs of version 2", Code::kElfMalformed,
       [](Plugin& p) {
         p.versions = {{"libc.so.6", {"GLIBC_2.34"}}};
         p.file().u16(p.verneed + (p.file(), 0), 2);
       }},
      {"version needs whose chain leaves the segment", Code::kElfMalformed,
       [](Plugin& p) {
         p.versions = {{"libc.so.6", {"GLIBC_2.34", "GLIBC_2.35"}}};
         p.file();
         p.file().u32(p.verneed + 16 + 12, 0xfffffff0);
       }},
      {"version needs whose next library leaves the segment", Code::kElfMalformed,
       [](Plugin& p) {
         p.versions = {{"libc.so.6", {"GLIBC_2.34"}}, {"libm.so.6", {"GLIBC_2.29"}}};
         p.file();
         p.file().u32(p.verneed + 12, 0x7fffffff);
       }},
      {"a version named outside the string table", Code::kElfMalformed,
       [](Plugin& p) {
         p.versions = {{"libc.so.6", {"GLIBC_2.34"}}};
         p.file();
         p.file().u32(p.verneed + 16 + 8, 0xffffffff);
       }},
      {"relocations outside the segments", Code::kElfMalformed,
       [](Plugin& p) {
         p.needed = {"a", "b"};  // two entries that are overwritten below
         const size_t first = p.dyn(1) - 8;
         p.file().u64(first, 7).u64(first + 8, 0x500000).u64(first + 16, 8).u64(first + 24, 24);
       }},
      {"relocations packed for Android", Code::kElfAbi,
       [](Plugin& p) {
         p.needed = {"a"};
         p.file().u64(p.dyn(1) - 8, 0x60000011);
       }},
      {"relocations without a size", Code::kElfMalformed,
       [](Plugin& p) {
         p.needed = {"a"};
         p.file().u64(p.dyn(1) - 8, 7);
       }},
      {"constructors that run out of their segment", Code::kElfMalformed,
       [](Plugin& p) {
         p.needed = {"a", "b"};
         const size_t first = p.dyn(1) - 8;
         p.file().u64(first, 25).u64(first + 8, p.dynsym).u64(first + 16, 27);
         p.file().u64(first + 24, 1 << 20);
       }},
      {"an init function outside the segments", Code::kElfMalformed,
       [](Plugin& p) {
         p.needed = {"a"};
         p.file().u64(p.dyn(1) - 8, 12).u64(p.dyn(12), 0x500000);
       }},
  };
}

}  // namespace opdock_test
