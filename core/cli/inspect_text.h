// opdock_survey_json's report as text and as a page.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime.h"

namespace opdock::cli {

// The file's report in full, as opdock_inspect_json has it.
void print_file(const Report& report);
// A table of the packages, and under each that is not usable the first cause; a line of counts.
void print_survey(const Report& report);

// What opdock_inspect_diff_json found.
void print_diff(const Report& report);

// "sm_90 (cuda:0, cuda:1)": a GPU of the machine, for a column's head; a described one has no
// number.
std::string gpu_title(const Report& gpu);
// "native sm_90", "PTX (JIT)", "none", "unsure", "-": how a package fares on a GPU.
std::string gpu_text(const Report& cell);
// "sm_100, CUDA 12.8 (driver 570), x86_64, GLIBC 2.28": what was judged for.
std::string machine_text(const Report& machine);
// "3 of 5 packages usable, 1 undecided, 1 rejected; …"
std::string counts_text(const Report& report);

// The line by which check_page() knows that a file is a page of `inspect --html`.
inline constexpr const char* kPageTitle = "<title>opdock inspect</title>";
// The whole page, with nothing in it that is loaded from elsewhere.
std::string survey_page(const Report& report);
// Writes the page; a reader of `path` finds the old one or the new one, whole. Throws
// std::runtime_error.
void write_page(const std::string& path, const std::string& page);

}  // namespace opdock::cli
