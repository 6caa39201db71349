// The newest symbol versions of the run-time libraries that a plugin will be bound to, from their
// DT_VERDEF: those in this process, or else those that the loader would bring in with the plugin.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string_view>

#include "base/loaded_objects.h"
#include "facts/probes.h"
#include "link/search.h"
#include "note/elf_dynamic.h"

namespace opdock {
namespace {

struct Found {
  std::map<std::string, Version>* newest;
  std::set<std::string_view> libraries;  // of kLibraries, those in this process
};

// By the beginnings of their files' names, which may go on: libstdc++.so.6.0.30.
constexpr std::string_view kLibraries[] = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"};

// Which of kLibraries a path is; empty if none.
std::string_view runtime_library(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (std::string_view library : kLibraries) {
    if (name.starts_with(library)) return library;
  }
  return {};
}

// "GLIBCXX_3.4.30": its prefix's newest version so far.
void remember(std::string_view name, std::map<std::string, Version>* newest) {
  const size_t underscore = name.rfind('_');
  if (underscore == name.npos) return;
  const std::optional<Version> version = Version::parse(name.substr(underscore + 1));
  if (!version) return;  // GLIBC_PRIVATE, CXXABI_FLOAT128
  Version& known = (*newest)[std::string(name.substr(0, underscore))];
  if (known < *version) known = *version;
}

struct Tables {
  const ElfW(Verdef) * definitions = nullptr;
  size_t count = 0;
  const char* strings = nullptr;
};

// The loader has relocated some of these addresses in place and left others as offsets, depending
// on its version; an offset is below the load address.
template <typename T>
const T* address(ElfW(Addr) base, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

Tables find_tables(const dl_phdr_info& library) {
  Tables tables;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    if (library.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(library.dlpi_addr + library.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_ptr;
      if (entry->d_tag == DT_VERDEF) {
        tables.definitions = address<ElfW(Verdef)>(library.dlpi_addr, value);
      } else if (entry->d_tag == DT_VERDEFNUM) {
        tables.count = entry->d_un.d_val;
      } else if (entry->d_tag == DT_STRTAB) {
        tables.strings = address<char>(library.dlpi_addr, value);
      }
    }
  }
  return tables;
}

int visit_runtime(dl_phdr_info* library, size_t, void* context) {
  const std::string_view name = library->dlpi_name ? runtime_library(library->dlpi_name) : "";
  if (name.empty()) return 0;
  auto* const found = static_cast<Found*>(context);
  const Tables tables = find_tables(*library);
  if (!tables.definitions || !tables.strings) return 0;
  found->libraries.insert(name);
  const auto* at = reinterpret_cast<const char*>(tables.definitions);
  for (size_t i = 0; i < tables.count; ++i) {
    const auto* definition = reinterpret_cast<const ElfW(Verdef)*>(at);
    const auto* own = reinterpret_cast<const ElfW(Verdaux)*>(at + definition->vd_aux);
    if ((definition->vd_flags & VER_FLG_BASE) == 0) {
      remember(tables.strings + own->vda_name, found->newest);
    }
    if (definition->vd_next == 0) break;
    at += definition->vd_next;
  }
  return 0;
}

// The versions that the file at `path` defines; nothing if it cannot be read.
void read_file(const std::string& path, std::map<std::string, Version>* newest) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  struct stat status{};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    FileReader reader(fd, static_cast<uint64_t>(status.st_size));
    std::vector<Reason> ignored;  // the loader will say what is wrong with it
    Defects defects(&ignored);
    ElfFile elf{&reader, &defects, {}, {}};
    bool is_elf = false;
    std::optional<Dynamic> dynamic;
    if (read_headers(&elf, &is_elf)) dynamic = read_dynamic(elf);
    if (dynamic) {
      for (const VersionDefinition& version : read_version_definitions(elf, *dynamic)) {
        remember(version.name, newest);
      }
    }
  }
  ::close(fd);
}

}  // namespace

void probe_symbol_versions(MachineFacts* facts) {
  Found found{&facts->symbol_versions, {}};
  visit_loaded_objects(visit_runtime, &found);
  // A program may have a library linked into itself, or do without it: a plugin then brings the one
  // that the loader finds.
  for (std::string_view library : kLibraries) {
    if (found.libraries.contains(library)) continue;
    const std::optional<std::string> path = find_library(std::string(library));
    if (path) read_file(*path, &facts->symbol_versions);
  }
  // The C library says its own version, also where it is linked under another name.
  if (const std::optional<Version> version = Version::parse(gnu_get_libc_version())) {
    facts->symbol_versions["GLIBC"] = *version;
  }
}

}  // namespace opdock
