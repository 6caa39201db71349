// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

namespace opdock_test {
namespace {

// Changes bytes of the image table at an offset from its start.
Fault poke(const std::string& name, size_t at, uint64_t value, size_t count,
           Code code = Code::kImageTable) {
  return {name, code, [=](Plugin& p) {
            const Plugin usual = plugin_with(usual_images());
            p.json = usual.json;
            p.image_table = usual.image_table;
            p.image_table.put(at, value, count);
          }};
}

// A plugin whose note claims one set of images while its table has another.
Fault differ(const std::string& name, Code code, const std::vector<Image>& claimed,
             const std::vector<Image>& actual) {
  return {name, code, [=](Plugin& p) {
            p.json = plugin_with(claimed).json;
            p.image_table = image_table(actual);
          }};
}

// The note and the table agree on one image whose content contradicts both.
Fault one(const std::string& name, Code code, const Image& image) {
  return differ(name, code, {image}, {image});
}

}  // namespace

std::vector<Fault> image_faults() {
  // Offsets of members within a table entry.
  constexpr size_t kBackend = 0, kKind = 4, kArch = 8, kMajor = 56, kOffset = 64, kSize = 72,
                   kNames = 80, kNamesSize = 88, kSha256 = 96;
  constexpr Code kArchCode = Code::kClaimArch, kImages = Code::kClaimImages,
                 kTable = Code::kImageTable;
  const size_t e0 = entry_at(0), e1 = entry_at(1);
  const std::vector<Image> usual = usual_images();
  std::vector<Image> fewer = usual, swapped = usual, other_arch = usual, other_bytes = usual,
                     other_toolkit = usual, other_kind = usual, no_toolkit = usual;
  fewer.pop_back();
  std::swap(swapped[0], swapped[1]);
  other_arch[0] = {2, 1, "sm_80", 12, 9, old_cubin(80), usual[0].names};
  other_bytes[2].bytes.text(other_bytes[2].bytes.size(), "// more\n");
  other_toolkit[2].minor = 8;
  no_toolkit[2].major = 0;
  other_kind[2].kind = 4;
  return {
      poke("the magic damaged", 0, 'o', 1),
      poke("the magic's version 2", 7, '2', 1),
      poke("no images", 8, 0, 4),
      poke("2^32 images", 8, 0xffffffff, 4),
      poke("one image more than the table has", 8, 2000, 4),
      poke("entries of 0 bytes", 12, 0, 4),
      poke("entries of 127 bytes", 12, 127, 4),
      poke("entries of 2^32 bytes", 12, 0xffffffff, 4),
      poke("an unknown backend", e0 + kBackend, 7, 4),
      poke("a CPU image", e0 + kBackend, 1, 4),
      poke("kind 0", e0 + kKind, 0, 4),
      poke("kind 5", e0 + kKind, 5, 4),
      poke("a code object for CUDA", e0 + kKind, 3, 4),
      poke("a cubin for ROCm", e0 + kBackend, 10, 4),
      poke("an empty architecture", e0 + kArch, 0, 8),
      poke("an architecture with a blank", e0 + kArch + 2, ' ', 1),
      poke("an architecture with bytes behind its end", e0 + kArch + 20, 'x', 1),
      poke("an image outside the table", e0 + kOffset, 1 << 20, 8),
      poke("an image whose offset overflows", e0 + kOffset, ~uint64_t{0}, 8),
      poke("an image of no bytes", e0 + kSize, 0, 8),
      poke("an image whose size overflows", e0 + kSize, ~uint64_t{0}, 8),
      poke("an image over the entries", e0 + kOffset, 16, 8),
      poke("an image over the next one", e0 + kSize, 200, 8),
      poke("names outside the table", e0 + kNames, 1 << 20, 8),
      poke("names whose size overflows", e0 + kNamesSize, ~uint64_t{0}, 8),
      poke("names without an end", e0 + kNamesSize, 13, 8),
      poke("an odd number of names", e0 + kNamesSize, 9, 8),
      poke("a cubin that is none", e1 + kOffset, 16 + 3 * 128 + 128, 8),
      poke("a digest that the note does not have", e0 + kSha256, 0, 8, kImages),
      poke("a toolkit that the note does not have", e0 + kMajor, 11, 4, kImages),
      {"a table outside the file", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 8, 1 << 24);
       }},
      {"a table before the file", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 8, -(uint64_t{1} << 40));
       }},
      {"a table whose address and size overflow", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 8, ~uint64_t{0} - 8);
       }},
      {"a table whose size overflows", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 16, ~uint64_t{0});
       }},
      {"a table that ends within its last part", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 16, p.image_table.size() - 1);
       }},
      {"a table of 8 bytes", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 16, 8);
       }},
      {"a table that points at the note", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 8, p.note);
       }},
      {"a table of 0 bytes", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u64(p.images_symbol + 16, 0);
       }},
      {"a table whose symbol is a function that gives addresses", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u8(p.images_symbol + 4, 1 << 4 | 10);  // STT_GNU_IFUNC
       }},
      {"a table whose symbol is thread-local", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u8(p.images_symbol + 4, 1 << 4 | 6);  // STT_TLS
       }},
      {"a table whose symbol is absolute", kTable,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u16(p.images_symbol + 6, 0xfff1);  // SHN_ABS
       }},
      {"a table whose symbol is local", kImages,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u8(p.images_symbol + 4, 1);
       }},
      {"a table whose symbol is undefined", kImages,
       [](Plugin& p) {
         p = plugin_with(usual_images());
         p.file();
         p.file().u16(p.images_symbol + 6, 0);
       }},
      {"claims without a table", kImages,
       [](Plugin& p) { p.json = plugin_with(usual_images()).json; }},
      {"a table without claims", kImages,
       [](Plugin& p) { p.image_table = image_table(usual_images()); }},
      differ("one claim too many", kImages, usual, fewer),
      differ("one claim too few", kImages, fewer, usual),
      differ("claims in another order", kImages, swapped, usual),
      differ("another architecture", kImages, usual, other_arch),
      differ("other bytes", kImages, usual, other_bytes),
      differ("another toolkit", kImages, usual, other_toolkit),
      differ("a toolkit where the note names none", kImages, no_toolkit, usual),
      differ("no toolkit where the note names one", kImages, usual, no_toolkit),
      differ("PTX called source", kImages, usual, other_kind),
      one("a cubin for another architecture", kArchCode, {2, 1, "sm_90", 12, 9, old_cubin(80), ""}),
      one("a cubin that hides its suffix a", kArchCode,
          {2, 1, "sm_90", 12, 9, old_cubin(90, true), ""}),
      one("a cubin that makes up a suffix a", kArchCode,
          {2, 1, "sm_90a", 12, 9, old_cubin(90), ""}),
      one("a newer cubin for another architecture", kArchCode,
          {2, 1, "sm_100", 13, 0, new_cubin(120, "", ""), ""}),
      one("a newer cubin that hides its suffix f", kArchCode,
          {2, 1, "sm_100", 13, 0, new_cubin(100, "-arch sm_100f", "13.0"), ""}),
      one("a newer cubin whose suffix is f, not a", kArchCode,
          {2, 1, "sm_100a", 13, 0, new_cubin(100, "-arch sm_100f", "13.0"), ""}),
      one("a newer cubin that makes up a suffix", kArchCode,
          {2, 1, "sm_100a", 13, 0, new_cubin(100, "-arch sm_100 ", "13.0"), ""}),
      one("a newer cubin with the bit for a", kArchCode,
          {2, 1, "sm_100", 12, 9, new_cubin(100, "", "", 8), ""}),
      one("a cubin by another toolkit", kImages, {2, 1, "sm_80", 12, 0, old_cubin(80), ""}),
      one("a newer cubin by another toolkit", kImages,
          {2, 1, "sm_100", 12, 9, new_cubin(100, "-arch sm_100", "13.0"), ""}),
      one("a cubin that names no toolkit", kImages, {2, 1, "sm_80", 0, 0, old_cubin(80), ""}),
      one("a cubin for architecture 0", kTable, {2, 1, "sm_0", 12, 9, old_cubin(0), ""}),
      one("PTX for another architecture", kArchCode, {2, 2, "compute_75", 12, 9, ptx("sm_80"), ""}),
      one("PTX that hides its suffix", kArchCode, {2, 2, "compute_90", 12, 9, ptx("sm_90a"), ""}),
      one("PTX without a target", kTable, {2, 2, "compute_75", 12, 9, Bytes(".version 8.8\n"), ""}),
      one("PTX without a version", kTable,
          {2, 2, "compute_75", 12, 9, Bytes(".target sm_75\n"), ""}),
      one("PTX with a strange target", kTable, {2, 2, "compute_75", 12, 9, ptx("sm_75x"), ""}),
      one("PTX that is a text", kTable, {2, 2, "compute_75", 12, 9, Bytes("hello"), ""}),
      one("a cubin called PTX", kTable, {2, 2, "compute_80", 12, 9, old_cubin(80), ""}),
      one("PTX called a cubin", kTable, {2, 1, "sm_75", 12, 9, ptx("sm_75"), ""}),
      one("half a cubin's header", kTable, {2, 1, "sm_80", 12, 9, Bytes("\177ELF\2\1\1\x33"), ""}),
      one("a code object for another GPU", kArchCode,
          {10, 3, "gfx908", 6, 2, code_object(0x3f), ""}),
      one("a code object that hides xnack", kArchCode,
          {10, 3, "gfx90a", 6, 2, code_object(0x3f, 0x200), ""}),
      one("a code object with sramecc the other way", kArchCode,
          {10, 3, "gfx90a:sramecc-", 6, 2, code_object(0x3f, 0xc00), ""}),
      one("a cubin called a code object", kTable, {10, 3, "gfx90a", 6, 2, old_cubin(90), ""}),
  };
}

}  // namespace opdock_test
