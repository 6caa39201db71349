// SPDX-License-Identifier: Apache-2.0
#include "base/forked.h"

#include <cstdio>
#include <fstream>
#include <string>

namespace opdock {

bool began_as_fork() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the process name may hold spaces and parentheses
  unsigned long flags = 0;
  char state = 0;
  int parent, group, session, terminal, foreground;
  if (name_end == std::string::npos ||
      sscanf(text.c_str() + name_end + 1, " %c %d %d %d %d %d %lu", &state, &parent, &group,
             &session, &terminal, &foreground, &flags) != 7)
    return true;
  return (flags & 0x40) != 0;
}

}  // namespace opdock
