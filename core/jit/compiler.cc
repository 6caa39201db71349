// SPDX-License-Identifier: Apache-2.0
#include "jit/compiler.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/sha256.h"
#include "facts/arch.h"
#include "jit/keep.h"
#include "jit/request.h"
#include "jit/toolchain.h"

namespace opdock {
namespace {

constexpr std::chrono::milliseconds kPoll{50};  // how often a waiting thread asks whether to stop
constexpr size_t kManySlots = 256;
constexpr size_t kMostLog = 8192;  // of a compiler's messages that a reason quotes

// ---- one maker per request and process

struct Slot {
  const pid_t process = getpid();  // of a parent's, nothing will ever come
  std::condition_variable done;
  bool running = false;
  uint64_t round = 0;
  bool failed = false;  // the last round; `reasons` say why
  std::vector<Reason> reasons;
  std::weak_ptr<const CompiledImage> image;
};

struct Table {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Slot>> slots;
};
Table& table() {
  static Table* instance = new Table;
  return *instance;
}

std::shared_ptr<Slot> slot_of(Table& all, const std::string& key) {
  if (all.slots.size() > kManySlots) {
    std::erase_if(all.slots, [](const auto& one) {
      return !one.second->running && one.second.use_count() == 1 && one.second->image.expired();
    });
  }
  std::shared_ptr<Slot>& slot = all.slots[key];
  if (slot == nullptr || slot->process != getpid()) slot = std::make_shared<Slot>();
  return slot;
}

// One piece of work by several threads: told to one of them to stop, it stops in all.
class SharedProgress : public Progress {
 public:
  explicit SharedProgress(Progress* progress) : progress_(progress) {}
  void step(std::string_view text, double fraction) override {
    const std::lock_guard lock(mutex_);
    progress_->step(text, fraction);
  }
  bool cancelled() override {
    const std::lock_guard lock(mutex_);
    stop_ = stop_ || progress_->cancelled();
    return stop_;
  }

