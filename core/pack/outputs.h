// Reads opdock-pack's declaration, and writes its files and errors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "manifest/manifest.h"

namespace opdock::pack {

// Reads plugin.toml. Returns nullopt if it has mistakes, which go to standard error, one per line
// as compilers write them, "file:line:column: error: …", for editors.
std::optional<Manifest> read_declaration(const std::string& toml);

// Report to standard error. Return the exit status.
int report(const std::vector<std::string>& errors);
int report(const Reason& reason);  // as a line that the builder can parse back into a reason

// Writes a file, but leaves an unchanged one alone, so that nothing that depends on it is made
// again. Returns false, after reporting why, if it cannot be written.
bool write_file(const std::filesystem::path& path, const std::string& bytes);

// Writes, for make and ninja, what `target` was made from. An empty `depfile` writes nothing.
bool write_depfile(const std::string& depfile, const std::filesystem::path& target,
                   const std::vector<std::filesystem::path>& depends);

}  // namespace opdock::pack
