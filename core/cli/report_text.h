// opdock.h's reports as text: what several subcommands print alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "runtime.h"
#include "terminal.h"

namespace opdock::cli {

std::string quoted(const std::string& text);  // "text"

void print(const std::string& text);    // on stdout, as it is
void print_json(const Report& report);  // indented, and a line's end

// The member's text, printable; `missing` if it is null.
std::string text_of(const Report& object, const char* key, const char* missing = "");

Style verdict_style(const std::string& verdict);

// A plugin's name, else its file's.
std::string name_of(const Report& plugin);
// "cpu, cuda:0 (sm_90), rocm: no-driver": what serves a device, or why nothing does.
std::string devices_text(const Report& plugin);

// "code: what it says" and the advice in a line of its own.
void print_reason(const Report& reason, size_t indent);
// all: notices too.
void print_reasons(const Report& reasons, size_t indent, bool all);

// A line each; of those that are not usable the reasons' codes instead of devices.
void print_plugin_lines(const Report& plugins);
// The rows aligned, and under each one its path, architectures and reasons; with `all` those of
// usable plugins too.
void print_plugins(const Report& plugins, bool all);

}  // namespace opdock::cli
