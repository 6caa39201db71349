// What nearly every file of core includes, parsed once. Each file still includes what it uses.
// SPDX-License-Identifier: Apache-2.0
// Only what is in most files: a larger header takes longer to load than it saves (JSON's: 0.5 s).
#ifndef OPDOCK_CORE_PCH_PRECOMPILED_H_  // g++ warns of #pragma once in what it precompiles
#define OPDOCK_CORE_PCH_PRECOMPILED_H_

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#endif  // OPDOCK_CORE_PCH_PRECOMPILED_H_
