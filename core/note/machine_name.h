// What people call the processors that ELF files are made for.
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

// "x86-64" of an ELF header's e_machine; of a 32-bit or big-endian file its own name where it has
// one: "riscv32", "ppc64". "ELF machine 999" for a number without a name here.
std::string machine_name(uint16_t machine, bool is_64_bit = true, bool is_big_endian = false);

}  // namespace opdock
