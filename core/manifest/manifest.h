// plugin.toml: the one declaration of a plugin, read and checked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "manifest/build_needs.h"
#include "note/note.h"

namespace opdock {

struct OpDecl {
  std::string schema;  // canonical
  std::string name;    // the schema's
  std::string doc;
  std::vector<std::string> shape;    // a rule for each result with fresh tensors
  std::vector<std::string> devices;  // "cpu", "cuda", "rocm"
  std::vector<std::string> dtypes;   // "float32", …
  std::vector<std::string> flags;    // "thread-safe", …
  std::string device_arg;            // empty: the first Tensor parameter
  // Parameters whose tensors lie elsewhere than the op runs, and where: "cpu", "any".
  std::vector<std::pair<std::string, std::string>> elsewhere;
  std::vector<std::string> gradients;  // "x = f(grads[0])", …; empty: nothing is declared
  uint32_t flag_bits = 0;              // OPDOCK_OP_…
  uint32_t device_arg_index = 0;
  std::vector<uint8_t> arg_devices;  // OPDOCK_ON_…, one a parameter; none: all where the op runs
  uint32_t schema_line = 1;          // in plugin.toml
};

struct DeviceDecl {
  std::vector<std::string> sources;  // relative to plugin.toml's folder, in order of inclusion
  // NVRTC name expressions = the names host->kernel() takes; lists are expanded (kernel_names.h).
  std::vector<std::string> kernels;
  uint32_t line = 1;  // of [device]
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
  BuildNeeds build;

  std::filesystem::path folder() const { return path.parent_path(); }
  // Whether an op runs on devices of that kind; and all such kinds, in their order.
  bool is_for(Backend backend) const;
  std::vector<Backend> backends() const;
};

// What the note says of the op.
OpClaim to_claim(const OpDecl& op);

// Reads `path` and checks all of it, schemas and shape rules too; nullopt if there was any mistake.
// Each becomes a reason manifest-invalid, in the file's order, whose `found` is one line that
// begins with "file:line:column: ", or with "file: " where the file cannot be read.
std::optional<Manifest> read_manifest(const std::filesystem::path& path,
                                      std::vector<Reason>* mistakes);

// The same for showing what is rejected: where only schemas and what depends on them are wrong,
// also the declaration. An op whose schema cannot be parsed has no name.
std::optional<Manifest> look_at_manifest(const std::filesystem::path& path,
                                         std::vector<Reason>* mistakes);

}  // namespace opdock
