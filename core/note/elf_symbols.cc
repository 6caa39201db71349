// SPDX-License-Identifier: Apache-2.0
#include "note/elf_symbols.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace opdock {
namespace {

constexpr uint64_t kMaxTableBytes = uint64_t{1} << 30;  // the largest libraries have some 100 MB
constexpr size_t kMaxName = 65536;                      // mangled names reach thousands of bytes
constexpr size_t kFirstWords = 64;  // words in the first read; each further read doubles the total
constexpr uint16_t kFirstVersion = 2;  // 0: local, 1: global without a version

// Appends `count` words at `offset`, in several reads; stops early when more() returns false.
template <typename More>
bool read_words(const ElfFile& elf, uint64_t offset, uint64_t count, std::vector<uint32_t>* words,
                More more) {
  while (words->size() < count) {
    const size_t have = words->size();
    const uint64_t more_words = std::min<uint64_t>(std::max(have, kFirstWords), count - have);
    if (!elf.reader->holds(offset + have * 4, more_words * 4)) return false;
    words->resize(have + static_cast<size_t>(more_words));
    if (!elf.reader->read(offset + have * 4, words->data() + have, (words->size() - have) * 4)) {
      return false;
    }
    for (size_t i = have; i < words->size(); ++i) {
      if (more((*words)[i])) continue;
      words->resize(i + 1);
      return true;
    }
  }
  return true;
}

struct GnuHash {
  std::vector<uint64_t> bloom;
  std::vector<uint32_t> buckets, chains;
  uint32_t first = 0, shift = 0;
  uint64_t count = 0;  // number of symbols: the chain of the highest bucket ends at the last symbol
  bool is_guess = false;
};

std::optional<GnuHash> read_gnu_hash(const ElfFile& elf, const Dynamic& dynamic) {
  const std::optional<Extent> table = elf.rest_of_segment(dynamic.gnu_hash);
  struct {
    uint32_t buckets, first, bloom_words, bloom_shift;
  } head;
  if (!table || table->size < sizeof head || !elf.reader->read(table->offset, &head)) return {};
  const uint64_t buckets_at = sizeof head + uint64_t{head.bloom_words} * 8;
  const uint64_t chains_at = buckets_at + uint64_t{head.buckets} * 4;
  const bool is_power_of_two = std::has_single_bit(head.bloom_words);
  if (chains_at > table->size || chains_at > kMaxTableBytes || head.buckets == 0 ||
      !is_power_of_two ||
      !elf.reader->holds(table->offset + sizeof head, uint64_t{head.bloom_words} * 8)) {
    return std::nullopt;
  }
  GnuHash hash;
  hash.first = head.first;
  hash.shift = head.bloom_shift;
  hash.bloom.resize(head.bloom_words);
  if (!elf.reader->read(table->offset + sizeof head, hash.bloom.data(), hash.bloom.size() * 8)) {
    return std::nullopt;
  }
  uint32_t highest = 0;
  const bool read = read_words(elf, table->offset + buckets_at, head.buckets, &hash.buckets,
                               [&](uint32_t bucket) {
                                 highest = std::max(highest, bucket);
                                 return true;
                               });
  if (!read) return std::nullopt;
  if (highest == 0) {
    // Nothing is defined, so nothing is hashed, and GNU ld writes 1 for `first`. Only the address
    // of the next table bounds the number of undefined symbols.
    hash.count = head.first;
    if (head.first <= 1 && dynamic.symbols_end != 0) {
      hash.count = (dynamic.symbols_end - dynamic.symbols) / sizeof(Elf64_Sym);
      hash.is_guess = true;  // a tool may have moved the tables apart
    }
    return hash;
  }
  if (highest < head.first) return std::nullopt;
  const uint64_t last = uint64_t{highest} - head.first;
  const uint64_t room = std::min(table->size - chains_at, kMaxTableBytes) / 4;
  if (last >= room) return std::nullopt;
  bool ended = false;
  uint64_t at = 0;
  const bool whole =
      read_words(elf, table->offset + chains_at, room, &hash.chains, [&](uint32_t chain) {
        ended = at++ >= last && (chain & 1) != 0;
        return !ended;
      });
  if (!whole || !ended) return std::nullopt;
  hash.count = uint64_t{head.first} + hash.chains.size();
  return hash;
}

// Returns whether each chain of DT_HASH ends; otherwise the loader would search it for ever.
bool ends_everywhere(const std::vector<uint32_t>& buckets, const std::vector<uint32_t>& chains) {
  std::vector<uint32_t> seen(chains.size(), 0);  // 1 + the bucket that reached it last
  for (size_t i = 0; i < buckets.size(); ++i) {
    const auto mark = static_cast<uint32_t>(i + 1);
    for (uint32_t at = buckets[i]; at != STN_UNDEF; at = chains[at]) {
      if (at >= chains.size() || seen[at] == mark) return false;
      if (seen[at] != 0) break;  // reached by another bucket's chain, which ends
      seen[at] = mark;
    }
  }
  return true;
}

bool is_bindable(const Elf64_Sym& symbol) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info), binding = ELF64_ST_BIND(symbol.st_info);
  if (symbol.st_shndx == SHN_UNDEF || binding == STB_LOCAL) return false;
  if (symbol.st_value == 0 && symbol.st_shndx != SHN_ABS && type != STT_TLS) return false;
  return type <= STT_FUNC || type == STT_COMMON || type == STT_TLS || type == STT_GNU_IFUNC;
}

