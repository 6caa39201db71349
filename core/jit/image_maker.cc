// SPDX-License-Identifier: Apache-2.0
#include "jit/image_maker.h"

#include <sys/auxv.h>

#include <algorithm>

#include "base/status.h"
#include "jit/request.h"

namespace opdock {
namespace {

constexpr size_t kMaxLog = 8192;  // bytes of a compiler's messages that a reason quotes

std::string text_of(const CacheEntry& entry, std::string_view blob) {
  std::span<const uint8_t> bytes;
  if (!entry.blob(blob, &bytes)) return {};
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Makes an image of a cache entry. Fails, and *out is NULL, if the entry is not what the request's
// image would be.
Status image_of(const std::shared_ptr<CacheEntry>& entry, const CompileRequest& request,
                CompiledImagePtr* out) {
  *out = nullptr;
  const auto lacks = [](const std::string& what) {
    return Status{OPDOCK_INCOMPATIBLE, "an entry without " + what};
  };
  auto image = std::make_shared<CompiledImage>();
  image->kind = output_kind(request);
  image->arch = request.arch;
  image->toolkit = Version::parse(text_of(*entry, "toolkit")).value_or(Version());
  image->maker = entry->maker().text;
  image->from_cache = true;
  image->entry = entry;
  if (!entry->blob("image", &image->bytes) || image->bytes.empty()) return lacks("an image");
  std::vector<std::pair<std::string, std::string>> names;
  if (!entry->blob("names", &image->names) || !read_names(image->names, &names))
    return lacks("its kernels' names");
  for (const std::string& kernel : request.kernels) {
    const bool there = std::any_of(names.begin(), names.end(), [&](const auto& pair) {
      return pair.first == kernel && !pair.second.empty();
    });
    if (!there) return lacks("kernel \"" + kernel + "\"");
  }
  *out = std::move(image);
  return {};
}

}  // namespace

bool cancelled(const JitContext& context) {
  return context.progress != nullptr && context.progress->cancelled();
}

bool gives_up(std::span<const Reason> reasons) {
  return has_code(reasons, Code::kCancelled) || has_code(reasons, Code::kWithinItself);
}

Reason cancelled_reason(const CompileRequest& request) {
  Reason reason = make_reason(Code::kCancelled);
  reason.wanted = subject_of(request) + " to be compiled";
  return reason;
}

CacheRequest cache_view(const CompileRequest& request, const JitContext& context, bool* uncertain) {
  const OutsideHeaders outside = outside_of(request, "");
  *uncertain = outside.uncertain;
  std::vector<SourceText> digests;
  for (const OutsideHeader& header : outside.named) digests.push_back({header.name, header.digest});
  return cache_request(request, context, digests);
}

CompiledImagePtr ImageMaker::make(bool anew, std::vector<Reason>* reasons) {
  std::vector<Reason> why;
  std::vector<std::unique_ptr<Toolchain>> toolchains = find_toolchains(request_, context_, &why);
  if (!anew) look_up(toolchains, reasons);
  const bool allowed = may_compile(&why);
  for (const std::unique_ptr<Toolchain>& toolchain : toolchains) {
    if (CompiledImagePtr image = cached_by(toolchain->maker(), reasons)) return image;
    if (!allowed) continue;
    if (toolchain->open(request_.arch, &why)) return compile(toolchain.get(), anew, reasons);
  }
  // No compiler can be used, so an image by another compiler will do.
  while (!entries_.empty()) {
    if (CompiledImagePtr image = take(0, reasons)) return image;
  }
  reasons->insert(reasons->end(), why.begin(), why.end());
  return nullptr;
}

bool ImageMaker::has_image(const CacheMaker* maker, std::vector<Reason>* reasons) {
  if (cache() == nullptr) return false;
  entries_ = cache()->find(cached_, maker, reasons);
  if (maker != nullptr) return cached_by(*maker, reasons) != nullptr;
  while (!entries_.empty()) {
    if (take(0, reasons) != nullptr) return true;
  }
  return false;
}

bool ImageMaker::may_compile(std::vector<Reason>* why) const {
  if (!context_.denied.empty()) {
    why->assign(1, make_reason(Code::kJitPolicy, context_.denied, "OPDOCK_JIT=auto"));
    return false;
  }
  if (getauxval(AT_SECURE) != 0) {
    why->assign(1, make_reason(Code::kBuildPrivileged));
    return false;
  }
  return true;
}

void ImageMaker::look_up(const std::vector<std::unique_ptr<Toolchain>>& toolchains,
                         std::vector<Reason>* reasons) {
  if (cache() == nullptr) return;
  const CacheMaker* best = toolchains.empty() ? nullptr : &toolchains.front()->maker();
  entries_ = cache()->find(cached_, best, reasons);
}

CompiledImagePtr ImageMaker::take(size_t index, std::vector<Reason>* reasons) {
  const std::shared_ptr<CacheEntry> entry = entries_[index];
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  CompiledImagePtr image;
  if (const Status read = image_of(entry, request_, &image); !read.ok()) {
    const Reason reason = make_reason(Code::kJitImage, read.text, subject_of(request_));
    cache()->quarantine(*entry, reason);
    reasons->push_back(reason);
    return nullptr;
  }
  if (request_.backend == Backend::kCuda && context_.cuda_driver && !image->toolkit.empty()) {
    const bool ptx = image->kind == ImageKind::kPtx;
    const bool fits = ptx ? image->toolkit <= *context_.cuda_driver
                          : image->toolkit.major() <= context_.cuda_driver->major();
    if (!fits) return nullptr;  // still useful on another machine that shares the cache
  }
  return image;
}

CompiledImagePtr ImageMaker::cached_by(const CacheMaker& maker, std::vector<Reason>* reasons) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i]->maker().id == maker.id) return take(i, reasons);
  }
  return nullptr;
}

