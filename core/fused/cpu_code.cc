// SPDX-License-Identifier: Apache-2.0
#include "fused/cpu_code.h"

#include <mutex>
#include <set>

#include "base/mutex.h"
#include "call/invocation.h"
#include "formula/cpu_source.h"

namespace opdock {
namespace {

// A call with so many elements takes the interpreter some tenths of a millisecond.
constexpr int64_t kLarge = 1 << 16;
constexpr int64_t kWorthOpening = 3'000'000;        // nanoseconds
constexpr int64_t kWorthCompiling = 1'000'000'000;  // nanoseconds

struct Causes {
  Mutex mutex;
  std::set<std::string> all;
};
Causes& told = *new Causes;

// Returns whether this process has not yet warned of this cause.
bool is_news(const std::string& cause) {
  const std::lock_guard lock(told.mutex);
  return told.all.insert(cause).second;
}

}  // namespace

// Names would make different code of the same formula.
std::string CpuCode::source() const {
  return formula::cpu_source(graph_.simplified(), formula::kCodeFunction, false);
}

opdock_formula_function CpuCode::consider(Invocation* in, int64_t elements) {
  const int64_t spent = spent_.load(std::memory_order_relaxed);
  Resolver& resolver = *in->function.resolver();
  const bool compiles_first = resolver.compiles_cpu_code_first();
  uint8_t stage = kNew;
  const bool is_worth_opening = spent >= kWorthOpening || (elements >= kLarge && spent > 0);
  if (is_worth_opening || compiles_first) {
    if (stage_.compare_exchange_strong(stage, kLookedUp)) {
      const opdock_formula_function found =
          resolver.find_cpu_code(in->function.schema().name, source());
      if (found != nullptr) made_.code.store(found, std::memory_order_release);
    }
  }
  if (made_.code.load(std::memory_order_acquire) == nullptr &&
      (spent >= kWorthCompiling || compiles_first)) {
    stage = kLookedUp;
    if (stage_.compare_exchange_strong(stage, kAsked))
      resolver.make_cpu_code(in->function.schema().name, source(), &made_);
    warn(in);
  }
  return made_.code.load(std::memory_order_acquire);
}

void CpuCode::warn(Invocation* in) {
  const std::string* const why = made_.failure.load(std::memory_order_acquire);
  uint8_t stage = kAsked;
  if (why == nullptr || !stage_.compare_exchange_strong(stage, kWarned) || !is_news(*why)) return;
  const std::string text = in->function.schema().name +
                           ": interpreted on the CPU instead of compiled, as are other formulas "
                           "for the same cause: " +
                           *why;
  in->function.resolver()->log(2, text.c_str());
}

}  // namespace opdock