// Moves each item to the position of its index; indices are 15 bits wide.
template <typename T>
std::vector<T> by_index(const std::vector<T>& items) {
  std::vector<T> table;
  for (const T& item : items) {
    if (item.index >= table.size()) table.resize(item.index + size_t{1});
    table[item.index] = item;
  }
  return table;
}

}  // namespace

// The hash of DT_GNU_HASH is Bernstein's.
uint32_t gnu_hash(std::string_view name) {
  uint32_t hash = 5381;
  for (const unsigned char c : name) hash = hash * 33 + c;
  return hash;
}

SymbolTable SymbolTable::read(const ElfFile& elf, const Dynamic& dynamic) {
  SymbolTable table;
  if (dynamic.definitions != 0) {
    table.definitions_ = by_index(read_version_definitions(elf, dynamic));
  }
  if (dynamic.symbols == 0) return table;
  const auto malformed = [&](const char* what,
                             const char* wanted =
                                 "one whose bytes are there, inside their segment") {
    if (!elf.defects->has(Code::kElfTruncated)) {
      elf.defects->add(Code::kElfMalformed, what, wanted);
    }
    return SymbolTable();
  };
  uint64_t count = 0;
  bool is_guess = false;
  table.is_gnu_ = dynamic.gnu_hash != 0;
  if (table.is_gnu_) {
    std::optional<GnuHash> hash = read_gnu_hash(elf, dynamic);
    if (!hash) return malformed("a damaged hash table");
    table.bloom_ = std::move(hash->bloom);
    table.buckets_ = std::move(hash->buckets);
    table.chains_ = std::move(hash->chains);
    table.first_hashed_ = hash->first;
    table.bloom_shift_ = hash->shift;
    count = hash->count;
    is_guess = hash->is_guess;
  } else if (dynamic.hash == 0) {
    // No lookup finds its symbols, not even one from the file itself, and their number is not
    // recorded.
    if (dynamic.symbols_end == 0) return table;
    count = (dynamic.symbols_end - dynamic.symbols) / sizeof(Elf64_Sym);
    is_guess = true;
  } else {
    const std::optional<Extent> extent = elf.rest_of_segment(dynamic.hash);
    uint32_t head[2];  // number of buckets and of chains; the latter is the number of symbols
    if (!extent || extent->size < sizeof head || !elf.reader->read(extent->offset, &head) ||
        sizeof head + (uint64_t{head[0]} + head[1]) * 4 > std::min(extent->size, kMaxTableBytes)) {
      return malformed("a damaged hash table");
    }
    const auto all = [](uint32_t) { return true; };
    const uint64_t at = extent->offset + sizeof head;
    if (!read_words(elf, at, head[0], &table.buckets_, all) ||
        !read_words(elf, at + uint64_t{head[0]} * 4, head[1], &table.chains_, all)) {
      return malformed("a damaged hash table");
    }
    count = head[1];
    if (!ends_everywhere(table.buckets_, table.chains_)) {
      return malformed("a hash table with a chain that runs in a circle or out of it",
                       "chains that end");
    }
  }
  const std::optional<Extent> extent = elf.rest_of_segment(dynamic.symbols);
  if (extent && is_guess) count = std::min(count, extent->size / sizeof(Elf64_Sym));
  if (!extent || count > std::min(extent->size, kMaxTableBytes) / sizeof(Elf64_Sym) ||
      dynamic.names.size > kMaxTableBytes ||
      !elf.reader->holds(extent->offset, count * sizeof(Elf64_Sym)) ||
      !elf.reader->holds(dynamic.names.offset, dynamic.names.size)) {
    return malformed("a damaged symbol table");
  }
  table.symbols_.resize(static_cast<size_t>(count));
  table.names_.resize(static_cast<size_t>(dynamic.names.size));
  if (!elf.reader->read(extent->offset, table.symbols_.data(),
                        table.symbols_.size() * sizeof(Elf64_Sym)) ||
      !elf.reader->read(dynamic.names.offset, table.names_.data(), table.names_.size())) {
    return SymbolTable();
  }
  const auto bad =
      std::find_if(table.symbols_.begin(), table.symbols_.end(),
                   [&](const Elf64_Sym& symbol) { return symbol.st_name >= table.names_.size(); });
  if (bad != table.symbols_.end() && !is_guess) {
    return malformed("a symbol named outside the string table");
  }
  table.symbols_.erase(bad, table.symbols_.end());
  count = table.symbols_.size();
  if (dynamic.symbol_versions != 0) {
    const std::optional<Extent> versions = elf.rest_of_segment(dynamic.symbol_versions);
    if (versions && is_guess) count = std::min(count, versions->size / 2);
    if (!versions || versions->size / 2 < count || !elf.reader->holds(versions->offset, count * 2))
      return malformed("a damaged version table");
    table.symbols_.resize(static_cast<size_t>(count));
    table.indices_.resize(static_cast<size_t>(count));
    if (!elf.reader->read(versions->offset, table.indices_.data(), table.indices_.size() * 2)) {
      return SymbolTable();
    }
    for (const SymbolVersion& need : dynamic.versions) {
      if (need.index >= table.needs_.size()) table.needs_.resize(need.index + size_t{1});
      table.needs_[need.index] = {need.name_at, need.library_at, need.hidden};
    }
    if (!is_guess && !table.has_known_indices()) {
      return malformed("a symbol of a version that the file neither has nor needs",
                       "a version that is in its tables");
    }
  }
  return table;
}

