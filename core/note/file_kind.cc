// SPDX-License-Identifier: Apache-2.0
#include "note/file_kind.h"

#include <elf.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/utf8.h"
#include "note/device_bundles.h"
#include "note/image_identity.h"

namespace opdock {
namespace {

using namespace std::string_view_literals;

constexpr size_t kLookedAt = 1024;
constexpr const char* kLink = "link what is in it into a shared object (-shared)";
constexpr const char* kUnpack = "unpack it, and name the shared object that is in it";
constexpr const char* kDecompress = "decompress it";
constexpr const char* kPack = "pack it into a plugin with opdock-pack";
constexpr const char* kLinux = "use the plugin built for Linux";
constexpr const char* kCopy = "copy or download the file again";

struct Magic {
  size_t at;
  std::string_view bytes;
  const char *found, *advice;
};
constexpr Magic kMagics[] = {
    {0, "!<arch>\ndebian-binary"sv, "a Debian package", "install it"},
    {0, "!<arch>\n"sv, "a static archive (ar)", kLink},
    {0, "!<thin>\n"sv, "a thin archive (ar)", kLink},
    {0, "\xed\xab\xee\xdb"sv, "an RPM package", "install it"},
    {0, "BC\xc0\xde"sv, "LLVM bitcode", "compile it, and link it with -shared"},
    {0, "\xde\xc0\x17\x0b"sv, "LLVM bitcode", "compile it, and link it with -shared"},
    {0, "\0asm"sv, "a WebAssembly module", kLinux},
    {0, "\x1f\x8b"sv, "a gzip file", kDecompress},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "an xz file", kDecompress},
    {0, "\x28\xb5\x2f\xfd"sv, "a zstd file", kDecompress},
    {0, "BZh"sv, "a bzip2 file", kDecompress},
    {0, "\x04\x22\x4d\x18"sv, "an LZ4 file", kDecompress},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive", kUnpack},
    {257, "ustar"sv, "a tar archive", kUnpack},
    {0, "__CLANG_OFFLOAD_BUNDLE__"sv, "a HIP offload bundle", kPack},
    {0, "CCOB"sv, "a compressed HIP offload bundle", kPack},
    {0, "\x50\xed\x55\xba"sv, "a CUDA fat binary", kPack},
    {0, "\xff\xfe"sv, "a text file (UTF-16)", ""},
    {0, "\xfe\xff"sv, "a text file (UTF-16)", ""},
};

uint64_t number_at(std::string_view head, size_t at, size_t bytes, bool is_big_endian) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes && at + bytes <= head.size(); ++i) {
    const size_t shift = 8 * (is_big_endian ? bytes - 1 - i : i);
    value |= uint64_t{static_cast<uint8_t>(head[at + i])} << shift;
  }
  return value;
}

std::string with_number(const char* what, uint64_t number) {
  return std::string(what) + " " + std::to_string(number);
}

std::string windows_machine(uint64_t machine) {
  switch (machine) {
    case 0x8664:
      return "x86-64";
    case 0x14c:
      return "i386";
    case 0xaa64:
      return "arm64";
    case 0x1c4:
      return "arm";
    default:
      return with_number("machine", machine);
  }
}

// Recognises Windows files. A DLL or program has its header after a DOS program's; an object file
// begins with it.
std::optional<FileKind> windows_kind(FileReader* reader, std::string_view head) {
  char pe[24];
  const std::string_view header(pe, sizeof pe);
  if (head.starts_with("MZ")) {
    if (!reader->read(number_at(head, 0x3c, 4, false), pe, sizeof pe) ||
        !header.starts_with("PE\0\0"sv)) {
      return FileKind{"a DOS program", kLinux};
    }
    constexpr uint64_t kDll = 0x2000;
    const bool is_dll = (number_at(header, 22, 2, false) & kDll) != 0;
    return FileKind{std::string(is_dll ? "a Windows DLL (PE, " : "a Windows program (PE, ") +
                        windows_machine(number_at(header, 4, 2, false)) + ")",
                    kLinux};
  }
  const uint64_t machine = number_at(head, 0, 2, false);
  const bool has_no_image_header = head.size() >= 20 && number_at(head, 16, 2, false) == 0;
  if ((machine == 0x8664 || machine == 0xaa64) && has_no_image_header) {
    return FileKind{"a Windows object file (COFF, " + windows_machine(machine) + ")", kLinux};
  }
  return std::nullopt;
}