 private:
  Progress* progress_;
  std::mutex mutex_;  // the program's hooks are called one at a time
  bool stop_ = false;
};

bool cancelled(const JitContext& context) {
  return context.progress != nullptr && context.progress->cancelled();
}

Reason cancelled_reason(const CompileRequest& request) {
  return make_reason(Code::kCancelled, "a request to stop",
                     subject_of(request) + " to be compiled");
}

// Everything that distinguishes results in this process; the driver decides which compiler is used.
std::string identity(const CacheRequest& request, const JitContext& context) {
  FieldHasher hasher;
  for (const CacheField& field : request.fields) hasher.add(field.name).add(field.value);
  hasher.add(context.cuda_driver ? context.cuda_driver->text() : "");
  hasher.add(context.cache != nullptr ? context.cache->folder() : "");
  return to_hex(hasher.finish());
}

// ---- from the cache

std::string text_of(const CacheEntry& entry, std::string_view blob) {
  std::span<const uint8_t> bytes;
  if (!entry.blob(blob, &bytes)) return {};
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// NULL and *problem if the entry is not what the request's image would be.
CompiledImagePtr image_of(const std::shared_ptr<CacheEntry>& entry, const CompileRequest& request,
                          std::string* problem) {
  auto image = std::make_shared<CompiledImage>();
  image->kind = output_kind(request);
  image->arch = request.arch;
  image->toolkit = Version::parse(text_of(*entry, "toolkit")).value_or(Version());
  image->maker = entry->maker().text;
  image->from_cache = true;
  image->entry = entry;
  if (!entry->blob("image", &image->bytes) || image->bytes.empty()) {
    *problem = "an entry without an image";
    return nullptr;
  }
  std::vector<std::pair<std::string, std::string>> names;
  if (!entry->blob("names", &image->names) || !read_names(image->names, &names)) {
    *problem = "an entry without its kernels' names";
    return nullptr;
  }
  for (const std::string& kernel : request.kernels) {
    const bool there = std::any_of(names.begin(), names.end(), [&](const auto& pair) {
      return pair.first == kernel && !pair.second.empty();
    });
    if (there) continue;
    *problem = "an entry without kernel \"" + kernel + "\"";
    return nullptr;
  }
  return image;
}

class Maker {
 public:
  Maker(const CompileRequest& request, const JitContext& context, CacheRequest cached,
        bool uncertain)
      : request_(request), context_(context), cached_(std::move(cached)), uncertain_(uncertain) {}

  // anew: what the cache has is known to be of no use.
  CompiledImagePtr make(bool anew, std::vector<Reason>* reasons) {
    std::vector<Reason> why;
    std::vector<std::unique_ptr<Toolchain>> toolchains = find_toolchains(request_, context_, &why);
    if (!anew) look_up(toolchains, reasons);
    const bool allowed = may_compile(&why);
    for (const std::unique_ptr<Toolchain>& toolchain : toolchains) {
      if (CompiledImagePtr image = cached_by(toolchain->maker(), reasons)) return image;
      if (!allowed) continue;
      if (toolchain->open(request_.arch, &why)) return compile(toolchain.get(), anew, reasons);
    }
    // No compiler can be used: what another one has made will do.
    while (!entries_.empty()) {
      if (CompiledImagePtr image = take(0, reasons)) return image;
    }
    reasons->insert(reasons->end(), why.begin(), why.end());
    return nullptr;
  }

  // Whether the cache has an image: by `maker`, or by anybody if it is NULL.
  bool has_image(const CacheMaker* maker, std::vector<Reason>* reasons) {
    if (cache() == nullptr) return false;
    entries_ = cache()->find(cached_, maker, reasons);
    if (maker != nullptr) return cached_by(*maker, reasons) != nullptr;
    while (!entries_.empty()) {
      if (take(0, reasons) != nullptr) return true;
    }
    return false;
  }

  bool may_compile(std::vector<Reason>* why) const {
    if (!context_.denied.empty()) {
      why->assign(1, make_reason(Code::kJitPolicy, context_.denied, "OPDOCK_JIT=auto"));
      return false;
    }
    if (getauxval(AT_SECURE) != 0) {
      why->assign(1, make_reason(Code::kBuildPrivileged, "a program with raised privileges",
                                 "an image that is installed or cached"));
      return false;
    }
    return true;
  }

 private:
  Cache* cache() const { return uncertain_ ? nullptr : context_.cache; }

  void look_up(const std::vector<std::unique_ptr<Toolchain>>& toolchains,
               std::vector<Reason>* reasons) {
    if (cache() == nullptr) return;
    const CacheMaker* best = toolchains.empty() ? nullptr : &toolchains.front()->maker();
    entries_ = cache()->find(cached_, best, reasons);
  }

  // The entry as an image; a damaged one is set aside. Either way it is no longer among them.
  CompiledImagePtr take(size_t index, std::vector<Reason>* reasons) {
    const std::shared_ptr<CacheEntry> entry = entries_[index];
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
    std::string problem;
    CompiledImagePtr image = image_of(entry, request_, &problem);
    if (image == nullptr) {
      const Reason reason = make_reason(Code::kJitImage, problem, subject_of(request_));
      cache()->set_aside(*entry, reason);
      reasons->push_back(reason);
      return nullptr;
    }
    if (request_.backend == Backend::kCuda && context_.cuda_driver && !image->toolkit.empty()) {
      const bool ptx = image->kind == ImageKind::kPtx;
      const bool fits = ptx ? image->toolkit <= *context_.cuda_driver
                            : image->toolkit.major() <= context_.cuda_driver->major();
      if (!fits) return nullptr;  // of use on another machine that shares the cache
    }
    return image;
  }

  CompiledImagePtr cached_by(const CacheMaker& maker, std::vector<Reason>* reasons) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i]->maker().id == maker.id) return take(i, reasons);
    }
    return nullptr;
  }

  CompiledImagePtr compile(Toolchain* toolchain, bool anew, std::vector<Reason>* reasons) {
    std::unique_ptr<CacheLock> lock;
    if (cache() != nullptr) {
      lock = cache()->lock(cached_, toolchain->maker(), context_.progress, reasons);
      if (cancelled(context_)) {
        reasons->push_back(cancelled_reason(request_));
        return nullptr;
      }
      // Whoever held it may have made it.
      if (lock != nullptr && !anew) {
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

  CompileJob job() const {
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

  Reason failure(const Toolchain& toolchain, const CompileResult& result) const {
    std::string log = result.log;
    while (!log.empty() && log.back() == '\n') log.pop_back();
    if (log.size() > kMostLog) log = log.substr(0, kMostLog) + "\n(the rest is left out)";
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
    reason.advice += ":\n" + log;
    return reason;
  }

  CompiledImagePtr keep(const Toolchain& toolchain, CompileResult result, bool locked,
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
    return image;
  }

  const CompileRequest& request_;
  const JitContext& context_;
  const CacheRequest cached_;
  const bool uncertain_;
  std::vector<std::shared_ptr<CacheEntry>> entries_;
};

// The request as the cache sees it, with what it reads of named folders. *uncertain: not all of
// that is known, nothing may be kept.
CacheRequest cache_view(const CompileRequest& request, const JitContext& context, bool* uncertain) {
  const OutsideHeaders outside = outside_of(request, "");
  *uncertain = outside.uncertain;
  std::vector<SourceText> digests;
  for (const OutsideHeader& header : outside.named) digests.push_back({header.name, header.digest});
  return cache_request(request, context, digests);
}

CompiledImagePtr once(const CompileRequest& request, const JitContext& context,
                      const CompiledImage* refused, std::vector<Reason>* reasons) {
  if (!check_request(request, reasons)) return nullptr;
  bool uncertain = false;
  CacheRequest cached = cache_view(request, context, &uncertain);
  const std::string key = identity(cached, context);

  Table& all = table();
  std::unique_lock lock(all.mutex);
  const std::shared_ptr<Slot> slot = slot_of(all, key);
  for (;;) {
    CompiledImagePtr have = slot->image.lock();
    if (have != nullptr && have.get() != refused) return have;
    if (!slot->running) break;
    const uint64_t round = slot->round;
    slot->done.wait_for(lock, kPoll);
    if (slot->round != round && slot->failed) {
      reasons->insert(reasons->end(), slot->reasons.begin(), slot->reasons.end());
      return nullptr;
    }
    lock.unlock();
    const bool stop = cancelled(context);
    lock.lock();
    if (stop) {
      reasons->push_back(cancelled_reason(request));
      return nullptr;
    }
  }
  slot->running = true;
  lock.unlock();

  // Ends the round however it ends: others wait for it.
  struct Round {
    Table& all;
    Slot& slot;
    std::vector<Reason> reasons;
    CompiledImagePtr image;
    bool stopped = true;  // neither made nor found impossible: another may try
    ~Round() {
      const std::lock_guard lock(all.mutex);
      slot.running = false;
      ++slot.round;
      slot.failed = image == nullptr && !stopped;
      slot.reasons = slot.failed ? reasons : std::vector<Reason>();
      if (image != nullptr) slot.image = image;
      slot.done.notify_all();
    }
  } round{all, *slot, {}, nullptr};
  Maker maker(request, context, std::move(cached), uncertain);
  round.image = maker.make(refused != nullptr, &round.reasons);
  if (const std::string folder = keep_folder(); round.image != nullptr && !folder.empty())
    keep_source(folder, request, round.image->kind, round.image->bytes, &round.reasons);
  round.stopped = cancelled(context);
  reasons->insert(reasons->end(), round.reasons.begin(), round.reasons.end());
  return round.image;
}

}  // namespace

CompiledImagePtr compile_image(const CompileRequest& request, const JitContext& context,
                               std::vector<Reason>* reasons) {
  return once(request, context, nullptr, reasons);
}

bool can_make(const std::vector<CompileRequest>& requests, const JitContext& context,
              std::vector<Reason>* reasons) {
  if (!check_request(requests.front(), reasons)) return false;
  std::vector<Maker> makers;
  for (const CompileRequest& one : requests) {
    bool uncertain = false;
    CacheRequest cached = cache_view(one, context, &uncertain);
    makers.emplace_back(one, context, std::move(cached), uncertain);
  }
  std::vector<Reason> why, ignored;
  const std::vector<std::unique_ptr<Toolchain>> toolchains =
      find_toolchains(requests.front(), context, &why);
  if (makers.front().may_compile(&why)) {
    for (const std::unique_ptr<Toolchain>& toolchain : toolchains) {
      const bool known = std::any_of(makers.begin(), makers.end(), [&](Maker& maker) {
        return maker.has_image(&toolchain->maker(), &ignored);
      });
      if (known || toolchain->open(requests.front().arch, &why)) return true;
    }
  }
  const bool all_there = std::all_of(makers.begin(), makers.end(), [&](Maker& maker) {
    return maker.has_image(nullptr, &ignored);
  });
  if (!all_there) reasons->insert(reasons->end(), why.begin(), why.end());
  return all_there;
}

std::optional<CompileRequest> ptx_for_newer_gpu(const CompileRequest& request,
                                                const JitContext& context, Reason* why) {
  if (request.backend != Backend::kCuda || output_kind(request) != ImageKind::kCubin) return {};
  if (getauxval(AT_SECURE) != 0) return {};  // no compiler is opened there
  const std::optional<CudaArch> arch = parse_cuda_arch(request.arch);
  if (!arch) return {};
  const int number = arch->major * 10 + arch->minor;
  std::vector<Reason> ignored;
  for (const auto& toolchain : find_toolchains(request, context, &ignored))
    if (toolchain->newest_up_to(number) == number) return {};
  CompileRequest ptx = request;
  int best = 0;
  std::string maker;
  ptx.arch = "compute_" + std::to_string(number);  // which of them the driver takes PTX of
  for (const auto& toolchain : find_toolchains(ptx, context, &ignored)) {
    const int newest = toolchain->newest_up_to(number);
    if (newest <= best) continue;
    best = newest;
    maker = toolchain->maker().text;
  }
  if (best == 0) return {};
  ptx.arch = "compute_" + std::to_string(best);
  *why =
      make_reason(Code::kArchUncovered, "a GPU for " + request.arch + ", which no NVRTC here knows",
                  "an NVRTC that knows it");
  why->advice = "nothing to do: " + maker + " makes PTX for " + ptx.arch +
                ", which the driver compiles; a newer NVRTC makes it faster";
  return ptx;
}

void compile_all(
    const std::vector<CompileRequest>& requests, int jobs, const JitContext& context,
    const std::function<void(size_t, const CompiledImagePtr&, const std::vector<Reason>&)>& done) {
  JitContext own = context;
  own.in_worker = true;
  SharedProgress shared(context.progress);
  if (context.progress != nullptr) own.progress = &shared;
  std::atomic<size_t> next{0};
  std::mutex telling;
  const auto work = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      std::vector<Reason> reasons;
      CompiledImagePtr image;
      if (cancelled(own)) {
        reasons.push_back(cancelled_reason(requests[i]));
      } else {
        image = compile_image(requests[i], own, &reasons);
      }
      const std::lock_guard lock(telling);
      done(i, image, reasons);
    }
  };
  const size_t count = std::min(requests.size(), static_cast<size_t>(std::max(jobs, 1)));
  std::mutex ending;
  std::condition_variable ended;
  size_t running = count == 0 ? 0 : count - 1;
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < count; ++i) {
    threads.emplace_back([&] {
      work();
      const std::lock_guard lock(ending);
      --running;
      ended.notify_one();
    });
  }
  work();
  // The program may answer only the thread that it called from.
  std::unique_lock lock(ending);
  while (running != 0) {
    if (ended.wait_for(lock, kPoll, [&] { return running == 0; })) break;
    lock.unlock();
    cancelled(own);
    lock.lock();
  }
}

CompiledImagePtr compile_again(const CompileRequest& request, const JitContext& context,
                               const CompiledImagePtr& refused, const std::string& why,
                               std::vector<Reason>* reasons) {
  const Reason reason = make_reason(Code::kJitImage, why, "an image that loads");
  if (!refused->from_cache) {
    reasons->push_back(reason);
    return nullptr;
  }
  if (context.cache != nullptr && refused->entry != nullptr) {
    context.cache->set_aside(*refused->entry, reason);
  }
  CompiledImagePtr image = once(request, context, refused.get(), reasons);
  if (image == nullptr) reasons->insert(reasons->begin(), reason);
  return image;
}

}  // namespace opdock
