// SPDX-License-Identifier: Apache-2.0
#include "chain/runtime.h"

#include <cstdio>

#include "opdock/types.hpp"

namespace opdock {

void check_settings(const opdock_runtime& runtime) {
  const std::vector<std::string>& problems = runtime.setting_problems();
  if (!problems.empty()) throw Error(OPDOCK_INVALID_ARGUMENT, problems.front());
}

}  // namespace opdock

namespace {

constexpr int32_t kWarning = 2;

}  // namespace

opdock_runtime::opdock_runtime(const opdock_options* options) {
  search_.environment = opdock::read_search_environment();
  if (options != nullptr && options->struct_size < offsetof(opdock_options, plugin_path)) {
    throw opdock::Error(OPDOCK_INVALID_ARGUMENT,
                        "options: found struct_size " + std::to_string(options->struct_size) +
                            ", wanted sizeof(opdock_options), " +
                            std::to_string(sizeof(opdock_options)) + "; set it before calling");
  }
  const std::vector<std::string> files = opdock::config_files(search_.environment);
  opdock::read_settings(files, search_.environment, options, &settings_, &setting_problems_);
  const bool diagnoses = options != nullptr && (options->flags & OPDOCK_OPTIONS_DIAGNOSE) != 0;
  if (!diagnoses) opdock::check_settings(*this);
  hooks_ = opdock::Hooks::of(options);
  if (options == nullptr) return;
  if (OPDOCK_HAS(options, opdock_options, plugin_path) && options->plugin_path != nullptr) {
    search_.plugin_path = options->plugin_path;
    search_.has_plugin_path = true;
  }
  if (OPDOCK_HAS(options, opdock_options, package_path) && options->package_path != nullptr) {
    search_.package_path = options->package_path;
  }
  if (OPDOCK_HAS(options, opdock_options, log_context)) {
    log_ = options->log;
    log_context_ = options->log_context;
  }
  if (OPDOCK_HAS(options, opdock_options, num_threads)) num_threads_ = options->num_threads;
}

std::shared_ptr<const opdock::MachineFacts> opdock_runtime::machine() {
  {
    const std::lock_guard lock(looked_);
    if (machine_) return machine_;
  }
  const opdock::ForkAwareGuard guard(&looking_);
  return machine_ ? machine_ : look_at_machine();
}

void opdock_runtime::describe(opdock::MachineFacts machine) {
  const opdock::ForkAwareGuard guard(&looking_);
  const std::lock_guard lock(looked_);
  machine_ = std::make_shared<const opdock::MachineFacts>(std::move(machine));
  is_described_ = true;
  catalog_ = nullptr;
}

// The caller holds looking_.
std::shared_ptr<const opdock::MachineFacts> opdock_runtime::look_at_machine() {
  if (is_described_) return machine_;
  auto machine = std::make_shared<const opdock::MachineFacts>(opdock::probe_machine());
  const std::lock_guard lock(looked_);
  return machine_ = std::move(machine);
}

std::shared_ptr<const opdock::Catalog> opdock_runtime::catalog(bool rescan) {
  if (!rescan) {
    const std::lock_guard lock(looked_);
    if (catalog_) return catalog_;
  }
  std::shared_ptr<const opdock::Catalog> found;
  {
    const opdock::ForkAwareGuard guard(&looking_);
    if (catalog_ && !rescan) return catalog_;
    const auto machine = machine_ && !rescan ? machine_ : look_at_machine();
    found = opdock::discover(search_, *machine);
    const std::lock_guard lock(looked_);
    catalog_ = found;
  }
  // Log after the lock is released: the log is the program's code, which may ask for what was just
  // found.
  for (const opdock::Reason& reason : found->notices()) {
    log(kWarning, opdock::to_text(reason).c_str());
  }
  return found;
}

opdock::Cache* opdock_runtime::cache(std::vector<opdock::Reason>* reasons) {
  const opdock::ForkAwareGuard guard(&opening_);
  if (!cache_) {
    std::vector<opdock::Reason> why;
    std::unique_ptr<opdock::Cache> opened =
        opdock::Cache::open(opdock::cache_options_from_environment(&why), &why);
    const opdock::NoFork no_fork;
    cache_ = std::move(opened);
    cache_reasons_ = std::move(why);
  }
  reasons->insert(reasons->end(), cache_reasons_.begin(), cache_reasons_.end());
  return cache_.get();
}

void opdock_runtime::log(int32_t level, const char* message) const {
  if (log_ != nullptr) {
    log_(log_context_, level, message);
  } else if (level >= kWarning) {
    std::fprintf(stderr, "opdock: %s\n", message);
  }
}
