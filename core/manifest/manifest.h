// plugin.toml: the one declaration of a plugin, read and checked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "note/note.h"

namespace opdock {

struct OpDecl {
  std::string schema;  // as the file has it; canonical after check_ops()
  std::string name;    // the schema's
  std::string doc;
  std::vector<std::string> shape;    // one rule per fresh output
  std::vector<std::string> devices;  // "cpu", "cuda", "rocm"
  std::vector<std::string> dtypes;   // "float32", …
  std::vector<std::string> flags;    // "thread-safe", …
  std::string device_arg;            // empty: the first Tensor parameter
  std::string backward;              // empty: none
  uint32_t flag_bits = 0;            // OPDOCK_OP_…
  uint32_t device_arg_index = 0;
  uint32_t line = 0;  // of [[op]]
  uint32_t schema_line = 0;
  uint32_t shape_line = 0;
  uint32_t device_arg_line = 0;
};

struct DeviceDecl {
  std::vector<std::string> sources;  // relative to plugin.toml's folder, in order of inclusion
  std::vector<std::string> kernels;  // NVRTC name expressions = the names host->kernel() takes
};

struct Manifest {
  std::filesystem::path path;
  std::string text;  // the file's bytes
  std::string name;
  std::string version;
  std::string license;
  std::vector<std::string> sources;  // of the host part, headers too: they go into the build hash
  std::string reference;             // empty: none
  std::vector<OpDecl> ops;
  std::optional<DeviceDecl> device;
  std::vector<LibraryClaim> libraries;

  std::filesystem::path folder() const { return path.parent_path(); }
};

// Reads `path`. Every problem becomes one line "file:line: where: found …, wanted …"; returns
// nullopt if there was any. Does not look into schemas and shape rules: check_ops does.
std::optional<Manifest> read_manifest(const std::filesystem::path& path,
                                      std::vector<std::string>* errors);

// Checks every schema and shape rule, makes schemas canonical, and finds each op's name and device
// argument. Problems as above; returns whether there was none.
bool check_ops(Manifest* manifest, std::vector<std::string>* errors);

// The file's bytes; nullopt if it cannot be read.
std::optional<std::string> read_file(const std::filesystem::path& path);

}  // namespace opdock
