// A package's verdict, from those of its files.
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
  std::optional<Reach> reach;  // nullopt: of what is no package; all its files count
  bool described = false;      // Surroundings::described: each GPU has to be served
  // Whether another package that has the library at that path is loaded before this one.
  std::function<bool(const std::string& path)> is_loaded_before;
};

// Sets what the files add (share, counts), the package's state and its cells, and sorts the files,
// the worst first. A library that is taken to be loaded before is no reason any more, but a notice.
void conclude(const std::vector<Gpu>& gpus, const PackageContext& context,
              SurveyedPackage* package);

// Whether a package with these requirements (normalised names) brings the library by what it
// requires: "libcublas.so.12" comes with nvidia-cublas-cu12, and with torch.
bool brings(const std::vector<std::string>& requirements, const std::string& library);

// Files that do the same work for different versions or kinds of device have the same key:
// "foo/libfoo_*.so" of "foo/libfoo_cuda128.so" and "foo/libfoo_cpu.so". Empty: it names no such.
std::string alternative_key(const std::string& name);

}  // namespace opdock
