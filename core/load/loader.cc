// SPDX-License-Identifier: Apache-2.0
#include "load/loader.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <tuple>

#include "base/fork_aware_lock.h"
#include "base/guarded.h"
#include "base/mutex.h"
#include "fmt/format.h"
#include "load/descriptor.h"
#include "load/mapped.h"
#include "load/open.h"
#include "opdock/opdock.h"

namespace opdock {
namespace {

// The registry's entry for one file content. The thread that loads it holds the lock, so a second
// thread that wants the same plugin waits, and one that wants another plugin does not.
struct Slot {
  ForkAwareLock lock;  // protects the following members
  bool is_done = false;
  std::unique_ptr<LoadedPlugin> plugin;
  std::vector<Reason> reasons;
  MissingDependency missing;  // after a failure: what the file lacked
};

using StampKey = std::tuple<uint64_t, uint64_t, uint64_t, int64_t, int64_t>;

// Never destroyed: plugins outlive every runtime, and other threads may still run at exit.
struct Registry {
  Mutex mutex;
  std::map<StampKey, std::shared_ptr<Slot>> slots;
};
Registry& registry = *new Registry;

std::shared_ptr<Slot> slot_of(const FileStamp& stamp) {
  const std::lock_guard lock(registry.mutex);
  std::shared_ptr<Slot>& slot =
      registry.slots[{stamp.device, stamp.inode, stamp.size, stamp.mtime_ns, stamp.ctime_ns}];
  if (!slot) slot = std::make_shared<Slot>();
  return slot;
}

// Returns whether the next attempt may succeed: nothing is wrong with the content itself.
bool is_passing(const std::vector<Reason>& reasons) {
  for (const Reason& reason : reasons) {
    if (reason.code == Code::kFileChanged) return true;
  }
  return false;
}

const opdock_plugin* call_entry(void* handle, const std::string& path,
                                std::vector<Reason>* reasons) {
  using Entry = const opdock_plugin* (*)();
  const Entry entry = reinterpret_cast<Entry>(dlsym(handle, OPDOCK_ENTRY_NAME));
  if (entry == nullptr) {
    reasons->push_back(make_reason(Code::kEntryMissing, path + " without " OPDOCK_ENTRY_NAME,
                                   "the entry function"));
    return nullptr;
  }
  std::string problem = "NULL";
  try {
    if (const opdock_plugin* descriptor = entry()) return descriptor;
  } catch (...) {
    problem = text_of_exception();
  }
  reasons->push_back(
      make_reason(Code::kEntryFailed, problem + " from " OPDOCK_ENTRY_NAME, "a descriptor"));
  return nullptr;
}

bool call_init(const opdock_plugin& descriptor, const opdock_host* host,
               std::vector<Reason>* reasons) {
  if (!OPDOCK_HAS(&descriptor, opdock_plugin, init) || descriptor.init == nullptr) return true;
  std::array<char, 1024> error{};
  std::string problem;
  try {
    const opdock_status status =
        descriptor.init(host, error.data(), static_cast<uint32_t>(error.size()));
    if (status == OPDOCK_OK) return true;
    error.back() = '\0';
    problem = fmt::format("status {} ({})", status, opdock_status_name(status));
    if (error.front() != '\0') problem += std::string(": ") + error.data();
  } catch (...) {
    problem = text_of_exception();
  }
  reasons->push_back(make_reason(Code::kInitFailed, problem, "ok from init"));
  return false;
}

std::unique_ptr<LoadedPlugin> load_now(const std::shared_ptr<const Candidate>& candidate,
                                       const opdock_host* host, std::vector<Reason>* reasons) {
  const Note& note = *candidate->file.note;
  void* handle = open_candidate(*candidate, reasons);
  if (handle == nullptr) return nullptr;
  // The mapped memory is checked before any function of the plugin is called.
  const std::span<const uint8_t> images = mapped_images(handle, candidate->file, reasons);
  if (!reasons->empty()) return nullptr;
  check_image_table(images, note, reasons);
  if (!reasons->empty()) return nullptr;
  const opdock_plugin* descriptor = call_entry(handle, candidate->path, reasons);
  if (descriptor == nullptr) return nullptr;
  if (!check_descriptor(*descriptor, note, reasons)) return nullptr;
  if (!call_init(*descriptor, host, reasons)) return nullptr;
  return std::make_unique<LoadedPlugin>(LoadedPlugin{candidate, descriptor, handle, images});
}

}  // namespace

const LoadedPlugin* load(const std::shared_ptr<const Candidate>& candidate, const opdock_host* host,
                         std::vector<Reason>* reasons) {
  if (candidate->verdict.state == State::kRejected || !candidate->file.note) {
    reasons->insert(reasons->end(), candidate->verdict.reasons.begin(),
                    candidate->verdict.reasons.end());
    return nullptr;
  }
  const std::shared_ptr<Slot> slot = slot_of(candidate->stamp);
  const ForkAwareGuard guard(&slot->lock);
  if (!guard) {
    reasons->push_back(deadlock_reason(candidate->path + " to be loaded"));
    return nullptr;
  }
  if (!slot->is_done || (slot->plugin == nullptr && slot->missing.may_be_available())) {
    std::vector<Reason> why;
    std::unique_ptr<LoadedPlugin> plugin;
    if (guard.was_poisoned()) {
      // The loader has half mapped the file, or its constructors or init have half run.
      why.push_back(poisoned_reason(candidate->path + " loaded, or no thread opening it"));
    } else {
      plugin = load_now(candidate, host, &why);
    }
    MissingDependency missing(why);
    const NoFork no_fork;
    slot->plugin = std::move(plugin);
    slot->missing = std::move(missing);
    slot->reasons = std::move(why);
    slot->is_done = slot->plugin != nullptr || !is_passing(slot->reasons);
  }
  reasons->insert(reasons->end(), slot->reasons.begin(), slot->reasons.end());
  return slot->plugin.get();
}

}  // namespace opdock
