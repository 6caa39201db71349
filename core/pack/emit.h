// Generates the descriptor in C and the note in assembly.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "manifest/manifest.h"
#include "note/note.h"

namespace opdock::pack {

// Returns the text as a literal for C, C++ and GNU as.
std::string literal(std::string_view text);

// Returns C11 source of the descriptor and the entry function. It refers to what the plugin
// defines: opdock_<op>_plan, opdock_<op>_run, and if present opdock_<op>_prepare and opdock_init.
std::string entry_source(const Manifest& manifest);

// Returns assembly for GNU as and clang: the note, and the image table included from `images_file`,
// which the assembler finds by -I; "" if there are no images. The size of the JSON
// (`note.head.json_size`) is filled in here.
std::string note_source(const Note& note, const std::string& images_file);

}  // namespace opdock::pack
