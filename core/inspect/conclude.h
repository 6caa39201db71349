// Derives a package's verdict from those of its files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "inspect/reach.h"
#include "inspect/survey.h"

namespace opdock {

struct PackageContext {
  std::optional<Reach> reach;  // nullopt: this is not a package, and all its files count
  bool described = false;      // JudgedMachine::described: each GPU has to be served
  // Returns whether another package, which is loaded before this one, has the library at that path.
  std::function<bool(const std::string& path)> is_loaded_before;
};

// Sets what the files add (share, counts), the package's state and its cells, and sorts the files,
// the worst first. If a library is assumed to be loaded before, that is a notice and no longer a
// reason against.
void conclude(const std::vector<Gpu>& gpus, const PackageContext& context,
              SurveyedPackage* package);

// Returns whether a package with these requirements (normalised names) gets the library from what
// it requires: "libcublas.so.12" comes with nvidia-cublas-cu12, and with torch.
bool provides_library(const std::vector<std::string>& requirements, const std::string& library);

// Returns the same key for files that do the same work for different versions or kinds of device:
// "foo/libfoo_*.so" for "foo/libfoo_cuda128.so" and "foo/libfoo_cpu.so". Empty: the name has no
// such part.
std::string alternative_key(const std::string& name);

}  // namespace opdock
