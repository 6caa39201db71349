// Finds the CPU's level and features. Sources: "x86-64 psABI", micro-architecture levels; Intel's
// and AMD's manuals for CPUID.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <sys/utsname.h>

#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "facts/probes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace opdock {
namespace {

#if defined(__x86_64__)

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf) {
  Registers r;
  if (static_cast<uint32_t>(__get_cpuid_max(leaf & 0x80000000u, nullptr)) < leaf) return {};
  __cpuid_count(leaf, 0, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

bool bit(uint32_t word, int index) {
  return (word >> index & 1) != 0;
}

// Returns the register states that the operating system saves; readable only if it has set OSXSAVE.
uint64_t saved_states(bool osxsave) {
  if (!osxsave) return 0;
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Returns the processor's own name: three times 16 bytes, with spaces trimmed on both sides.
std::string probe_model() {
  if (cpuid(0x80000000u).eax < 0x80000004u) return {};
  char text[3 * sizeof(Registers) + 1] = "";
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers part = cpuid(0x80000002u + i);
    std::memcpy(text + i * sizeof part, &part, sizeof part);
  }
  const std::string_view whole(text);
  const size_t begin = whole.find_first_not_of(' ');
  if (begin == whole.npos) return {};
  return std::string(whole.substr(begin, whole.find_last_not_of(' ') + 1 - begin));
}

void probe_level(MachineFacts* facts) {
  const Registers one = cpuid(1), seven = cpuid(7), extended = cpuid(0x80000001u);
  const bool osxsave = bit(one.ecx, 27);
  const uint64_t states = saved_states(osxsave);
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xe6) == 0xe6;

  const bool sse3 = bit(one.ecx, 0), ssse3 = bit(one.ecx, 9), sse41 = bit(one.ecx, 19);
  const bool sse42 = bit(one.ecx, 20), popcnt = bit(one.ecx, 23), cx16 = bit(one.ecx, 13);
  const bool lahf = bit(extended.ecx, 0), lzcnt = bit(extended.ecx, 5);
  const bool avx = ymm && bit(one.ecx, 28), f16c = ymm && bit(one.ecx, 29);
  const bool fma = ymm && bit(one.ecx, 12), avx2 = ymm && bit(seven.ebx, 5);
  const bool movbe = bit(one.ecx, 22), bmi1 = bit(seven.ebx, 3), bmi2 = bit(seven.ebx, 8);
  const bool avx512f = zmm && bit(seven.ebx, 16), avx512dq = zmm && bit(seven.ebx, 17);
  const bool avx512cd = zmm && bit(seven.ebx, 28), avx512bw = zmm && bit(seven.ebx, 30);
  const bool avx512vl = zmm && bit(seven.ebx, 31);

  facts->cpu_level = 1;
  if (cx16 && lahf && popcnt && sse3 && ssse3 && sse41 && sse42) facts->cpu_level = 2;
  if (facts->cpu_level == 2 && avx && avx2 && bmi1 && bmi2 && f16c && fma && lzcnt && movbe) {
    facts->cpu_level = 3;
  }
  if (facts->cpu_level == 3 && avx512f && avx512bw && avx512cd && avx512dq && avx512vl) {
    facts->cpu_level = 4;
  }
  const auto add = [&](bool present, const char* name) {
    if (present) facts->cpu_features.emplace_back(name);
  };
  add(sse42, "sse4.2");
  add(avx, "avx");
  add(avx2, "avx2");
  add(fma, "fma");
  add(f16c, "f16c");
  add(avx512f, "avx512f");
  add(avx512bw && avx512vl, "avx512bw");
  add(zmm && bit(seven.ecx, 11), "avx512-vnni");
  add(zmm && bit(seven.edx, 23), "avx512-fp16");
  add((states & 0x60000) == 0x60000 && bit(seven.edx, 24), "amx-tile");
}

#elif defined(__aarch64__)

// Returns the main identification register, "midr 0x00000000413fd0c1": these processors have no
// name.
std::string probe_model() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  std::string number;
  return file >> number ? "midr " + number : std::string();
}

// Bits of AT_HWCAP and AT_HWCAP2 by Linux's numbers ("ARM64 ELF hwcaps"), because older headers may
// lack their names.
void probe_level(MachineFacts* facts) {
  const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
  const auto add = [&](unsigned long word, int bit, const char* name) {
    if ((word >> bit & 1) != 0) facts->cpu_features.emplace_back(name);
  };
  add(hwcap, 1, "neon");
  add(hwcap, 8, "atomics");
  add(hwcap, 10, "fp16");
  add(hwcap, 20, "dotprod");
  add(hwcap, 22, "sve");
  add(hwcap2, 1, "sve2");
  add(hwcap2, 13, "i8mm");
  add(hwcap2, 14, "bf16");
}

#else

std::string probe_model() {
  return {};
}

void probe_level(MachineFacts*) {}

#endif

}  // namespace

void probe_cpu(MachineFacts* facts) {
  utsname name{};
  if (uname(&name) == 0) facts->cpu_arch = name.machine;
#if defined(__x86_64__)
  facts->elf_machine = EM_X86_64;
  facts->cpu_arch = "x86_64";  // uname may report the kernel's personality
#elif defined(__aarch64__)
  facts->elf_machine = EM_AARCH64;
  facts->cpu_arch = "aarch64";
#endif
  facts->cpu_model = probe_model();
  probe_level(facts);
}

}  // namespace opdock
