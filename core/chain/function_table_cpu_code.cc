// Compiled CPU code of formulas, for FunctionTable.
// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <thread>

#include "base/mutex.h"
#include "build/formula_code.h"
#include "chain/function_table.h"
#include "report/report.h"

namespace opdock {
namespace {

// Opens a cache of its own, because the runtime may be gone before the work is done.
void compile(const std::string& name, const std::string& source,
             std::atomic<opdock_formula_function>* out) {
  std::vector<Reason> reasons;
  const std::unique_ptr<Cache> cache =
      Cache::open(cache_options_from_environment(&reasons), &reasons);
  const opdock_formula_function code =
      make_formula_code(name, source, cache.get(), nullptr, &reasons);
  if (code != nullptr) out->store(code, std::memory_order_release);
}

// Starts a thread that takes none of the program's signals. Without a thread nothing is compiled.
template <class Work>
void run_in_background(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool FunctionTable::compiles_cpu_code_first() const {
  return runtime_->settings().jit.value == "always" && runtime_->settings().build.value != "never";
}

opdock_formula_function FunctionTable::find_cpu_code(const std::string& name,
                                                     const std::string& source) {
  if (runtime_->is_described()) return nullptr;
  std::vector<Reason> reasons;
  Cache* const cache = runtime_->cache(&reasons);
  return find_formula_code(name, source, cache, &reasons);
}

void FunctionTable::make_cpu_code(const std::string& name, const std::string& source,
                                  std::atomic<opdock_formula_function>* out) {
  if (runtime_->is_described() || !jit_denied(runtime_).empty() ||
      runtime_->settings().build.value == "never")
    return;
  if (!compiles_cpu_code_first()) {
    run_in_background([name, source, out] { compile(name, source, out); });
    return;
  }
  std::vector<Reason> reasons;
  const Waiting waiting(runtime_->hooks());
  const opdock_formula_function code =
      make_formula_code(name, source, runtime_->cache(&reasons), nullptr, &reasons);
  if (code != nullptr) return out->store(code, std::memory_order_release);
  for (const Reason& reason : reasons)
    runtime_->log(1, (name + ": interpreted on the CPU: " + to_text(reason)).c_str());
}

}  // namespace opdock