CompiledImagePtr ImageMaker::compile(Toolchain* toolchain, bool anew,
                                     std::vector<Reason>* reasons) {
  std::unique_ptr<CacheLock> lock;
  for (bool is_turn = cache() == nullptr; !is_turn;) {
    const size_t before = reasons->size();
    lock = cache()->lock(cached_, toolchain->maker(), context_.progress, reasons);
    if (lock == nullptr && gives_up(std::span(*reasons).subspan(before))) return nullptr;
    is_turn = lock == nullptr || lock->is_turn();
    // The lock's former holder may have made the image. With `anew`, an image that appeared while
    // this thread waited is a new one, and will do.
    if (lock != nullptr && (!anew || !is_turn)) {
      entries_ = cache()->find(cached_, &toolchain->maker(), reasons);
      if (CompiledImagePtr image = cached_by(toolchain->maker(), reasons)) return image;
    }
  }
  if (context_.progress != nullptr) {
    context_.progress->step("compiling " + subject_of(request_), -1);
  }
  CompileResult result = toolchain->compile(job(), reasons);
  if (!result.ok) {
    if (result.fault != CompileFault::kNone) reasons->push_back(failure(*toolchain, result));
    return nullptr;
  }
  return keep(*toolchain, std::move(result), lock != nullptr, reasons);
}

CompileJob ImageMaker::job() const {
  CompileJob job;
  job.headers = request_.headers;
  job.sources = request_.sources;
  job.kernels = request_.kernels;
  std::sort(job.kernels.begin(), job.kernels.end());
  job.kernels.erase(std::unique(job.kernels.begin(), job.kernels.end()), job.kernels.end());
  job.arch = request_.arch;
  job.program = request_.program;
  job.program_name = request_.program_name;
  job.options = request_.options;
  job.progress = context_.progress;
  return job;
}

Reason ImageMaker::failure(const Toolchain& toolchain, const CompileResult& result) const {
  std::string log = without_nul(result.log);
  while (!log.empty() && log.back() == '\n') log.pop_back();
  if (log.size() > kMaxLog) log = log.substr(0, kMaxLog) + "\n(the rest is left out)";
  Reason reason =
      make_reason(Code::kJitFailed, "errors that " + toolchain.maker().text + " reports",
                  "an image for " + request_.arch);
  switch (result.fault) {
    case CompileFault::kSource:
      reason = make_reason(Code::kJitSource, reason.found,
                           request_.name + " to compile for " + request_.arch);
      break;
    case CompileFault::kKernel:
      reason = make_reason(Code::kJitKernel, reason.found,
                           "names of __global__ functions of " + request_.name);
      break;
    case CompileFault::kOption:
      reason = make_reason(Code::kJitOption, reason.found, "options that it knows");
      break;
    case CompileFault::kCancelled:
      return cancelled_reason(request_);
    default:
      break;
  }
  if (!log.empty()) reason.found += ":\n" + log;
  return reason;
}

CompiledImagePtr ImageMaker::keep(const Toolchain& toolchain, CompileResult result, bool locked,
                                  std::vector<Reason>* reasons) {
  auto image = std::make_shared<CompiledImage>();
  image->kind = output_kind(request_);
  image->arch = request_.arch;
  image->toolkit = toolchain.version();
  image->maker = toolchain.maker().text;
  image->log = std::move(result.log);
  image->own_bytes = std::move(result.image);
  for (const auto& [expression, in_image] : result.names) {
    for (const std::string* text : {&expression, &in_image}) {
      image->own_names.insert(image->own_names.end(), text->begin(), text->end());
      image->own_names.push_back(0);
    }
  }
  image->bytes = image->own_bytes;
  image->names = image->own_names;
  if (cache() == nullptr || !locked) return image;
  const auto blob = [](const char* name, std::span<const uint8_t> bytes) {
    return CacheBlob{name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
  };
  std::vector<CacheBlob> blobs = {blob("image", image->bytes), blob("names", image->names)};
  blobs.push_back({"toolkit", image->toolkit.text()});
  image->entry = cache()->publish_blobs(cached_, toolchain.maker(), blobs, reasons);
  if (image->entry != nullptr) remember_toolchains(cache());
  return image;
}

}  // namespace opdock