std::string mach_o_machine(uint64_t cpu) {
  switch (cpu) {
    case 7:
      return "i386";
    case 0x1000007:
      return "x86-64";
    case 12:
      return "arm";
    case 0x100000c:
      return "arm64";
    case 18:
      return "ppc";
    default:
      return with_number("processor", cpu);
  }
}

std::optional<FileKind> mac_kind(std::string_view head) {
  const uint64_t big = number_at(head, 0, 4, true);
  if (big == 0xcafebabe || big == 0xcafebabf) {
    constexpr uint64_t kMaxMachines = 44;  // a Java class has its version here, 45 or more
    const uint64_t count = number_at(head, 4, 4, true);
    if (count > kMaxMachines) return FileKind{"a Java class", ""};
    std::string names;
    const size_t step = big == 0xcafebabe ? 20 : 32;
    for (size_t i = 0; i < count && 8 + (i + 1) * step <= head.size(); ++i) {
      names += (i == 0 ? "" : ", ") + mach_o_machine(number_at(head, 8 + i * step, 4, true));
    }
    return FileKind{"a universal Mach-O file (" + names + ")", kLinux};
  }
  for (const bool is_big : {false, true}) {
    const uint64_t magic = number_at(head, 0, 4, is_big);
    if (magic != 0xfeedface && magic != 0xfeedfacf) continue;
    static constexpr const char* kTypes[] = {"file",    "object file", "program", "file",  "file",
                                             "program", "library",     "file",    "bundle"};
    const uint64_t type = number_at(head, 12, 4, is_big);
    return FileKind{std::string("a Mach-O ") + (type < std::size(kTypes) ? kTypes[type] : "file") +
                        " (" + mach_o_machine(number_at(head, 4, 4, is_big)) + ")",
                    kLinux};
  }
  return std::nullopt;
}

std::optional<FileKind> zip_kind(FileReader* reader, std::string_view head) {
  if (!head.starts_with("PK\3\4") && !head.starts_with("PK\5\6")) return std::nullopt;
  // The list of names is at the end of the file, and a wheel's .dist-info files come last in it.
  constexpr uint64_t kTail = 16384;
  std::string tail(static_cast<size_t>(std::min(reader->size(), kTail)), '\0');
  if (reader->read_exactly(reader->size() - tail.size(), tail.data(), tail.size()) &&
      tail.find(".dist-info/") != std::string::npos) {
    return FileKind{"a Python wheel",
                    "install it with pip, and name the shared object that is in it"};
  }
  return FileKind{"a zip archive", kUnpack};
}

bool is_text(std::string_view head, bool is_whole) {
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0x7f || (byte < 0x20 && (byte < '\t' || byte > '\r') && byte != 0x1b);
  };
  if (std::any_of(head.begin(), head.end(), is_control)) return false;
  // The last character of a partial text may be incomplete.
  for (size_t cut = 0; cut <= (is_whole ? 0u : 3u) && cut <= head.size(); ++cut) {
    if (is_utf8(head.substr(0, head.size() - cut))) return true;
  }
  return false;
}

// Returns the first line up to a character that is not plain ASCII, for a message: the text comes
// from outside.
std::string shown_line(std::string_view text) {
  constexpr size_t kMaxShown = 48;
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~'; };
  const auto end = std::find_if_not(text.begin(), text.end(), is_plain);
  std::string line(text.begin(), end);
  if (line.size() <= kMaxShown) return line;
  return line.substr(0, kMaxShown) + "…";
}

