// Declares the subcommands and their options, for CLI11.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "CLI/CLI.hpp"
#include "command_line.h"

namespace opdock::cli {

// Declares everything. Options write into `args`, which lives as long as `app`. An invalid value is
// thrown as Usage while CLI11 parses. An option's type name is what help, completion and manual
// show for its value: "cpu|device" offers the words, FILE, FOLDER and PATH offer files.
void declare_subcommands(CLI::App* app, Arguments* args);

}  // namespace opdock::cli
