// Names the processors that ELF files are made for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstdint>
#include <string>

namespace opdock {

#if defined(__x86_64__)
inline constexpr uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr uint16_t kThisMachine = EM_AARCH64;
#else
#error "Opdock runs on x86-64 and aarch64"
#endif

// Returns the name for an ELF header's e_machine, such as "x86-64". For a 32-bit or big-endian
// file, returns that variant's own name if it has one: "riscv32", "ppc64". Returns "ELF machine
// 999" for a number that is not in this table.
std::string machine_name(uint16_t machine, bool is_64_bit = true, bool is_big_endian = false);

}  // namespace opdock
