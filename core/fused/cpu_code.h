// Decides when a formula's calls on the CPU use compiled code instead of the interpreter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "call/function.h"
#include "formula/graph.h"
#include "opdock/formula_cpu.h"

namespace opdock {

struct Invocation;

// Says what computes a formula's calls on the CPU.
enum class CpuWay : uint8_t {
  kNone,         // there was no call yet
  kInterpreter,  // formula/interpreter.h
  kPlugin,       // compiled code that the op's plugin brings
  kCompiled,     // code that was compiled while a program ran, this one or an earlier one
};

// The interpreter computes the first call, so that a first result waits for nothing. Code that the
// cache has is opened at the next large call, or once the interpreter has worked for a few
// milliseconds, which is what opening takes in a new process. Code is compiled, in the background,
// once the interpreter has worked for a second, which is about what compiling takes. If that fails,
// the next call warns, on its own thread: the program's log may be gone when the compiler ends.
// Nothing of this happens where the plugin brings the code. Usable from any thread.
class CpuCode {
 public:
  explicit CpuCode(const formula::Graph& graph) : graph_(graph) {}
  CpuCode(const CpuCode&) = delete;
  CpuCode& operator=(const CpuCode&) = delete;

  // Takes the code that a plugin brings; NULL: it has none. Called before any call.
  void bring(opdock_formula_function code) {
    if (code == nullptr) return;
    is_brought_ = true;
    made_.code.store(code, std::memory_order_release);
    stage_.store(kAsked, std::memory_order_relaxed);
  }
  // Returns the code for a call with so many elements; NULL: use the interpreter. May open a file.
  opdock_formula_function get(Invocation* in, int64_t elements) {
    const opdock_formula_function code = made_.code.load(std::memory_order_acquire);
    if (code != nullptr) return code;
    const uint8_t stage = stage_.load(std::memory_order_relaxed);
    if (stage == kWarned) return nullptr;
    if (stage == kAsked && made_.failure.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return consider(in, elements);
  }
  // Says how long the interpreter has worked for a call, on all threads together about as long.
  void interpreted(std::chrono::nanoseconds time) {
    spent_.fetch_add(time.count(), std::memory_order_relaxed);
    keep(CpuWay::kInterpreter);
  }
  // Says that compiled code has computed a call.
  void computed() { keep(is_brought_ ? CpuWay::kPlugin : CpuWay::kCompiled); }
  // Returns what computed the last call.
  CpuWay way() const { return way_.load(std::memory_order_relaxed); }

 private:
  enum Stage : uint8_t { kNew, kLookedUp, kAsked, kWarned };
  opdock_formula_function consider(Invocation* in, int64_t elements);
  // Warns if compiling has failed, once in this process for each cause.
  void warn(Invocation* in);
  std::string source() const;
  // Calls of several threads would pass the cache line around if each of them wrote.
  void keep(CpuWay way) {
    if (way_.load(std::memory_order_relaxed) != way) way_.store(way, std::memory_order_relaxed);
  }

  const formula::Graph& graph_;
  CpuCodeMade made_;
  std::atomic<uint8_t> stage_{kNew};
  std::atomic<CpuWay> way_{CpuWay::kNone};
  bool is_brought_ = false;
  std::atomic<int64_t> spent_{0};  // nanoseconds
};

}  // namespace opdock
