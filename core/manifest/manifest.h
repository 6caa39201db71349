// Reads and checks plugin.toml, the only declaration of a plugin.
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
  // Parameters whose tensors are not on the op's device, and where they are: "cpu", "any".
  std::vector<std::pair<std::string, std::string>> elsewhere;
  std::string formula;                 // of the results; empty: the plugin's own code computes them
  std::string gradient_of;             // the op whose gradients this one computes, by its formula
  std::vector<std::string> of_params;  // the parameters whose gradients they are
  bool is_added = false;               // the gradients of a formula, without a word of plugin.toml
  size_t num_grads = 0;                // how many results that op has
  std::vector<std::string> gradients;  // "x = f(grads[0])", …; empty: nothing is declared
  // The rules by which the host checks tensors: "rows x", "like up gate" (schema/tensor_rule.h).
  std::vector<std::string> tensor_rules;
  uint32_t flag_bits = 0;  // OPDOCK_OP_…
  uint32_t device_arg_index = 0;
  std::vector<uint8_t> arg_devices;  // OPDOCK_ON_…, one per parameter; none: all where the op runs
  uint32_t schema_line = 1;          // in plugin.toml

  // Returns whether the op is a formula that runs on GPUs, and whether its plugin brings compiled
  // code of it for CPUs, which it does not of gradients that plugin.toml does not name.
  bool is_gpu_formula() const;
  bool has_cpu_code() const;
};

struct DeviceDecl {
  std::vector<std::string> sources;  // relative to plugin.toml's folder, in order of inclusion
  // NVRTC name expressions, which are also the names that host->kernel() takes. Lists are expanded
  // (kernel_names.h).
  std::vector<std::string> kernels;
  uint32_t line = 1;  // of [device]
};

struct Manifest {
  std::filesystem::path path;
  std::string text;  // the file's bytes
  std::string name;
  std::string version;
  std::string license;
  std::vector<std::string> sources;  // of the host part, with headers: they go into the build hash
  std::string reference;             // empty: none
  std::vector<OpDecl> ops;
  std::optional<DeviceDecl> device;
  std::vector<LibraryClaim> libraries;
  BuildNeeds build;

  std::filesystem::path folder() const { return path.parent_path(); }
  // Return whether an op runs on devices of that kind, and all such kinds in the enumeration's
  // order.
  bool is_for(Backend backend) const;
  std::vector<Backend> backends() const;
  bool has_gpu_formulas() const;
};

// Returns what the note says of the op.
OpClaim to_claim(const OpDecl& op);

// Reads `path` and checks all of it, including schemas and shape rules. Returns nullopt if there
// was any mistake. Each mistake becomes a reason manifest-invalid, in the file's order, whose
// `found` is one line that begins with "file:line:column: ", or with "file: " if the file cannot be
// read.
std::optional<Manifest> read_manifest(const std::filesystem::path& path,
                                      std::vector<Reason>* mistakes);

// Does the same, but also returns a rejected declaration, to show it, if only schemas and what
// depends on them are wrong. An op whose schema cannot be parsed has no name.
std::optional<Manifest> look_at_manifest(const std::filesystem::path& path,
                                         std::vector<Reason>* mistakes);

}  // namespace opdock
