// SPDX-License-Identifier: Apache-2.0
#include "note/elf_symbols.h"

#include <algorithm>
#include <cstring>

namespace opdock {
namespace {

constexpr uint64_t kMaxTableBytes = uint64_t{1} << 30;  // the largest libraries have some 100 MB
constexpr size_t kMaxName = 65536;                      // mangled names reach thousands of bytes
constexpr size_t kChunk = 4096;                         // symbols, or words, read at once

// Reads `count` words at `offset` in pieces; stops early when visit returns false.
template <typename Visit>
bool for_each_word(const ElfFile& elf, uint64_t offset, uint64_t count, Visit visit) {
  std::vector<uint32_t> words;
  for (uint64_t at = 0; at < count; at += words.size()) {
    words.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, count - at)));
    if (!elf.reader->read(offset + at * 4, words.data(), words.size() * 4)) return false;
    for (size_t i = 0; i < words.size(); ++i) {
      if (!visit(words[i], at + i)) return true;
    }
  }
  return true;
}

// The number of symbols is not written anywhere: the highest bucket's chain ends at the last one.
std::optional<uint64_t> count_by_gnu_hash(const ElfFile& elf, const Dynamic& dynamic) {
  const std::optional<Extent> table = elf.rest_of_segment(dynamic.gnu_hash);
  struct {
    uint32_t buckets, first, bloom_words, bloom_shift;
  } head;
  if (!table || table->size < sizeof head || !elf.reader->read(table->offset, &head)) return {};
  const uint64_t buckets_at = sizeof head + uint64_t{head.bloom_words} * 8;
  const uint64_t chains_at = buckets_at + uint64_t{head.buckets} * 4;
  if (chains_at > table->size) return std::nullopt;
  uint32_t highest = 0;
  const bool read =
      for_each_word(elf, table->offset + buckets_at, head.buckets, [&](uint32_t bucket, uint64_t) {
        highest = std::max(highest, bucket);
        return true;
      });
  if (!read) return std::nullopt;
  if (highest == 0) {
    // Nothing is defined, so nothing is hashed, and GNU ld writes 1 for `first`: only the next
    // table's place bounds the undefined symbols.
    if (head.first > 1 || dynamic.symbols_end == 0) return head.first;
    return (dynamic.symbols_end - dynamic.symbols) / sizeof(Elf64_Sym);
  }
  if (highest < head.first) return std::nullopt;
  const uint64_t skip = uint64_t{highest} - head.first;
  const uint64_t chains = (table->size - chains_at) / 4;
  if (skip >= chains) return std::nullopt;
  std::optional<uint64_t> count;
  for_each_word(elf, table->offset + chains_at + skip * 4, chains - skip,
                [&](uint32_t chain, uint64_t i) {
                  if ((chain & 1) != 0) count = highest + i + 1;
                  return !count;
                });
  return count;
}

std::optional<uint64_t> count_by_hash(const ElfFile& elf, uint64_t address) {
  const std::optional<Extent> table = elf.rest_of_segment(address);
  uint32_t head[2];  // buckets, chains; there are as many chains as symbols
  if (!table || table->size < sizeof head || !elf.reader->read(table->offset, &head)) return {};
  if (sizeof head + (uint64_t{head[0]} + head[1]) * 4 > table->size) return std::nullopt;
  return head[1];
}

}  // namespace

void for_each_symbol(const ElfFile& elf, const Dynamic& dynamic,
                     const std::function<void(const Elf64_Sym&, std::string_view)>& visit) {
  if (dynamic.symbols == 0 || (dynamic.gnu_hash == 0 && dynamic.hash == 0)) return;
  const auto malformed = [&](const char* what) {
    if (!elf.defects->has(Code::kElfTruncated)) {
      elf.defects->add(Code::kElfMalformed, what, "one whose parts lie inside their segment");
    }
  };
  const std::optional<uint64_t> count =
      dynamic.gnu_hash != 0 ? count_by_gnu_hash(elf, dynamic) : count_by_hash(elf, dynamic.hash);
  if (!count) return malformed("a damaged hash table");
  const std::optional<Extent> table = elf.rest_of_segment(dynamic.symbols);
  if (!table || *count > table->size / sizeof(Elf64_Sym) || *count > kMaxTableBytes / 24 ||
      dynamic.names.size > kMaxTableBytes) {
    return malformed("a damaged symbol table");
  }
  std::string names(dynamic.names.size, '\0');
  if (!elf.reader->read(dynamic.names.offset, names.data(), names.size())) return;
  std::vector<Elf64_Sym> symbols;
  for (uint64_t at = 0; at < *count; at += symbols.size()) {
    symbols.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, *count - at)));
    if (!elf.reader->read(table->offset + at * sizeof(Elf64_Sym), symbols.data(),
                          symbols.size() * sizeof(Elf64_Sym))) {
      return;
    }
    for (size_t i = at == 0 ? 1 : 0; i < symbols.size(); ++i) {
      const uint32_t name = symbols[i].st_name;
      if (name >= names.size()) return malformed("a symbol named outside the string table");
      const size_t room = std::min(names.size() - name, kMaxName);
      visit(symbols[i], {names.data() + name, strnlen(names.data() + name, room)});
    }
  }
}

}  // namespace opdock
