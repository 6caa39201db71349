// Makes the image of one request: from the cache, or by a compiler, once in all processes.
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

// One request, on one thread. `request` and `context` outlive it.
class ImageMaker {
 public:
  // cached, uncertain: what cache_view() gave.
  ImageMaker(const CompileRequest& request, const JitContext& context, CacheRequest cached,
             bool uncertain)
      : request_(request), context_(context), cached_(std::move(cached)), uncertain_(uncertain) {}

  // anew: what the cache has is known to be of no use. NULL and reasons.
  CompiledImagePtr make(bool anew, std::vector<Reason>* reasons);
  // Whether the cache has an image: by `maker`, or by any compiler if it is NULL.
  bool has_image(const CacheMaker* maker, std::vector<Reason>* reasons);
  // Whether a compiler may be opened at all; if not, *why says so, alone.
  bool may_compile(std::vector<Reason>* why) const;

 private:
  Cache* cache() const { return uncertain_ ? nullptr : context_.cache; }
  void look_up(const std::vector<std::unique_ptr<Toolchain>>& toolchains,
               std::vector<Reason>* reasons);
  // The entry as an image; a damaged one is set aside. Either way it is no longer among them.
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
  std::vector<std::shared_ptr<CacheEntry>> entries_;  // found, not looked into yet
};

// The request as the cache sees it, with what it reads of named folders. *uncertain: not all of
// that is known, nothing may be kept.
CacheRequest cache_view(const CompileRequest& request, const JitContext& context, bool* uncertain);

bool cancelled(const JitContext& context);
// Whether `reasons` say that the work was stopped, or would have waited for itself: that holds for
// the one who asked, and nothing is known of the image. The program may answer "stop" only once, so
// it is not asked again.
bool gives_up(std::span<const Reason> reasons);
Reason cancelled_reason(const CompileRequest& request);

}  // namespace opdock
