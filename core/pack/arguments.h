// Turns plugin.toml's [build] into the forms that compilers and the linker take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "manifest/manifest.h"

namespace opdock::pack {

using Arguments = std::vector<std::string>;

// Returns the header that every source of the plugin begins with: its defines. The flags are in it
// too, as a comment: build systems compile a source again if a header has changed, but know nothing
// of files of arguments.
std::string needs_header(const Manifest& manifest);

// The arguments that pkg-config gives for the plugin's libraries, and -lNAME for the others.
struct LibraryArguments {
  Arguments compile, link;
  std::vector<std::filesystem::path> files;  // the .pc files that were read
};
// Asks $PKG_CONFIG, else pkg-config in PATH. Returns a reason (build-no-library) if it does not
// know a library.
std::optional<Reason> ask_libraries(const BuildNeeds& needs, LibraryArguments* out);

// Returns the arguments one per line, as gcc, clang and their linkers read them from a file named
// by "@FILE".
std::string response_file(const Arguments& arguments);

// Splits what pkg-config prints into words: quoted, or with backslashes, as for a shell.
Arguments words_of(std::string_view text);

}  // namespace opdock::pack
