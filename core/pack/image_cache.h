// Device images that were made before, in a folder as the cache of run-time compilation has them:
// who packs the same sources for the same architectures again compiles nothing.
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
  // folder: absolute, and made if need be. One that cannot be used, of which a notice goes to
  // standard error, has and keeps nothing.
  explicit ImageCache(const std::string& folder);

  // What this compiler has made of the job; nothing if that is not there.
  std::optional<CompileResult> find(const CompileJob& job, const Nvrtc& compiler) const;
  void keep(const CompileJob& job, const Nvrtc& compiler, const CompileResult& result) const;
  // For what is compiled as run-time compilation does it.
  Cache* cache() const { return cache_.get(); }

 private:
  std::unique_ptr<Cache> cache_;
};

}  // namespace opdock::pack
