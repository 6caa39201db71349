// Makes the image of one request, from the cache or with a compiler, once in all processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "jit/compiler.h"
#include "jit/toolchain.h"

namespace opdock {

// Handles one request on one thread. `request` and `context` outlive it.
class ImageMaker {
 public:
  // cached, uncertain: results of cache_view().
  ImageMaker(const CompileRequest& request, const JitContext& context, CacheRequest cached,
             bool uncertain)
      : request_(request), context_(context), cached_(std::move(cached)), uncertain_(uncertain) {}

  // Makes the image. anew: the cache's image is known to be useless. Returns NULL and reasons on
  // failure.
  CompiledImagePtr make(bool anew, std::vector<Reason>* reasons);
  // Returns whether the cache has an image by `maker`, or by any compiler if `maker` is NULL.
  bool has_image(const CacheMaker* maker, std::vector<Reason>* reasons);
  // Returns whether a compiler may be opened at all; if not, *why holds only that reason.
  bool may_compile(std::vector<Reason>* why) const;

 private:
  Cache* cache() const { return uncertain_ ? nullptr : context_.cache; }
  void look_up(const std::vector<std::unique_ptr<Toolchain>>& toolchains,
               std::vector<Reason>* reasons);
  // Returns the entry as an image; a damaged entry is set aside. Either way it leaves entries_.
  CompiledImagePtr take(size_t index, std::vector<Reason>* reasons);
  CompiledImagePtr cached_by(const CacheMaker& maker, std::vector<Reason>* reasons);
  CompiledImagePtr compile(Toolchain* toolchain, bool anew, std::vector<Reason>* reasons);
  CompileJob job() const;
  Reason failure(const Toolchain& toolchain, const CompileResult& result) const;
  CompiledImagePtr keep(const Toolchain& toolchain, CompileResult result, bool locked,
                        std::vector<Reason>* reasons);

  const CompileRequest& request_;
  const JitContext& context_;
  const CacheRequest cached_;
  const bool uncertain_;
  std::vector<std::shared_ptr<CacheEntry>> entries_;  // found in the cache, not read yet
};

// Returns the request as the cache sees it, with what it reads from named folders. *uncertain: not
// all of that is known, so nothing may be kept.
CacheRequest cache_view(const CompileRequest& request, const JitContext& context, bool* uncertain);

bool cancelled(const JitContext& context);
// Returns whether `reasons` say that the work was stopped, or would have waited for itself. That
// holds only for this caller and says nothing about the image. The program may answer "stop" only
// once, so it is not asked again.
bool gives_up(std::span<const Reason> reasons);
Reason cancelled_reason(const CompileRequest& request);

}  // namespace opdock
