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

void fail(const std::string& why, CpuCodeMade* out) {
  out->failure.store(new std::string(why), std::memory_order_release);
}

// Compiles, or finds what another process has compiled meanwhile. reasons: notices of the cache.
void compile(const std::string& name, const std::string& source, Cache* cache,
             std::vector<Reason> reasons, CpuCodeMade* out) {
  const opdock_formula_function code = make_formula_code(name, source, cache, nullptr, &reasons);
  if (code != nullptr) return out->code.store(code, std::memory_order_release);
  std::string why;
  for (const Reason& reason : reasons) why += (why.empty() ? "" : "; ") + to_text(reason);
  fail(why, out);
}

// Starts a thread that takes none of the program's signals. Returns false if there is no thread.
template <class Work>
bool run_in_background(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool has_begun = true;
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error&) {
    has_begun = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return has_begun;
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
                                  CpuCodeMade* out) {
  if (runtime_->is_described() || !jit_denied(runtime_).empty() ||
      runtime_->settings().build.value == "never")
    return;
  if (!compiles_cpu_code_first()) {
    // The thread opens a cache of its own, because the runtime may be gone before it ends.
    const bool has_begun = run_in_background([name, source, out] {
      std::vector<Reason> reasons;
      const std::unique_ptr<Cache> cache =
          Cache::open(cache_options_from_environment(&reasons), &reasons);
      compile(name, source, cache.get(), std::move(reasons), out);
    });
    if (!has_begun)
      fail("found no further thread, wanted one to compile on; raise `ulimit -u`", out);
    return;
  }
  std::vector<Reason> reasons;
  const Waiting waiting(runtime_->hooks());
  Cache* const cache = runtime_->cache(&reasons);
  compile(name, source, cache, std::move(reasons), out);
}

}  // namespace opdock
