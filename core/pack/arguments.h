// plugin.toml's [build] in the forms that compilers and the linker take.
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

// The header that every source of the plugin begins with: its defines. The flags stand in it too,
// as a comment: build systems compile a source again if a header has changed, but know nothing of
// files of arguments.
std::string needs_header(const Manifest& manifest);

// What pkg-config says of the plugin's libraries, and -lNAME for the others.
struct LibraryArguments {
  Arguments compile, link;
  std::vector<std::filesystem::path> files;  // that it was read from
};
// Asks $PKG_CONFIG, else pkg-config in PATH. A reason (build-no-library) if it does not know one.
std::optional<Reason> ask_libraries(const BuildNeeds& needs, LibraryArguments* out);

// One after the other, as gcc, clang and their linkers read it from a file named by "@FILE".
std::string response_file(const Arguments& arguments);

// The words of what pkg-config prints: quoted, or with backslashes, as for a shell.
Arguments words_of(std::string_view text);

}  // namespace opdock::pack