bool starts_with_word(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
         });
}

FileKind lfs_kind(std::string_view text) {
  std::string found = "a Git LFS pointer";
  const size_t at = text.find("\nsize ");
  if (at != text.npos) {
    const std::string_view rest = text.substr(at + 6);
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits > 0) found += " to a file of " + std::string(rest.substr(0, digits)) + " bytes";
  }
  return {found, "run `git lfs pull` in its repository, or download the file itself"};
}

FileKind text_kind(FileReader* reader, std::string_view text) {
  constexpr const char* kDownload = "download the file again: this came in its place";
  if (text.starts_with("version https://git-lfs.github.com/spec/")) return lfs_kind(text);
  if (text.starts_with("#!")) return {"a script (" + shown_line(text) + ")", ""};
  std::string_view body = text;
  if (body.starts_with("\xef\xbb\xbf")) body.remove_prefix(3);
  body.remove_prefix(std::min(body.find_first_not_of(" \t\r\n"), body.size()));
  for (const std::string_view word : {"<!doctype html", "<html", "<head"}) {
    if (starts_with_word(body, word)) return {"an HTML page", kDownload};
  }
  if (body.starts_with("<?xml")) return {"an XML text", kDownload};
  if (body.starts_with("{")) return {"a JSON text", kDownload};
  if (text.find("GNU ld script") != text.npos || body.starts_with("INPUT(") ||
      body.starts_with("INPUT (") || body.starts_with("GROUP") ||
      body.starts_with("OUTPUT_FORMAT")) {
    return {"a text file: a linker script", "name the shared object that it points to"};
  }
  std::string problem;
  if (const std::optional<ImageIdentity> ptx =
          identify_image(reader, ImageKind::kPtx, 0, reader->size(), &problem)) {
    return {"PTX (" + ptx->arch + ")", kPack};
  }
  const std::string line = shown_line(body);
  return {line.empty() ? "a text file" : "a text file that begins with \"" + line + "\"", ""};
}

// Describes a file whose first `seen` bytes are all zero.
FileKind zeros_kind(FileReader* reader, size_t seen) {
  constexpr uint64_t kMaxRead = 1 << 20;
  std::string bytes(static_cast<size_t>(std::min(reader->size(), kMaxRead)), '\0');
  if (reader->read_exactly(0, bytes.data(), bytes.size())) {
    seen = std::min(bytes.find_first_not_of('\0'), bytes.size());
  }
  if (seen == reader->size()) return {with_number("zeros only,", seen) + " bytes", kCopy};
  return {with_number("zeros in its first", seen) + " bytes", kCopy};
}

std::string first_bytes(std::string_view head) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "other first bytes:";
  for (const char c : head.substr(0, 8)) {
    const auto byte = static_cast<unsigned char>(c);
    text += {' ', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

FileKind file_kind(FileReader* reader) {
  char bytes[kLookedAt];
  const size_t size = static_cast<size_t>(std::min<uint64_t>(reader->size(), sizeof bytes));
  if (!reader->read(0, bytes, size)) return {"bytes that cannot be read", ""};
  const std::string_view head(bytes, size);
  if (size < SELFMAG && std::string_view(ELFMAG).starts_with(head)) {
    return {"the first " + std::to_string(size) + " of an ELF file's bytes", kCopy};
  }
  for (const Magic& magic : kMagics) {
    if (head.size() > magic.at && head.substr(magic.at).starts_with(magic.bytes)) {
      return {magic.found, magic.advice};
    }
  }
  if (std::optional<FileKind> kind = windows_kind(reader, head)) return *kind;
  if (std::optional<FileKind> kind = mac_kind(head)) return *kind;
  if (std::optional<FileKind> kind = zip_kind(reader, head)) return *kind;
  if (is_text(head, size == reader->size())) return text_kind(reader, head);
  if (head.find_first_not_of('\0') == head.npos) return zeros_kind(reader, size);
  return {first_bytes(head), ""};
}

}  // namespace opdock
