// The dynamic symbols.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "note/elf_dynamic.h"

namespace opdock {

// Calls visit(symbol, name) for each dynamic symbol but the first, which is empty by definition.
// The name is valid during the call. Without a hash table, or with a damaged one, nothing is
// visited; what is wrong becomes a defect.
void for_each_symbol(const ElfFile& elf, const Dynamic& dynamic,
                     const std::function<void(const Elf64_Sym&, std::string_view)>& visit);

}  // namespace opdock
