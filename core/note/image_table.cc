// SPDX-License-Identifier: Apache-2.0
#include "note/image_table.h"

#include <algorithm>
#include <cstring>

#include "base/sha256.h"
#include "note/image_identity.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

constexpr uint32_t kMaxImages = 1024;
constexpr uint32_t kMaxEntryBytes = 4096;

struct Table {
  Extent extent;
  uint64_t entries_end;  // from the table's start
  std::vector<ImageEntry> entries;
};

// Returns what is wrong with the head of a table of `size` bytes; nullopt: nothing.
std::optional<Reason> head_problem(const ImageTableHead& head, uint64_t size) {
  const auto problem = [](std::string found, std::string wanted) {
    return make_reason(Code::kImageTable, std::move(found), std::move(wanted));
  };
  if (size < sizeof head || std::memcmp(head.magic, kImageMagic, sizeof kImageMagic) != 0) {
    return problem("an image table that begins with other bytes", "one that begins with OPDKIMG1");
  }
  if (head.entry_size < sizeof(ImageEntry) || head.entry_size > kMaxEntryBytes) {
    return problem("entries of " + std::to_string(head.entry_size) + " bytes",
                   std::to_string(sizeof(ImageEntry)) + " to " + std::to_string(kMaxEntryBytes));
  }
  if (head.count == 0 || head.count > kMaxImages ||
      uint64_t{head.count} * head.entry_size > size - sizeof head) {
    return problem(std::to_string(head.count) + " images", "1 to " + std::to_string(kMaxImages) +
                                                               ", inside the table's " +
                                                               std::to_string(size) + " bytes");
  }
  return std::nullopt;
}

uint64_t offset_of_entry(const ImageTableHead& head, uint32_t index) {
  return sizeof head + uint64_t{index} * head.entry_size;
}

void bad_table(const ElfFile& elf, std::string found, std::string wanted) {
  elf.defects->add(Code::kImageTable, std::move(found), std::move(wanted));
}

// Returns the place that the symbol gives; if the table cannot be there, adds a defect and returns
// size 0.
ImageTablePlace place_of(const ElfFile& elf, const Elf64_Sym& symbol) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  // dlsym would call a symbol of type STT_GNU_IFUNC to find out the table's address.
  if (type != STT_OBJECT || symbol.st_shndx == SHN_ABS) {
    bad_table(elf,
              std::string(OPDOCK_IMAGES_NAME) + " as a symbol of type " + std::to_string(type) +
                  " and section " + std::to_string(symbol.st_shndx),
              "a data symbol (STT_OBJECT) of a section");
    return {};
  }
  const std::optional<uint64_t> offset = elf.to_offset(symbol.st_value, symbol.st_size);
  if (!offset || symbol.st_size == 0) {
    bad_table(
        elf, "a table at address " + hex(symbol.st_value) + " of " + hex(symbol.st_size) + " bytes",
        "it inside one loaded segment of the file");
    return {};
  }
  return {symbol.st_value, *offset, symbol.st_size};
}

std::optional<Table> read_entries(const ElfFile& elf, const ImageTablePlace& place) {
  ImageTableHead table_head{};  // stays zero if it cannot be read
  if (place.size >= sizeof table_head) elf.reader->read(place.offset, &table_head);
  if (std::optional<Reason> problem = head_problem(table_head, place.size)) {
    bad_table(elf, problem->found + " at " + hex(place.offset), problem->wanted);
    return std::nullopt;
  }
  Table table{{place.offset, place.size}, offset_of_entry(table_head, table_head.count), {}};
  table.entries.resize(table_head.count);
  for (uint32_t i = 0; i < table_head.count; ++i) {
    if (!elf.reader->read(place.offset + offset_of_entry(table_head, i), &table.entries[i])) {
      return std::nullopt;
    }
  }
  return table;
}

std::optional<std::string> text_of(const char (&field)[48]) {
  const char* const end = std::find(field, field + sizeof field, '\0');
  const std::string text(field, end);
  const bool good =
      !text.empty() && end != field + sizeof field &&
      std::all_of(end, field + sizeof field, [](char c) { return c == '\0'; }) &&
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return good ? std::optional(text) : std::nullopt;
}

bool inside(const Extent& table, uint64_t offset, uint64_t size) {
  return offset <= table.size && size <= table.size - offset;
}

// Checks that the names are pairs of NUL-terminated texts that fill their part of the table.
bool check_names(const ElfFile& elf, const Table& table, const ImageEntry& entry) {
  if (entry.names_size == 0) return true;
  if (!inside(table.extent, entry.names_offset, entry.names_size)) return false;
  constexpr uint64_t kMaxNames = 1 << 20;
  if (entry.names_size > kMaxNames) return false;
  std::string names(entry.names_size, '\0');
  if (!elf.reader->read_exactly(table.extent.offset + entry.names_offset, names.data(),
                                names.size())) {
    return false;
  }
  return names.back() == '\0' && std::count(names.begin(), names.end(), '\0') % 2 == 0;
}

