// SPDX-License-Identifier: Apache-2.0
#include "pack/image_cache.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/sentence.h"
#include "jit/compiler.h"
#include "jit/nvrtc_files.h"

namespace opdock::pack {
namespace {

CacheRequest request_of(const CompileJob& job) {
  CompileRequest request;
  request.name = job.sources.empty() ? "" : job.sources.front();
  request.headers = job.headers;
  request.sources = job.sources;
  request.kernels = job.kernels;
  request.arch = job.arch;
  request.options = job.options;
  CacheRequest cached = cache_request(request, JitContext(), {});
  // Keep these entries apart from run-time compilation's: there may be PTX in addition to the
  // cubin.
  cached.fields.push_back({"packed", job.with_ptx ? "with PTX" : "alone"});
  for (const std::string& option : own_options(job)) cached.fields.push_back({"own", option});
  return cached;
}

CacheMaker maker_of(const Nvrtc& compiler) {
  return {"NVRTC " + compiler.version().text(), library_id(compiler.path())};
}

std::vector<uint8_t> bytes_of(const CacheEntry& entry, const char* blob) {
  std::span<const uint8_t> bytes;
  if (!entry.blob(blob, &bytes)) return {};
  return {bytes.begin(), bytes.end()};
}

CacheBlob blob_of(const char* name, const std::vector<uint8_t>& bytes) {
  return {name, std::string(bytes.begin(), bytes.end())};
}

}  // namespace

ImageCache::ImageCache(const std::string& folder) {
  std::vector<Reason> reasons;
  cache_ = Cache::open({.folder = folder, .memo_folder = {}}, &reasons);
  if (!reasons.empty())
    std::fprintf(stderr, "opdock-pack: notice: %s\n", to_text(reasons.front()).c_str());
}

std::optional<CompileResult> ImageCache::find(const CompileJob& job, const Nvrtc& compiler) const {
  std::vector<Reason> reasons;
  const CacheMaker maker = maker_of(compiler);
  for (const auto& entry : cache_->find(request_of(job), &maker, &reasons)) {
    if (entry->maker().id != maker.id) continue;
    CompileResult result;
    result.image = bytes_of(*entry, "image");
    result.ptx = bytes_of(*entry, "ptx");
    std::vector<std::pair<std::string, std::string>> names;
    result.ok = !result.image.empty() && (!job.with_ptx || !result.ptx.empty()) &&
                read_names(bytes_of(*entry, "names"), &names);
    for (const std::string& kernel : job.kernels) {
      const auto named = [&](const auto& pair) { return pair.first == kernel; };
      const auto at = std::find_if(names.begin(), names.end(), named);
      result.ok = result.ok && at != names.end();
      if (result.ok) result.names.push_back(*at);
    }
    if (result.ok) return result;
  }
  return std::nullopt;
}

void ImageCache::keep(const CompileJob& job, const Nvrtc& compiler,
                      const CompileResult& result) const {
  std::string names;
  for (const auto& [expression, in_image] : result.names) {
    names.append(expression).push_back('\0');
    names.append(in_image).push_back('\0');
  }
  std::vector<CacheBlob> blobs = {blob_of("image", result.image), {"names", names}};
  if (job.with_ptx) blobs.push_back(blob_of("ptx", result.ptx));
  // If the result cannot be kept, only time is lost, the next time.
  std::vector<Reason> reasons;
  cache_->publish_blobs(request_of(job), maker_of(compiler), blobs, &reasons);
}

}  // namespace opdock::pack
