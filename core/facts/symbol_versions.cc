// The newest symbol versions of the run-time libraries in this process, from their DT_VERDEF.
// SPDX-License-Identifier: Apache-2.0
#include <gnu/libc-version.h>
#include <link.h>

#include <string_view>

#include "facts/probes.h"

namespace opdock {
namespace {

bool is_runtime_library(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libstdc++.so.") || name.starts_with("libgcc_s.so.") ||
         name.starts_with("libc.so.");
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

int visit(dl_phdr_info* library, size_t, void* context) {
  if (!library->dlpi_name || !is_runtime_library(library->dlpi_name)) return 0;
  auto* newest = static_cast<std::map<std::string, Version>*>(context);
  const Tables tables = find_tables(*library);
  if (!tables.definitions || !tables.strings) return 0;
  const auto* at = reinterpret_cast<const char*>(tables.definitions);
  for (size_t i = 0; i < tables.count; ++i) {
    const auto* definition = reinterpret_cast<const ElfW(Verdef)*>(at);
    const auto* name = reinterpret_cast<const ElfW(Verdaux)*>(at + definition->vd_aux);
    if ((definition->vd_flags & VER_FLG_BASE) == 0) {
      remember(tables.strings + name->vda_name, newest);
    }
    if (definition->vd_next == 0) break;
    at += definition->vd_next;
  }
  return 0;
}

}  // namespace

void probe_symbol_versions(MachineFacts* facts) {
  dl_iterate_phdr(visit, &facts->symbol_versions);
  // The C library says its own version, also where it is linked under another name.
  if (const std::optional<Version> version = Version::parse(gnu_get_libc_version())) {
    facts->symbol_versions["GLIBC"] = *version;
  }
}

}  // namespace opdock
