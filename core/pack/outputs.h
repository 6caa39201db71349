// What opdock-pack reads first and writes last: the declaration, files, errors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "manifest/manifest.h"

namespace opdock::pack {

// nullopt: with mistakes, which go to standard error, a line each as compilers write them,
// "file:line:column: error: …", for editors.
std::optional<Manifest> read_declaration(const std::string& toml);

// To standard error. Returns the exit status for them.
int report(const std::vector<std::string>& errors);
int report(const Reason& reason);  // in a line that the builder reads as a reason again

// Leaves an unchanged file alone, so that nothing that depends on it is made again. False if it
// cannot be written, after reporting why.
bool write_file(const std::filesystem::path& path, const std::string& bytes);

// For make and ninja: what `target` was made from. depfile: empty: none is wanted.
bool write_depfile(const std::string& depfile, const std::filesystem::path& target,
                   const std::vector<std::filesystem::path>& depends);

}  // namespace opdock::pack