// The loader uses a version's index unchecked in an array that is as long as the greatest index
// that the file defines or needs.
bool SymbolTable::has_known_indices() const {
  const size_t count = std::max({needs_.size(), definitions_.size(), size_t{kFirstVersion}});
  for (size_t i = 1; i < symbols_.size(); ++i) {
    const bool is_local = ELF64_ST_BIND(symbols_[i].st_info) == STB_LOCAL;
    if (!is_local && (indices_[i] & kVersionIndex) >= count) return false;
  }
  return true;
}

std::vector<WantedSymbol> SymbolTable::unreachable() const {
  std::vector<WantedSymbol> found;
  for (size_t i = 1; i < symbols_.size(); ++i) {
    const Elf64_Sym& symbol = symbols_[i];
    if (is_own(symbol) || !is_bindable(symbol)) continue;
    WantedSymbol own;
    own.name = text_at(symbol.st_name);
    own.index = static_cast<uint32_t>(i);
    own.weak = ELF64_ST_BIND(symbol.st_info) == STB_WEAK;
    const uint16_t version = indices_.empty() ? 0 : indices_[i] & kVersionIndex;
    if (version < definitions_.size()) own.version = definitions_[version].name;
    if (!defines(own, gnu_hash(own.name))) found.push_back(own);
  }
  return found;
}

std::string_view SymbolTable::text_at(uint32_t offset) const {
  if (offset >= names_.size()) return {};
  const char* const text = names_.data() + offset;
  return {text, strnlen(text, std::min(names_.size() - offset, kMaxName))};
}

