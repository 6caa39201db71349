// A linked shared object that looks like a plugin, for the truncation test: code, data,
// relocations, constructors, more than 64 KiB. Nothing calls it.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <string>

namespace {
const char* const kTexts[] = {"relocated", "texts", "for", "the", "dynamic", "section"};
[[maybe_unused]] int table[24576] = {1, 2, 3};                     // 96 KiB of data in the file
std::map<std::string, double> numbers = {{"a", 1.0}, {"b", 2.0}};  // needs a constructor
}  // namespace

extern "C" __attribute__((visibility("default"))) const void* opdock_plugin_v0() {
  numbers[kTexts[table[0] % 6]] += std::cos(numbers.size());
  return &table[table[1]];
}
