// Finding libraries the way the dynamic loader does, without loading any.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "note/elf_dynamic.h"

namespace opdock {

#if defined(__x86_64__)
inline constexpr uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr uint16_t kThisMachine = EM_AARCH64;
#else
#error "Opdock runs on x86-64 and aarch64"
#endif

// What a library's place depends on, of the file that needs it.
struct Needer {
  std::string folder;  // for $ORIGIN
  std::string rpath, runpath;
  uint16_t machine = 0;
  const Needer* parent = nullptr;  // who needs this file: RPATHs are inherited
};

// The path of `name` (a NEEDED entry), or nullopt. Order: RPATHs, LD_LIBRARY_PATH, RUNPATH,
// /etc/ld.so.cache, the default folders; at last what this process has loaded under that name.
// Thread-safe; libraries found outside RPATH and RUNPATH are remembered.
std::optional<std::string> find_library(const std::string& name, const Needer& needer);

std::string folder_of(const std::string& path);

}  // namespace opdock
