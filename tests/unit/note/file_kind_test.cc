// Tests files that are not shared objects for this kind of machine: each is named as what it is,
// exactly once.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "compat/verdict.h"
#include "note/machine_name.h"
#include "unit/note/image_support.h"

namespace opdock {
namespace {

FileFacts read_as_plugin(const Bytes& bytes) {
  const int fd = open_bytes(bytes.data);
  FileFacts facts = read_file_facts(fd, bytes.size(), "p.so", Depth::kInspect);
  close(fd);
  return facts;
}

// Returns the only reason of the verdict on an x86-64 machine.
Reason only_reason(const Bytes& bytes, FileFacts* facts = nullptr) {
  MachineFacts machine;
  machine.elf_machine = 62;
  machine.cpu_arch = "x86_64";
  const FileFacts read = read_as_plugin(bytes);
  const Verdict verdict = judge(read, machine);
  EXPECT_EQ(verdict.state, State::kRejected);
  std::string all;
  for (const Reason& reason : verdict.reasons) all += to_text(reason) + "\n";
  EXPECT_EQ(verdict.reasons.size(), 1u) << all;
  if (facts != nullptr) *facts = read;
  return verdict.reasons.empty() ? Reason{} : verdict.reasons[0];
}

Bytes text(const std::string& bytes) {
  return Bytes(bytes);
}
template <size_t N>
Bytes raw(const char (&bytes)[N]) {  // may contain NULs
  return Bytes(std::string(bytes, N - 1));
}

Bytes windows(unsigned machine, unsigned characteristics) {
  Bytes b("MZ");
  b.u32(0x3c, 0x80).text(0x80, std::string("PE\0\0", 4)).u16(0x84, machine);
  return b.u16(0x80 + 22, characteristics).u8(400, 0);
}
Bytes mach_o(unsigned magic, unsigned cpu, unsigned type) {
  Bytes b;
  return b.u32(0, magic).u32(4, cpu).u32(12, type).u8(200, 0);
}
Bytes tar() {
  Bytes b("kernel.so");
  return b.text(257, "ustar").u8(511, 0);
}
Bytes coff() {
  Bytes b;
  return b.u16(0, 0x8664).u16(2, 4).u32(4, 0x6b03deb3).u8(200, 0);
}

TEST(FileKind, IsNamedByItsFirstBytes) {
  const std::string lfs =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 21879184\n";
  const struct {
    Bytes bytes;
    const char *found, *advice;  // advice: part of it
  } rows[] = {
      {text("!<arch>\na.o/            0           0     0     644     4         `\n"),
       "a static archive (ar)", "-shared"},
      {text("!<thin>\n//                                              4         `\n"),
       "a thin archive (ar)", "-shared"},
      {text("!<arch>\ndebian-binary   1410122664  0     0     100644  4         `\n2.0\n"),
       "a Debian package", "install"},
      {windows(0x8664, 0x2022), "a Windows DLL (PE, x86-64)", "Linux"},
      {windows(0xaa64, 0x2022), "a Windows DLL (PE, arm64)", "Linux"},
      {windows(0x14c, 0x0102), "a Windows program (PE, i386)", "Linux"},
      {windows(0x1f0, 0x2000), "a Windows DLL (PE, machine 496)", "Linux"},
      {text("MZ"), "a DOS program", "Linux"},
      {coff(), "a Windows object file (COFF, x86-64)", "Linux"},
      {mach_o(0xfeedfacf, 0x100000c, 6), "a Mach-O library (arm64)", "Linux"},
      {mach_o(0xfeedfacf, 0x1000007, 8), "a Mach-O bundle (x86-64)", "Linux"},
      {mach_o(0xfeedface, 7, 2), "a Mach-O program (i386)", "Linux"},
      {mach_o(0xcefaedfe, 0x12000000, 0x06000000), "a Mach-O library (ppc)", "Linux"},
      {raw("\xca\xfe\xba\xbe\0\0\0\2\1\0\0\7\0\0\0\3\0\0\x10\0\0\0\x10\0\0\0\0\xe"
           "\1\0\0\xc\0\0\0\0\0\0\x20\0\0\0\x10\0\0\0\0\xe"),
       "a universal Mach-O file (x86-64, arm64)", "Linux"},
      {raw("\xca\xfe\xba\xbe\0\0\0\x34\0\x1d"), "a Java class", "shared object"},
      {text("#!/bin/sh\nexec true\n"), "a script (#!/bin/sh)", "shared object"},
      {text("/* GNU ld script */\nGROUP ( /lib/libx.so.1 )\n"), "a text file: a linker script",
       "points to"},
      {text("INPUT(libx.so.1)\n"), "a text file: a linker script", "points to"},
      {text(lfs), "a Git LFS pointer to a file of 21879184 bytes", "git lfs pull"},
      {text("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer", "git lfs pull"},
      {text("\xef\xbb\xbf \n<!DOCTYPE html>\n<html></html>"), "an HTML page", "download"},
      {text("<HTML><head>"), "an HTML page", "download"},
      {text("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"), "an XML text",
       "download"},
      {text("{\"message\": \"Not Found\"}"), "a JSON text", "download"},
      {text("Not Found\n"), "a text file that begins with \"Not Found\"", "shared object"},
      {text("\xc3\xa9t\xc3\xa9"), "a text file", "shared object"},
      {text(std::string(60, 'x') + "\n"),
       "a text file that begins with \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\"",
       "shared object"},
      {raw("\xff\xfeh\0i\0"), "a text file (UTF-16)", "shared object"},
      {raw("PK\3\4\x14\0\0\0\0\0 kernel.so"), "a zip archive", "unpack"},
      {raw("PK\3\4\x14\0\0\0\0\0 x/k.so PK\1\2 x-1.0.dist-info/RECORD PK\5\6"), "a Python wheel",
       "pip"},
      {raw("PK\5\6\0\0\0\0"), "a zip archive", "unpack"},
      {raw("\x1f\x8b\x8\0\0"), "a gzip file", "decompress"},
      {raw("\xfd\x37zXZ\0\0\4"), "an xz file", "decompress"},
      {raw("\x28\xb5\x2f\xfd\x24"), "a zstd file", "decompress"},
      {text("BZh91AY&SY"), "a bzip2 file", "decompress"},
      {tar(), "a tar archive", "unpack"},
      {raw("BC\xc0\xde\x35\x14\0\0"), "LLVM bitcode", "compile"},
      {raw("\0asm\1\0\0\0"), "a WebAssembly module", "Linux"},
      {text("__CLANG_OFFLOAD_BUNDLE__"), "a HIP offload bundle", "opdock-pack"},
      {raw("CCOB\3\0\1\0"), "a compressed HIP offload bundle", "opdock-pack"},
      {raw("\x50\xed\x55\xba\1\0\x10\0"), "a CUDA fat binary", "opdock-pack"},
      {ptx("sm_90a"), "PTX (compute_90a)", "opdock-pack"},
      {Bytes(std::string(5000, '\0')), "zeros only, 5000 bytes", "again"},
      {Bytes(std::string(2000, '\0') + "x"), "zeros in its first 2000 bytes", "again"},
      {Bytes(std::string((1 << 20) + 1, '\0')), "zeros in its first 1048576 bytes", "again"},
      {raw("\x7f"), "the first 1 of an ELF file's bytes", "again"},
      {raw("\x7f\x45L"), "the first 3 of an ELF file's bytes", "again"},
      {raw("\x7f\x45lF\2\1"), "other first bytes: 7f 45 6c 46 02 01", "shared object"},
      {raw("\1\2\3\4\5\6\7\x8\x9"), "other first bytes: 01 02 03 04 05 06 07 08", "shared object"},
  };
  for (const auto& row : rows) {
    FileFacts facts;
    const Reason reason = only_reason(row.bytes, &facts);
    EXPECT_EQ(reason.code, Code::kNotElf) << row.found;
    EXPECT_EQ(reason.found, row.found);
    EXPECT_EQ(reason.wanted, "an ELF shared object");
    EXPECT_NE(reason.advice.find(row.advice), std::string::npos) << reason.advice;
    EXPECT_FALSE(facts.is_elf);
    EXPECT_EQ(facts.elf_bits, 0u);
  }
}

// However the file is cut or continued, reads stay within it.
TEST(FileKind, SurvivesDamage) {
  for (const Bytes& good :
       {windows(0x8664, 0x2022), mach_o(0xfeedfacf, 12, 6), tar(), ptx("sm_80")}) {
    for (size_t size = 1; size <= good.size(); ++size) {
      Bytes cut = good;
      cut.data.resize(size);
      EXPECT_EQ(only_reason(cut).code, Code::kNotElf) << size;
    }
  }
  Bytes far = windows(0x8664, 0x2022);
  far.u32(0x3c, 0xfffffff0);
  EXPECT_EQ(only_reason(far).found, "a DOS program");
}

// ---- ELF files of other machines

// Builds an ELF header of 64 bytes with nothing else to read.
Bytes elf_head(unsigned bits, bool big_endian, unsigned machine, unsigned type = 3) {
  Bytes b(std::string("\177ELF", 4));
  b.u8(4, bits == 64 ? 2 : 1).u8(5, big_endian ? 2 : 1).u8(6, 1).u8(63, 0);
  b.u8(big_endian ? 17 : 16, type).u8(big_endian ? 23 : 20, 1);
  b.u8(18, big_endian ? machine >> 8 : machine & 255);
  return b.u8(19, big_endian ? machine & 255 : machine >> 8);
}

TEST(ForeignElf, OfAnotherClassOrByteOrderHasOneReason) {
  const struct {
    unsigned bits;
    bool big_endian;
    unsigned machine;
    const char* found;
  } rows[] = {{32, false, 3, "a 32-bit i386 file"},
              {32, false, 40, "a 32-bit arm file"},
              {32, false, 62, "a 32-bit x86-64 (x32) file"},
              {32, false, 243, "a 32-bit riscv32 file"},
              {32, false, 8, "a 32-bit mipsel file"},
              {32, true, 8, "a big-endian 32-bit mips file"},
              {32, true, 20, "a big-endian 32-bit ppc file"},
              {32, true, 2, "a big-endian 32-bit sparc file"},
              {64, true, 22, "a big-endian 64-bit s390x file"},
              {64, true, 21, "a big-endian 64-bit ppc64 file"},
              {64, true, 43, "a big-endian 64-bit sparc64 file"},
              {64, true, 0x1234, "a big-endian 64-bit ELF machine 4660 file"}};
  for (const auto& row : rows) {
    for (const unsigned type : {1, 2, 3}) {
      FileFacts facts;
      const Reason reason =
          only_reason(elf_head(row.bits, row.big_endian, row.machine, type), &facts);
      EXPECT_EQ(reason.code, Code::kElfClass);
      EXPECT_EQ(reason.found, row.found);
      EXPECT_TRUE(reason.wanted.starts_with("a 64-bit little-endian ")) << reason.wanted;
      EXPECT_TRUE(facts.is_elf);
      EXPECT_EQ(facts.machine, row.machine);
      EXPECT_EQ(facts.elf_bits, row.bits);
      EXPECT_EQ(facts.big_endian, row.big_endian);
    }
  }
}

// The file has everything that would be a separate reason on this machine: libraries, versions,
// symbols, the stack.
TEST(ForeignElf, OfAnotherProcessorHasOneReason) {
  for (const auto& [machine, name] : {std::pair(183, "aarch64"), std::pair(21, "ppc64le"),
                                      std::pair(243, "riscv64"), std::pair(258, "loongarch64")}) {
    Plugin plugin;
    plugin.machine = static_cast<uint16_t>(machine);
    plugin.notes = 0;
    plugin.note_segment = plugin.stack_segment = plugin.section_headers = false;
    plugin.needed = {"libnothing.so"};
    plugin.versions = {{"libc.so.6", {"GLIBC_2.99"}}};
    plugin.symbols.push_back({"nowhere", false, 1});
    plugin.flags = 0x10;  // DF_STATIC_TLS
    FileFacts facts;
    const Reason reason = only_reason(plugin.file(), &facts);
    EXPECT_EQ(reason.code, Code::kElfMachine);
    EXPECT_EQ(reason.found, name);
    EXPECT_EQ(reason.wanted, "x86-64");
    EXPECT_EQ(facts.elf_bits, 64u);
    EXPECT_FALSE(facts.big_endian);
    EXPECT_EQ(facts.needed, std::vector<std::string>{"libnothing.so"});
  }
}

TEST(ForeignElf, AGpusCodeIsNamedWithItsArchitecture) {
  Bytes unknown = old_cubin(90);
  unknown.u8(7, 0x55);
  for (const auto& [bytes, found] :
       {std::pair(old_cubin(90, true), "a CUDA cubin (sm_90a)"),
        std::pair(new_cubin(100, "-arch sm_100f ", "13.0"), "a CUDA cubin (sm_100f)"),
        std::pair(unknown, "a CUDA cubin"),
        std::pair(code_object(0x3f, 0xe00), "an AMD GPU code object (gfx90a:sramecc+:xnack-)"),
        std::pair(code_object(0xfe), "an AMD GPU code object")}) {
    const Reason reason = only_reason(bytes);
    EXPECT_EQ(reason.code, Code::kElfMachine);
    EXPECT_EQ(reason.found, found);
    EXPECT_NE(reason.advice.find("opdock-pack"), std::string::npos);
  }
}

TEST(ForeignElf, AnObjectFileOrCoreDumpHasOneReason) {
  const Reason object = only_reason(elf_head(64, false, 62, 1));
  EXPECT_EQ(object.code, Code::kElfType);
  EXPECT_EQ(object.found, "an object file (.o)");
  const Reason core = only_reason(elf_head(64, false, 62, 4));
  EXPECT_EQ(core.code, Code::kElfType);
  EXPECT_EQ(core.found, "a core dump");
}

}  // namespace
}  // namespace opdock
