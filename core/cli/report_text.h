// Prints opdock.h's reports as text: what several subcommands have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "runtime.h"
#include "terminal.h"

namespace opdock::cli {

std::string quoted(const std::string& text);  // "text"

void print(const std::string& text);    // on stdout, unchanged
void print_json(const Report& report);  // indented, with a newline at the end

// Returns the member's text, printable; `missing` if it is null.
std::string text_of(const Report& object, const char* key, const char* missing = "");

Style verdict_style(const std::string& verdict);

// Returns a plugin's name, else its file's.
std::string name_of(const Report& plugin);
// Returns what serves each device, or why nothing does: "cpu, cuda:0 (sm_90), rocm: no-driver".
std::string devices_text(const Report& plugin);

// Prints "code: what it says", and the advice in a line of its own.
void print_reason(const Report& reason, size_t indent);
// Prints the reasons; all: notices too.
void print_reasons(const Report& reasons, size_t indent, bool all);

// Prints a line for each plugin; those that are not usable have the reasons' codes in place of
// devices.
void print_plugin_lines(const Report& plugins);
// Prints the rows aligned, and under each one its path, architectures and reasons; with `all` those
// of usable plugins too.
void print_plugins(const Report& plugins, bool all);

}  // namespace opdock::cli
