// SPDX-License-Identifier: Apache-2.0
#include "link/library_pool.h"

#include <cstring>
#include <vector>

#include "link/search.h"

namespace opdock {
namespace {

// Limit for the symbol tables in memory. Beyond it the pool drops all libraries; those in use stay
// alive.
constexpr size_t kMaxPoolBytes = 48 << 20;

// Limit for the bytes of a dependency's relocations that are checked; a few hundred kilobytes are
// usual.
constexpr uint64_t kMaxRelocations = 4 << 20;

Library read(const OpenFile& file, const std::string& path) {
  FileReader reader(file.fd.get(), file.size);
  std::vector<Reason> reasons;
  Defects defects(&reasons);
  ElfFile elf{&reader, &defects, {}, {}};
  bool is_elf = false;
  Library library;
  std::optional<Dynamic> dynamic;
  unsigned char identity[EI_NIDENT] = {};
  const bool has_identity =
      reader.read(0, identity, sizeof identity) && std::memcmp(identity, ELFMAG, SELFMAG) == 0;
  if (read_headers(&elf, &is_elf)) dynamic = read_dynamic(elf);
  if (dynamic) library = read_library(elf, *std::move(dynamic), path);
  uint64_t relocations = 0;
  for (const auto& [address, size] : library.dynamic.relocations) relocations += size;
  if (relocations <= kMaxRelocations) check_relocations(elf, library.dynamic);
  library.path = path;
  // While it searches, the loader skips files of 32 bits and little-endian files of another
  // machine. It refuses any other unsuitable file, which is therefore treated as one of this
  // machine.
  library.is_elf = has_identity;
  library.is_other_class = has_identity && identity[EI_CLASS] != ELFCLASS64;
  const bool has_machine =
      has_identity && identity[EI_DATA] == ELFDATA2LSB && elf.header.e_machine != 0;
  library.machine = has_machine ? elf.header.e_machine : kThisMachine;
  for (Reason& reason : reasons) {
    if (info(reason.code).severity != Severity::kReject) continue;
    library.refusal = std::move(reason);
    break;
  }
  return library;
}

}  // namespace

LibraryPool& LibraryPool::shared() {
  static LibraryPool& pool = *new LibraryPool;  // never destroyed: threads may still use it
  return pool;
}

std::shared_ptr<const Library> LibraryPool::get(const std::string& path, const Files& files) {
  const std::optional<FileIdentity> identity = files.identify(path);
  if (!identity) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = libraries_.find(*identity); known != libraries_.end()) {
      if (auto library = known->second.remembered.lock()) return library;
    }
  }
  const std::optional<OpenFile> file = files.open(path);
  if (!file) return nullptr;
  auto library = std::make_shared<const Library>(read(*file, path));
  put(file->identity, library);
  return library;
}

void LibraryPool::put(const FileIdentity& identity, std::shared_ptr<const Library> library) {
  std::vector<std::shared_ptr<const Library>> dropped;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  if (bytes_ > kMaxPoolBytes) {
    for (auto& [id, known] : libraries_) dropped.push_back(std::move(known.kept));
    std::erase_if(libraries_, [](const auto& entry) { return entry.second.remembered.expired(); });
    bytes_ = 0;
  }
  bytes_ += library->symbols.bytes();
  libraries_[identity] = {library, library};
}

}  // namespace opdock
