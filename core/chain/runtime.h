// The runtime behind opdock.h: options, environment, machine facts and the catalogue, each made on
// first use and shared from then on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "cache/cache.h"
#include "chain/hooks.h"
#include "chain/settings.h"
#include "discover/catalog.h"
#include "facts/machine.h"
#include "opdock/opdock.h"

// Every member function may be called from any thread.
struct opdock_runtime {
 public:
  // options may be NULL. Reads the environment; touches no plugin, device or driver. Throws
  // opdock::Error if the options are invalid.
  explicit opdock_runtime(const opdock_options* options);
  opdock_runtime(const opdock_runtime&) = delete;
  opdock_runtime& operator=(const opdock_runtime&) = delete;

  // Returns every plugin found, judged on machine(). The first caller builds the catalogue while
  // others wait; with `rescan`, the machine is probed and the catalogue built again. Catalogues
  // handed out before stay valid.
  std::shared_ptr<const opdock::Catalog> catalog(bool rescan = false);
  // Returns the facts that the current catalogue was, or will be, judged on.
  std::shared_ptr<const opdock::MachineFacts> machine();

  // Judges plugins for that machine instead of this one from now on; nothing can be loaded then.
  void describe(opdock::MachineFacts machine);
  bool is_described() const { return is_described_; }

  // Returns the cache of what was compiled and built before, which the first caller opens. Never
  // NULL: a cache that cannot be used always misses, and its reason is appended each time.
  opdock::Cache* cache(std::vector<opdock::Reason>* reasons);

  // Hands a line to the program's log, or to stderr (warnings and errors only). level: 0 debug,
  // 1 info, 2 warning, 3 error.
  void log(int32_t level, const char* message) const;

  uint32_t num_threads() const { return num_threads_; }  // 0: the number of usable cores
  const opdock::SearchOptions& search() const { return search_; }
  const opdock::Settings& settings() const { return settings_; }
  // Problems of the settings, one text per place; not empty only with OPDOCK_OPTIONS_DIAGNOSE.
  const std::vector<std::string>& setting_problems() const { return setting_problems_; }
  const opdock::Hooks& hooks() const { return hooks_; }

  // The function_table() of this runtime, guarded by its own lock and destroyed with the runtime.
  std::shared_ptr<void> functions;
  // The functions of formulas (formula_functions.cc), likewise. They use the others, and so they
  // are destroyed before them.
  std::shared_ptr<void> formulas;

 private:
  std::shared_ptr<const opdock::MachineFacts> look_at_machine();

  opdock::SearchOptions search_;
  opdock::Settings settings_;
  std::vector<std::string> setting_problems_;
  opdock::Hooks hooks_;
  void (*log_)(void* context, int32_t level, const char* message) = nullptr;
  void* log_context_ = nullptr;
  uint32_t num_threads_ = 0;

  opdock::ForkAwareLock looking_;  // held by the thread that looks at the machine and the folders
  opdock::Mutex looked_;           // guards the two below
  std::shared_ptr<const opdock::MachineFacts> machine_;
  std::shared_ptr<const opdock::Catalog> catalog_;
  std::atomic<bool> is_described_{false};
  opdock::ForkAwareLock opening_;  // guards the two below
  std::unique_ptr<opdock::Cache> cache_;
  std::vector<opdock::Reason> cache_reasons_;
};

namespace opdock {

// Throws Error if the settings are invalid. Called before anything that depends on them.
void check_settings(const opdock_runtime& runtime);

}  // namespace opdock
