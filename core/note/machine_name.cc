// SPDX-License-Identifier: Apache-2.0
#include "note/machine_name.h"

namespace opdock {
namespace {

// Machine numbers and names, from the System V ABI's list of machines, as in <elf.h>.
constexpr struct {
  uint16_t machine;
  const char *name_64, *name_32;  // the little-endian names, if the machine has both byte orders
} kMachines[] = {
    {2, "sparc", "sparc"},
    {3, "i386", "i386"},
    {4, "m68k", "m68k"},
    {8, "mips64el", "mipsel"},
    {15, "parisc", "parisc"},
    {18, "sparc", "sparc"},
    {20, "ppc", "ppcle"},
    {21, "ppc64le", "ppc64le"},
    {22, "s390x", "s390"},
    {40, "arm", "arm"},
    {42, "sh", "sh"},
    {43, "sparc64", "sparc64"},
    {50, "ia64", "ia64"},
    {62, "x86-64", "x86-64 (x32)"},
    {93, "arc", "arc"},
    {94, "xtensa", "xtensa"},
    {164, "hexagon", "hexagon"},
    {183, "aarch64", "aarch64 (ILP32)"},
    {190, "CUDA", "CUDA"},
    {195, "arc", "arc"},
    {224, "AMD GPU", "AMD GPU"},
    {243, "riscv64", "riscv32"},
    {247, "BPF", "BPF"},
    {251, "NEC VE", "NEC VE"},
    {252, "csky", "csky"},
    {258, "loongarch64", "loongarch32"},
    {0x9026, "alpha", "alpha"},
};

// Machines whose name tells the byte order, and which have big-endian files too.
constexpr struct {
  uint16_t machine;
  const char *name_64, *name_32;
} kBigEndian[] = {{8, "mips64", "mips"}, {20, "ppc", "ppc"}, {21, "ppc64", "ppc64"}};

}  // namespace

std::string machine_name(uint16_t machine, bool is_64_bit, bool is_big_endian) {
  if (is_big_endian) {
    for (const auto& entry : kBigEndian) {
      if (entry.machine == machine) return is_64_bit ? entry.name_64 : entry.name_32;
    }
  }
  for (const auto& entry : kMachines) {
    if (entry.machine == machine) return is_64_bit ? entry.name_64 : entry.name_32;
  }
  return "ELF machine " + std::to_string(machine);
}

}  // namespace opdock
