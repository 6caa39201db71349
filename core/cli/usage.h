// What is wrong with a command line, and the exit statuses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock::cli {

// Exit statuses of every subcommand; docs/command.md and the manual have them as a table.
constexpr int kGood = 0;
constexpr int kUnfit = 1;          // what was asked about cannot be used
constexpr int kBadUsage = 2;       // the command line, a variable or a setting is invalid
constexpr int kInterrupted = 130;  // Ctrl-C, as shells have it

// Thrown where the command line is invalid: kBadUsage. `found` and `wanted` are a reason's.
struct Usage {
  std::string found;
  std::string wanted;
  std::string advice;   // one more than the command's help; may be empty
  std::string where;    // "--jobs", "argument x"; empty: the command line as a whole
  std::string command;  // "cache gc"; filled in by main()
};

}  // namespace opdock::cli
