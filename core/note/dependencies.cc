// SPDX-License-Identifier: Apache-2.0
#include "note/dependencies.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "note/elf_symbols.h"
#include "note/libraries.h"

namespace opdock {
namespace {

Needer needer_of(const FileFacts& facts) {
  return {folder_of(facts.path), facts.rpath, facts.runpath, facts.machine, nullptr};
}

// The dynamic section and the defined symbols of a library; defects of it are not our file's.
std::optional<Dynamic> read_library(const std::string& path,
                                    std::unordered_set<std::string>* defined) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  struct stat status{};
  std::optional<Dynamic> dynamic;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    FileReader reader(fd, static_cast<uint64_t>(status.st_size));
    std::vector<Reason> ignored;
    Defects defects(&ignored);
    ElfFile elf{&reader, &defects, {}, {}};
    bool is_elf = false;
    if (read_headers(&elf, &is_elf)) dynamic = read_dynamic(elf);
    if (dynamic) {
      for_each_symbol(elf, *dynamic, [&](const Elf64_Sym& symbol, std::string_view name) {
        if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL) {
          defined->emplace(name);
        }
      });
    }
  }
  ::close(fd);
  return dynamic;
}

}  // namespace

void find_missing_libraries(FileFacts* facts) {
  if (facts->machine != kThisMachine) return;
  const Needer needer = needer_of(*facts);
  for (const std::string& name : facts->needed) {
    if (!find_library(name, needer)) facts->missing_libraries.push_back(name);
  }
}

void resolve_symbols(const std::vector<std::string>& wanted, FileFacts* facts) {
  if (facts->machine != kThisMachine) return;
  constexpr size_t kMostLibraries = 4096;
  std::unordered_set<std::string> seen, defined;
  std::deque<Needer> needers;  // a deque: parents keep their addresses
  needers.push_back(needer_of(*facts));
  std::vector<std::pair<std::string, const Needer*>> needs;
  for (const std::string& name : facts->needed) needs.push_back({name, &needers.front()});
  for (size_t i = 0; i < needs.size() && i < kMostLibraries; ++i) {
    const auto [name, needer] = needs[i];
    if (!seen.insert(name).second) continue;
    const std::optional<std::string> path = find_library(name, *needer);
    std::vector<std::string>& missing = facts->missing_libraries;
    if (!path) {
      if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(name);
      continue;
    }
    const std::optional<Dynamic> dynamic = read_library(*path, &defined);
    if (!dynamic) continue;
    needers.push_back({folder_of(*path), dynamic->rpath, dynamic->runpath, facts->machine, needer});
    for (const std::string& next : dynamic->needed) needs.push_back({next, &needers.back()});
  }
  for (const std::string& name : wanted) {
    if (defined.count(name) == 0) facts->unresolved.push_back(name);
  }
}

}  // namespace opdock
