// Shows opdock_survey_json's report as text and as a page.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime.h"

namespace opdock::cli {

// Prints a file's report in full, as opdock_inspect_json returns it.
void print_file(const Report& report);
// Prints a table of the packages, the first cause under each that is not usable, and a line of
// counts.
void print_survey(const Report& report);

// Prints what opdock_inspect_diff_json found.
void print_diff(const Report& report);

// Returns "sm_90 (cuda:0, cuda:1)" for a GPU of the machine, as a column's head; a described GPU
// has no number.
std::string gpu_title(const Report& gpu);
// Returns how a package fares on a GPU: "native sm_90", "PTX (JIT)", "none", "unsure", "-".
std::string gpu_text(const Report& cell);
// Returns the machine that was judged for: "sm_100, CUDA 12.8 (driver 570), x86_64, GLIBC 2.28".
std::string machine_text(const Report& machine);
// Returns "3 of 5 packages usable, 1 undecided, 1 rejected; …".
std::string counts_text(const Report& report);

// The line by which check_page() recognises a page of `inspect --html`.
inline constexpr const char* kPageTitle = "<title>opdock inspect</title>";
// Returns the whole page, which loads nothing from elsewhere.
std::string survey_page(const Report& report);
// Writes the page. A reader of `path` finds either the old page or the new one, whole. Throws
// std::runtime_error.
void write_page(const std::string& path, const std::string& page);

}  // namespace opdock::cli