WantedSymbol SymbolTable::wanted(uint32_t index) const {
  const Elf64_Sym& symbol = symbols_[index];
  WantedSymbol wanted;
  wanted.name = text_at(symbol.st_name);
  wanted.index = index;
  wanted.weak = ELF64_ST_BIND(symbol.st_info) == STB_WEAK;
  wanted.is_tls = ELF64_ST_TYPE(symbol.st_info) == STT_TLS;
  if (indices_.empty()) return wanted;
  const uint16_t version = indices_[index] & kVersionIndex;
  if (version >= kFirstVersion && version < needs_.size()) {
    const Need& need = needs_[version];
    wanted.version = text_at(need.version_at);
    wanted.library = text_at(need.library_at);
    wanted.hidden = need.hidden;
  }
  return wanted;
}

std::optional<WantedSymbol> SymbolTable::wanted_at(uint32_t index) const {
  if (index >= symbols_.size() || !is_reference(symbols_[index])) return std::nullopt;
  return wanted(index);
}

SymbolTable::Match SymbolTable::match(uint32_t index, const WantedSymbol& wanted) const {
  if (index >= symbols_.size()) return Match::kNo;
  const Elf64_Sym& symbol = symbols_[index];
  if (is_own(symbol) || !is_bindable(symbol) || text_at(symbol.st_name) != wanted.name)
    return Match::kNo;
  if (indices_.empty()) return Match::kYes;
  const uint16_t version = indices_[index] & kVersionIndex;
  const bool hidden = (indices_[index] & kVersionHidden) != 0;
  if (wanted.version.empty()) {
    // The reference was linked before the library had versions: it binds to the library's first
    // version, or to the only version that exists.
    if (version <= kFirstVersion) return Match::kYes;
    return hidden ? Match::kNo : Match::kOnlyOne;
  }
  const std::string_view own = version < definitions_.size()
                                   ? std::string_view(definitions_[version].name)
                                   : std::string_view();
  if (own == wanted.version) return Match::kYes;
  return own.empty() && !hidden && !wanted.hidden ? Match::kYes : Match::kNo;
}

bool SymbolTable::search_gnu(const WantedSymbol& wanted, uint32_t hash) const {
  if (buckets_.empty()) return false;
  if (!bloom_.empty()) {
    const uint64_t word = bloom_[(hash / 64) % bloom_.size()];
    const uint64_t second = bloom_shift_ < 32 ? hash >> bloom_shift_ : 0;
    if ((word >> (hash % 64) & word >> (second % 64) & 1) == 0) return false;
  }
  const uint32_t bucket = buckets_[hash % buckets_.size()];
  if (bucket < first_hashed_) return false;
  unsigned versions = 0;
  for (uint64_t i = uint64_t{bucket} - first_hashed_; i < chains_.size(); ++i) {
    if (((chains_[i] ^ hash) >> 1) == 0) {
      const Match found = match(static_cast<uint32_t>(i + first_hashed_), wanted);
      if (found == Match::kYes) return true;
      if (found == Match::kOnlyOne) ++versions;
    }
    if ((chains_[i] & 1) != 0) break;
  }
  return versions == 1;
}

bool SymbolTable::search_sysv(const WantedSymbol& wanted) const {
  if (buckets_.empty()) return false;
  unsigned versions = 0;
  uint32_t at = buckets_[sysv_hash(wanted.name) % buckets_.size()];
  // A damaged chain may form a cycle.
  for (size_t steps = 0; at != STN_UNDEF && at < chains_.size() && steps < chains_.size();
       ++steps, at = chains_[at]) {
    const Match found = match(at, wanted);
    if (found == Match::kYes) return true;
    if (found == Match::kOnlyOne) ++versions;
  }
  return versions == 1;
}

bool SymbolTable::defines(const WantedSymbol& wanted, uint32_t hash) const {
  return is_gnu_ ? search_gnu(wanted, hash) : search_sysv(wanted);
}

bool SymbolTable::defines_version(std::string_view version) const {
  return std::any_of(definitions_.begin(), definitions_.end(),
                     [&](const VersionDefinition& own) { return own.name == version; });
}

size_t SymbolTable::bytes() const {
  return symbols_.size() * sizeof(Elf64_Sym) + names_.size() + indices_.size() * 2 +
         bloom_.size() * 8 + (buckets_.size() + chains_.size()) * 4;
}

}  // namespace opdock