// Checks the entry by itself and against the table's bounds, and fills in *image.
bool check_entry(const ElfFile& elf, const Table& table, size_t index, DeviceImage* image) {
  const ImageEntry& entry = table.entries[index];
  const std::string name = "image " + std::to_string(index);
  const auto refuse = [&](const std::string& found, std::string wanted) {
    bad_table(elf, name + ": " + found, std::move(wanted));
    return false;
  };
  const bool known_backend = entry.backend == static_cast<uint32_t>(Backend::kCuda) ||
                             entry.backend == static_cast<uint32_t>(Backend::kRocm);
  if (!known_backend) {
    return refuse("backend " + std::to_string(entry.backend), "2 (cuda) or 10 (rocm)");
  }
  image->backend = static_cast<Backend>(entry.backend);
  const bool known_kind = entry.kind >= static_cast<uint32_t>(ImageKind::kCubin) &&
                          entry.kind <= static_cast<uint32_t>(ImageKind::kSource);
  if (!known_kind) return refuse("kind " + std::to_string(entry.kind), "1 to 4");
  image->kind = static_cast<ImageKind>(entry.kind);
  const bool rocm_kind = image->kind == ImageKind::kCodeObject;
  if (image->kind != ImageKind::kSource && rocm_kind != (image->backend == Backend::kRocm)) {
    return refuse(
        "a " + std::string(to_text(image->kind)) + " for " + std::string(to_text(image->backend)),
        "cubin and ptx for cuda, code-object for rocm");
  }
  const std::optional<std::string> arch = text_of(entry.arch);
  if (!arch) return refuse("a damaged architecture", "1 to 47 printable characters, then NULs");
  image->claimed_arch = *arch;
  if (entry.size == 0 || entry.offset < table.entries_end ||
      !inside(table.extent, entry.offset, entry.size)) {
    return refuse(hex(entry.size) + " bytes at " + hex(entry.offset),
                  "some, behind the entries and inside the table's " + hex(table.extent.size));
  }
  if (!check_names(elf, table, entry)) {
    return refuse("damaged kernel names at " + hex(entry.names_offset),
                  "pairs of NUL-terminated texts inside the table");
  }
  image->offset = table.extent.offset + entry.offset;
  image->size = entry.size;
  if (entry.toolkit_major != 0) image->toolkit = {entry.toolkit_major, entry.toolkit_minor};
  image->from_table = true;
  return true;
}

std::string text_or_none(const Version& version) {
  return version.empty() ? "none" : version.text();
}

bool has_suffix(const std::string& arch) {
  return !arch.empty() && (arch.back() == 'a' || arch.back() == 'f');
}

// Compares the claimed architecture with the one that the image shows. Takes from the claim what
// the image does not show: a cubin's suffix, or the whole architecture of an unknown kind of image.
void settle_arch(const ElfFile& elf, size_t index, DeviceImage* image) {
  const std::string claimed = image->claimed_arch;
  std::string problem;
  const std::optional<ImageIdentity> identity =
      identify_image(elf.reader, image->kind, image->offset, image->size, &problem);
  if (!identity) {
    bad_table(elf, "image " + std::to_string(index) + ": " + problem,
              "a " + std::string(to_text(image->kind)));
    image->arch = claimed;
    image->claimed_arch.clear();
    return;
  }
  image->arch = identity->arch.empty() ? claimed : identity->arch;
  const bool cubin = image->kind == ImageKind::kCubin;
  if (cubin && !identity->suffix_shown && !identity->arch.empty() && has_suffix(claimed) &&
      claimed.substr(0, claimed.size() - 1) == identity->arch) {
    image->arch = claimed;
  }
  if (image->arch != claimed) {
    elf.defects->add(Code::kClaimArch, "image " + std::to_string(index) + " for " + image->arch,
                     claimed);
    return;
  }
  image->claimed_arch.clear();
  if (!identity->toolkit.empty() && identity->toolkit != image->toolkit) {
    elf.defects->add(
        Code::kClaimImages,
        "image " + std::to_string(index) + " made by toolkit " + identity->toolkit.text(),
        image->toolkit.empty() ? "none named" : image->toolkit.text());
    image->toolkit = identity->toolkit;
  }
}

void check_overlaps(const ElfFile& elf, const Table& table) {
  std::vector<Extent> extents;
  for (const ImageEntry& entry : table.entries) extents.push_back({entry.offset, entry.size});
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < extents.size(); ++i) {
    // The two extents are inside the table (check_entry), so the sums do not wrap.
    if (extents[i].offset < extents[i - 1].end()) {
      bad_table(elf, "two images that overlap at " + hex(extents[i].offset), "separate ones");
      return;
    }
  }
}

