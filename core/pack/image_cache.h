// Keeps device images that were made before, in a folder laid out like the run-time compilation
// cache: packing the same sources for the same architectures again compiles nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/cache.h"
#include "jit/nvrtc.h"

namespace opdock::pack {

class ImageCache {
 public:
  // folder: absolute, and made if necessary. A folder that cannot be used gives a notice on
  // standard error, and then has and keeps nothing.
  explicit ImageCache(const std::string& folder);

  // Returns what this compiler has made of the job; nullopt if the cache does not have it.
  std::optional<CompileResult> find(const CompileJob& job, const Nvrtc& compiler) const;
  void keep(const CompileJob& job, const Nvrtc& compiler, const CompileResult& result) const;
  // Returns the cache itself, for images that are compiled as at run time.
  Cache* cache() const { return cache_.get(); }

 private:
  std::unique_ptr<Cache> cache_;
};

}  // namespace opdock::pack
