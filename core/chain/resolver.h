// From an op's name to code that runs on a device, by the chain, once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/mutex.h"
#include "base/turn.h"
#include "call/function.h"
#include "chain/chain.h"
#include "chain/generators.h"
#include "chain/runtime.h"

namespace opdock {

// The functions of one runtime, and what became of them. Any thread.
class FunctionTable : public Resolver {
 public:
  explicit FunctionTable(opdock_runtime* runtime) : runtime_(runtime) {}

  // opdock_get_function.
  Status get(const std::string& name, opdock_function** out);

  // Threads that ask for one op on one device at the same time wait for the first of them; if it is
  // cancelled, another takes over, and so does a child that was forked meanwhile. Different ops do
  // not wait for each other here. What the work itself calls (hooks, references) and asks for the
  // same is OPDOCK_INVALID_ARGUMENT.
  Status resolve(const opdock_function& function, opdock_device device, Target** out) override;
  // Why it failed is kept for this thread's exception and in the op's record. (resolver_kernels.cc)
  Status make_kernels(const opdock_function& function, Target* target, const char* name) override;
  Status gemm_kernels(opdock_device device, Driver* driver, Kernels** out) override;
  bool give_up(const opdock_function& function, Target* target) override;
  void end_of_call() override;
  void waiting(bool begins) override;
  bool cancelled() override;
  opdock_generator* generator(opdock_device device) override { return generators_.of(device); }
  void log(int32_t level, const char* message) override { runtime_->log(level, message); }
  uint32_t threads() const override { return runtime_->num_threads(); }
  // opdock_manual_seed.
  void seed(uint64_t seed) { generators_.seed(seed); }
  std::string doc(const opdock_function& function) override;

  // What became of the op on the device, or else what would. NULL: no schema is known.
  std::shared_ptr<const ChainRecord> explain(const std::string& name, opdock_device device);

 private:
  // One op on one device.
  struct Resolution {
    Turn turn;                                  // of the thread that takes the chain's steps
    Mutex mutex;                                // of what follows
    std::shared_ptr<const ChainRecord> record;  // of the last attempt that came to an end

    std::shared_ptr<const ChainRecord> latest() {
      const std::lock_guard lock(mutex);
      return record;
    }
  };
  std::shared_ptr<Resolution> resolution(const std::string& name, opdock_device device);
  std::shared_ptr<const ChainRecord> attempt(Resolution* slot, const opdock_function& function,
                                             opdock_device device);
  // Adds to the step that was to compile what it could not.
  void record_failure(const opdock_function& function, const Target& target,
                      const std::vector<Reason>& reasons);
  // What the first plugin that provides it declares.
  Declared declared(const Wanted& wanted);
  // The schema under this name: of the best plugin that may serve, else of any. Where none can be
  // read, the text says what is wrong with one of them, if there is any.
  Status wanted(const std::string& name, Wanted* out);

  opdock_runtime* runtime_;
  Mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<opdock_function>> functions_;
  std::map<std::tuple<std::string, int32_t, int32_t>, std::shared_ptr<Resolution>> resolutions_;
  Generators generators_;
};

// The runtime's, made on first use.
FunctionTable& function_table(opdock_runtime* runtime);

}  // namespace opdock