void check_claim(const ElfFile& elf, size_t index, const ImageEntry& entry,
                 const DeviceImage& image, const ImageClaim& claim) {
  Digest digest;
  std::copy(std::begin(entry.sha256), std::end(entry.sha256), digest.begin());
  const std::string entry_arch = text_of(entry.arch).value_or("");
  const auto describe = [](Backend backend, ImageKind kind, const std::string& arch) {
    return std::string(to_text(backend)) + " " + std::string(to_text(kind)) + " " + arch;
  };
  const std::string name = "image " + std::to_string(index) + ": ";
  const std::string found = describe(image.backend, image.kind, entry_arch);
  const std::string wanted = describe(claim.backend, claim.kind, claim.arch);
  const Version toolkit =
      entry.toolkit_major == 0 ? Version() : Version{entry.toolkit_major, entry.toolkit_minor};
  if (found != wanted) {
    elf.defects->add(Code::kClaimImages, name + found, wanted);
  } else if (to_hex(digest) != claim.sha256) {
    elf.defects->add(Code::kClaimImages, name + "digest " + to_hex(digest),
                     claim.sha256.empty() ? "none named" : claim.sha256);
  } else if (std::pair(toolkit.major(), toolkit.minor()) !=
             std::pair(claim.toolkit.major(), claim.toolkit.minor())) {
    elf.defects->add(Code::kClaimImages, name + "toolkit " + text_or_none(toolkit),
                     text_or_none(claim.toolkit));
  }
}

void check_digest(const ElfFile& elf, size_t index, const ImageEntry& entry,
                  const DeviceImage& image) {
  Sha256 hash;
  std::vector<uint8_t> piece(1 << 16);
  for (uint64_t at = 0; at < image.size; at += piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(piece.size(), image.size - at)));
    if (!elf.reader->read_exactly(image.offset + at, piece.data(), piece.size())) return;
    hash.add(piece);
  }
  const Digest digest = hash.finish();
  if (!std::equal(digest.begin(), digest.end(), std::begin(entry.sha256))) {
    Digest claimed;
    std::copy(std::begin(entry.sha256), std::end(entry.sha256), claimed.begin());
    elf.defects->add(Code::kClaimDigest,
                     "image " + std::to_string(index) + " with digest " + to_hex(digest),
                     to_hex(claimed));
  }
}

}  // namespace

bool read_image_entries(std::span<const uint8_t> table, std::vector<ImageEntry>* entries,
                        Reason* problem) {
  ImageTableHead head{};
  if (table.size() >= sizeof head) std::memcpy(&head, table.data(), sizeof head);
  if (std::optional<Reason> found = head_problem(head, table.size())) {
    *problem = *std::move(found);
    return false;
  }
  entries->resize(head.count);
  for (uint32_t i = 0; i < head.count; ++i) {
    std::memcpy(&(*entries)[i], table.data() + offset_of_entry(head, i), sizeof(ImageEntry));
  }
  return true;
}

void read_image_table(const ElfFile& elf, const std::optional<Elf64_Sym>& symbol,
                      bool check_digests, FileFacts* facts) {
  const NoteHead& head = facts->note->head;
  const std::vector<ImageClaim>& claims = facts->note->images;
  if (!symbol) {
    // A missing symbol is no defect if the plugin is of another ABI, whose symbol has another name,
    // or if the file is truncated, since the symbol may be in the missing part.
    if (!claims.empty() && is_callable_abi(head.abi_major, head.abi_minor) &&
        !elf.defects->has(Code::kElfTruncated)) {
      elf.defects->add(Code::kClaimImages, "no dynamic symbol " OPDOCK_IMAGES_NAME,
                       "it exported, with " + std::to_string(claims.size()) + " images");
    }
    return;
  }
  const ImageTablePlace place = place_of(elf, *symbol);
  if (place.size == 0) return;
  const std::optional<Table> table = read_entries(elf, place);
  if (!table) return;
  facts->image_table = place;
  if (table->entries.size() != claims.size()) {
    elf.defects->add(Code::kClaimImages, std::to_string(table->entries.size()) + " images",
                     std::to_string(claims.size()));
  }
  bool sound = true;
  for (size_t i = 0; i < table->entries.size(); ++i) {
    DeviceImage image{};
    if (!check_entry(elf, *table, i, &image)) {
      sound = false;
      continue;
    }
    if (i < claims.size()) check_claim(elf, i, table->entries[i], image, claims[i]);
    settle_arch(elf, i, &image);
    if (check_digests) check_digest(elf, i, table->entries[i], image);
    facts->images.push_back(std::move(image));
  }
  if (sound) check_overlaps(elf, *table);
}

}  // namespace opdock
