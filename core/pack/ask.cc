// SPDX-License-Identifier: Apache-2.0
#include "pack/ask.h"

#include <cstdio>

namespace opdock::pack {
namespace {

// Puts the text in single quotes for a POSIX shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

Answer output_of(const std::vector<std::string>& words) {
  std::string command;
  for (const std::string& word : words) command += quoted(word) + " ";
  Answer answer;
  FILE* pipe = popen((command + "2>&1").c_str(), "re");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  constexpr size_t kLongest = 1 << 20;
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    if (answer.text.size() < kLongest) answer.text.append(buffer, count);
  answer.ok = pclose(pipe) == 0;
  return answer;
}

}  // namespace opdock::pack
