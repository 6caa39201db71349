// An opened kernel library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "module.h"

namespace softgpu {

class KernelLibrary {
 public:
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  // Returns whether an address lies in the library: code and constants.
  bool contains(uintptr_t address) const { return address - begin_ < bytes_; }
  uint32_t site_of(const void* pc) const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pc) - begin_);
  }
  const std::string& path() const { return path_; }
  const Module& module() const { return *module_; }
  // The kernels' mangled names, as in the image; empty if the loader does not know the name.
  const std::vector<std::string>& names() const { return names_; }

 private:
  friend class Libraries;
  KernelLibrary() = default;

  std::string path_;
  void* handle_ = nullptr;
  const Module* module_ = nullptr;
  std::vector<std::string> names_;
  uintptr_t begin_ = 0, bytes_ = 0;
};

// The source lines of a call or access, whose return address is `site` bytes from the start of the
// library: "softmax.cuh:83 in …", from the innermost line of the kernel outwards, without the
// vocabulary's own lines if there are others. Runs addr2line or llvm-symbolizer, and says so if
// neither is installed.
struct SourceLines {
  std::string place;                 // "softmax.cuh:83", or the address
  std::vector<std::string> callers;  // "softmax.cuh:120 in softmax::any_rows<float>(Params)"
  bool operator==(const SourceLines& other) const {
    return place == other.place && callers == other.callers;
  }
};
SourceLines source_lines(const KernelLibrary& library, uint32_t site);

// The engine's functions for libraries (library_hooks.cc).
extern const Hooks kHooks;

}  // namespace softgpu
