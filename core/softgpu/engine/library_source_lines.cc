// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "library.h"
#include "process.h"

namespace softgpu {
namespace {

// Parses "FUNCTION at /softgpu/FILE:LINE (discriminator 2)", also after "(inlined by) ".
bool parse_frame(std::string line, std::string* function, std::string* place) {
  const std::string inlined = "(inlined by) ";
  if (const size_t at = line.find(inlined); at != line.npos) line.erase(0, at + inlined.size());
  const size_t middle = line.rfind(" at ");
  if (middle == line.npos) return false;
  *function = line.substr(0, middle);
  *place = line.substr(middle + 4);
  if (const size_t end = place->find(" ("); end != place->npos) place->erase(end);
  const std::string root = "/softgpu/";
  if (const size_t at = place->find(root); at != place->npos) place->erase(0, at + root.size());
  return place->find('?') == place->npos;
}

SourceLines ask(const KernelLibrary& library, uint32_t site) {
  char address[32];
  // The site is the return address, so the call is before it.
  std::snprintf(address, sizeof(address), "0x%x", site - 1);
  SourceLines lines;
  lines.place = "address " + std::string(address) + " of " + library.path();
  std::string program = find_program("addr2line"), output;
  const char* const flags = program.empty() ? "-Cfip" : "-Cfipe";
  if (program.empty()) program = find_program("llvm-symbolizer");
  if (program.empty()) {
    lines.place += " (its source line needs addr2line or llvm-symbolizer in PATH)";
    return lines;
  }
  std::vector<std::string> words = {program, flags};
  if (std::string(flags) == "-Cfip") words.push_back("-e");
  words.push_back(library.path());
  words.push_back(address);
  run_program(words, &output);
  std::istringstream text(output);
  std::string inner;  // the place in the vocabulary
  bool first = true;
  for (std::string line; std::getline(text, line);) {
    std::string function, place;
    if (!parse_frame(line, &function, &place)) continue;
    if (place.rfind("softgpu/", 0) == 0 || place.rfind("opdock/target_soft.cuh", 0) == 0) continue;
    if (place.rfind("opdock/", 0) == 0 && first) {
      if (inner.empty()) inner = place;
      continue;
    }
    if (first) lines.place = place + (inner.empty() ? "" : " (" + inner + ")");
    lines.callers.push_back((first ? "" : place + " ") + "in " + function);
    first = false;
  }
  if (first && !inner.empty()) lines.place = inner;
  return lines;
}

}  // namespace

SourceLines source_lines(const KernelLibrary& library, uint32_t site) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::pair<std::string, uint32_t>, SourceLines>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto key = std::make_pair(library.path(), site);
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  return (*known)[key] = ask(library, site);
}

}  // namespace softgpu
