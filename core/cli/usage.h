// Defines the error for an invalid command line, and the exit statuses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock::cli {

// Exit statuses of every subcommand; docs/reference/command.md and the manual have them as a table.
constexpr int kGood = 0;
constexpr int kExitUnusable = 1;   // the subject of the command cannot be used
constexpr int kBadUsage = 2;       // the command line, a variable or a setting is invalid
constexpr int kInterrupted = 130;  // Ctrl-C, as in shells

// Thrown if the command line is invalid, for kBadUsage. `found` and `wanted` are a reason's.
struct Usage {
  std::string found;
  std::string wanted;
  std::string advice;   // in addition to naming the command's help; may be empty
  std::string where;    // "--jobs", "argument x"; empty: the command line as a whole
  std::string command;  // "cache gc"; filled in by main()
};

}  // namespace opdock::cli
