// SPDX-License-Identifier: Apache-2.0
#include "jit/compiler.h"

#include <sys/auxv.h>

#include <algorithm>
#include <map>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "facts/arch.h"
#include "jit/image_maker.h"
#include "jit/keep.h"
#include "jit/request.h"

namespace opdock {
namespace {

constexpr size_t kManySlots = 256;

// ---- one maker per request and process

struct ImageSlot {
  ForkAwareLock lock;  // held by the thread that makes the image
  // The table's mutex guards the members below.
  uint64_t round = 0;
  bool failed = false;  // in the last round; `reasons` say why
  std::vector<Reason> reasons;
  std::weak_ptr<const CompiledImage> image;
};

struct Table {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<ImageSlot>> slots;
};
Table& table = *new Table;

// The caller holds the table's mutex.
std::shared_ptr<ImageSlot> slot_of(const std::string& key) {
  if (table.slots.size() > kManySlots) {
    std::erase_if(table.slots, [](const auto& one) {
      return one.second.use_count() == 1 && one.second->image.expired();
    });
  }
  std::shared_ptr<ImageSlot>& slot = table.slots[key];
  if (slot == nullptr) slot = std::make_shared<ImageSlot>();
  return slot;
}

// Hashes everything that distinguishes results in this process; the driver decides which compiler
// is used.
std::string identity(const CacheRequest& request, const JitContext& context) {
  FieldHasher hasher;
  for (const CacheField& field : request.fields) hasher.add(field.name).add(field.value);
  hasher.add(context.cuda_driver ? context.cuda_driver->text() : "");
  hasher.add(context.cache != nullptr ? context.cache->folder() : "");
  return to_hex(hasher.finish());
}

CompiledImagePtr once(const CompileRequest& request, const JitContext& context,
                      const CompiledImage* refused, std::vector<Reason>* reasons) {
  if (!check_request(request, reasons)) return nullptr;
  bool uncertain = false;
  CacheRequest cached = cache_view(request, context, &uncertain);
  const std::string key = identity(cached, context);

  std::unique_lock lock(table.mutex);
  const std::shared_ptr<ImageSlot> slot = slot_of(key);
  const uint64_t before = slot->round;
  CompiledImagePtr have = slot->image.lock();
  if (have != nullptr && have.get() != refused) return have;
  lock.unlock();
  const ForkAwareGuard guard(&slot->lock, [&] { return cancelled(context); });
  if (!guard) {
    reasons->push_back(guard.was_cancelled()
                           ? cancelled_reason(request)
                           : deadlock_reason(subject_of(request) + " to be compiled"));
    return nullptr;
  }
  lock.lock();
  have = slot->image.lock();
  if (have != nullptr && have.get() != refused) return have;
  if (slot->round != before && slot->failed) {  // the previous round's failure holds here too
    reasons->insert(reasons->end(), slot->reasons.begin(), slot->reasons.end());
    return nullptr;
  }
  lock.unlock();

  // Ends the round on every path, because other threads wait for it.
  struct Round {
    ImageSlot& slot;
    std::vector<Reason> reasons;
    CompiledImagePtr image;
    bool stopped = true;  // neither made nor found impossible: another may try
    ~Round() {
      const std::lock_guard lock(table.mutex);
      ++slot.round;
      slot.failed = image == nullptr && !stopped;
      slot.reasons = slot.failed ? reasons : std::vector<Reason>();
      if (image != nullptr) slot.image = image;
    }
  } round{*slot, {}, nullptr};
  ImageMaker maker(request, context, std::move(cached), uncertain);
  round.image = maker.make(refused != nullptr, &round.reasons);
  if (const std::string folder = keep_folder(); round.image != nullptr && !folder.empty()) {
    std::vector<std::pair<std::string, std::string>> names;
    read_names(round.image->names, &names);  // sound: the maker has read or written them
    keep_source(folder, request, round.image->kind, round.image->bytes, names, &round.reasons);
  }
  round.stopped = gives_up(round.reasons);
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
  std::vector<ImageMaker> makers;
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
      const bool known = std::any_of(makers.begin(), makers.end(), [&](ImageMaker& maker) {
        return maker.has_image(&toolchain->maker(), &ignored);
      });
      if (known || toolchain->open(requests.front().arch, &why)) return true;
    }
  }
  const bool all_there = std::all_of(makers.begin(), makers.end(), [&](ImageMaker& maker) {
    return maker.has_image(nullptr, &ignored);
  });
  if (!all_there) reasons->insert(reasons->end(), why.begin(), why.end());
  return all_there;
}

std::optional<CompileRequest> ptx_for_newer_gpu(const CompileRequest& request,
                                                const JitContext& context, Reason* why) {
  if (request.backend != Backend::kCuda || output_kind(request) != ImageKind::kCubin) return {};
  if (getauxval(AT_SECURE) != 0) return {};  // a privileged program opens no compiler
  const std::optional<CudaArch> arch = parse_cuda_arch(request.arch);
  if (!arch) return {};
  const int number = arch->major * 10 + arch->minor;
  std::vector<Reason> ignored;
  for (const auto& toolchain : find_toolchains(request, context, &ignored))
    if (toolchain->newest_up_to(number) == number) return {};
  CompileRequest ptx = request;
  int best = 0;
  std::string maker;
  ptx.arch = "compute_" + std::to_string(number);  // finds compilers whose PTX the driver takes
  for (const auto& toolchain : find_toolchains(ptx, context, &ignored)) {
    const int newest = toolchain->newest_up_to(number);
    if (newest <= best) continue;
    best = newest;
    maker = toolchain->maker().text;
  }
  if (best == 0) return {};
  ptx.arch = "compute_" + std::to_string(best);
  *why = make_reason(Code::kArchPtx, "a GPU for " + request.arch + ", which no NVRTC here knows",
                     "an NVRTC that knows it");
  why->advice = "nothing to do: " + maker + " makes PTX for " + ptx.arch +
                ", which the driver compiles; a newer NVRTC makes it faster";
  return ptx;
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
    context.cache->quarantine(*refused->entry, reason);
  }
  CompiledImagePtr image = once(request, context, refused.get(), reasons);
  if (image == nullptr) reasons->insert(reasons->begin(), reason);
  return image;
}

}  // namespace opdock
