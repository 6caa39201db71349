// /etc/ld.so.cache: where ldconfig says the system's libraries are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace opdock {

// Library name to paths, the preferred first; entries for other architectures than `machine`
// (EM_…) are left out. Damaged or missing: empty.
using LoaderCache = std::unordered_map<std::string, std::vector<std::string>>;
LoaderCache parse_loader_cache(std::span<const uint8_t> bytes, uint16_t machine);

}  // namespace opdock
