// Resolves an op's name to code that runs on a device, by the chain, once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "call/function.h"
#include "chain/chain.h"
#include "chain/generators.h"
#include "chain/runtime.h"

namespace opdock {

// The functions of one runtime and their resolutions. Thread-safe.
class FunctionTable : public Resolver {
 public:
  explicit FunctionTable(opdock_runtime* runtime) : runtime_(runtime) {}

  // Implements opdock_get_function.
  Status get(const std::string& name, opdock_function** out);

  // Threads that ask for one op on one device at the same time wait for the first of them. If it is
  // cancelled, another takes over, and so does a child that was forked meanwhile. Different ops do
  // not wait for each other here. If the work itself calls code (hooks, references) that asks for
  // the same op and device, that request fails with OPDOCK_INVALID_ARGUMENT.
  Status resolve(const opdock_function& function, opdock_device device, Target** out) override;
  // The reasons for a failure are kept for this thread's exception and in the op's record.
  // (function_table_kernels.cc)
  Status make_kernels(const opdock_function& function, Target* target, const char* name) override;
  // (function_table_gemm.cc)
  Status gemm_kernels(opdock_device device, Driver* driver, Kernels** out) override;
  // (module.cc)
  Status compile_kernel(opdock_device device, const std::string& name, std::string source,
                        const char* kernel, opdock_kernel** out) override;
  // (function_table_cpu_code.cc)
  opdock_formula_function find_cpu_code(const std::string& name,
                                        const std::string& source) override;
  void make_cpu_code(const std::string& name, const std::string& source, CpuCodeMade* out) override;
  bool compiles_cpu_code_first() const override;
  bool give_up(const opdock_function& function, Target* target) override;
  void end_of_call() override;
  void waiting(bool begins) override;
  bool cancelled() override;
  opdock_generator* generator(opdock_device device) override { return generators_.of(device); }
  void log(int32_t level, const char* message) override { runtime_->log(level, message); }
  uint32_t threads() const override { return runtime_->num_threads(); }
  // Implements opdock_manual_seed.
  void seed(uint64_t seed) { generators_.seed(seed); }
  std::string doc(const opdock_function& function) override;
  std::string formula(const opdock_function& function) override;

  // Returns how the op was resolved on the device or, if it was not yet, how it would be. NULL if
  // no schema is known.
  std::shared_ptr<const ChainRecord> explain(const std::string& name, opdock_device device);

 private:
  // One op on one device.
  struct Resolution {
    ForkAwareLock lock;                         // held by the thread that takes the chain's steps
    Mutex mutex;                                // guards what follows
    std::shared_ptr<const ChainRecord> record;  // the last attempt that came to an end

    std::shared_ptr<const ChainRecord> latest() {
      const std::lock_guard lock(mutex);
      return record;
    }
  };
  std::shared_ptr<Resolution> resolution(const std::string& name, opdock_device device);
  std::shared_ptr<const ChainRecord> attempt(Resolution* slot, const opdock_function& function,
                                             opdock_device device);
  // Adds the reasons to the record's run-time compilation step.
  void record_failure(const opdock_function& function, const Target& target,
                      const std::vector<Reason>& reasons);
  // Returns the function's op as the best provider that loads describes it. If there is none,
  // returns nullptr and sets *source to the source plugin that declares it, if there is one.
  const opdock_op* described(const opdock_function& function,
                             std::shared_ptr<const SourcePlugin>* source);
  // Returns what the first plugin that provides the op declares.
  Declared declared(const ChainRequest& wanted);
  // Finds the schema under this name: that of the best plugin that may serve, else of any. If none
  // can be read, the status's text says what is wrong with one of them, if there is any.
  Status wanted(const std::string& name, ChainRequest* out);

  opdock_runtime* runtime_;
  Mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<opdock_function>> functions_;
  std::map<std::tuple<std::string, int32_t, int32_t>, std::shared_ptr<Resolution>> resolutions_;
  Generators generators_;
};

// Returns the runtime's table, which is made on first use.
FunctionTable& function_table(opdock_runtime* runtime);

}  // namespace opdock
