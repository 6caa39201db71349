// opdock_function: an op by name, with the target that it was resolved to on each device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "base/status.h"
#include "call/describe.h"
#include "call/target.h"
#include "opdock/formula_cpu.h"
#include "opdock/opdock.h"
#include "schema/schema.h"

namespace opdock {

// The outcome of Resolver::make_cpu_code(). Each member is set at most once.
struct CpuCodeMade {
  std::atomic<opdock_formula_function> code{nullptr};
  std::atomic<const std::string*> failure{nullptr};  // why there is no code; never freed
};

// Finds the provider of a function on a device. The catalogue implements it, and so do tests.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // Resolves a function on a device. May load plugins and may block; any thread.
  virtual Status resolve(const opdock_function& function, opdock_device device, Target** out) = 0;
  // Makes ready the kernels of `target` that are compiled on demand: kernel `name`, or all of them
  // if `name` is NULL. The device's context is current. May compile, may block; any thread.
  virtual Status make_kernels(const opdock_function&, Target*, const char* name) {
    (void)name;
    return {};  // for a resolver without kernels on demand
  }
  // Returns the library's own kernels for matrix products (gemm/gpu.h) on a device, by their
  // numbers, all of them loaded. They are kept until the process ends. May compile, may block; any
  // thread.
  virtual Status gemm_kernels(opdock_device device, Driver* driver, Kernels** out) {
    (void)device, (void)driver, (void)out;
    return {OPDOCK_INCOMPATIBLE, "kernels for products cannot be compiled here"};
  }
  // Compiles a kernel of a formula from device source, or finds it in the cache, and loads it on
  // the device. name: of the op, for messages. kernel: its C++ name in the source. May compile, may
  // block; any thread.
  virtual Status compile_kernel(opdock_device device, const std::string& name, std::string source,
                                const char* kernel, opdock_kernel** out) {
    (void)device, (void)name, (void)source, (void)kernel, (void)out;
    return {OPDOCK_INCOMPATIBLE, "formulas cannot be compiled here"};
  }
  // Returns compiled CPU code of a formula (formula/cpu_source.h) that is in the cache; NULL if
  // there is none. name: of the op, for people. Any thread.
  virtual opdock_formula_function find_cpu_code(const std::string& name,
                                                const std::string& source) {
    (void)name, (void)source;
    return nullptr;
  }
  // Compiles CPU code of a formula, on a thread of its own, which may outlive the runtime, or, if
  // compiles_cpu_code_first(), at once. Sets one member of *out, which lives until the process
  // ends, or none if compiling is forbidden. Any thread.
  virtual void make_cpu_code(const std::string& name, const std::string& source, CpuCodeMade* out) {
    (void)name, (void)source, (void)out;
  }
  // Whether a formula's first call on the CPU waits for its code to be compiled.
  virtual bool compiles_cpu_code_first() const { return false; }
  // Called after a call on `target` failed with OPDOCK_INCOMPATIBLE. Returns true if the reason was
  // that the target's first kernel could not be compiled, and nothing was launched. Until
  // end_of_call(), resolve() then skips this target on this thread, so that the caller can retry
  // the call with the next provider of the chain.
  virtual bool give_up(const opdock_function&, Target*) { return false; }
  virtual void end_of_call() {}
  // Tells the resolver that this thread begins or ends waiting for another thread.
  virtual void waiting(bool begins) { (void)begins; }
  // Returns whether the program wants the current call of this thread to end. Runs the program's
  // code.
  virtual bool cancelled() { return false; }
  // Returns the op's documentation; "" if it is not available. Loads the best provider if
  // necessary.
  virtual std::string doc(const opdock_function& function) = 0;
  // Returns the op's formula, in its own layout; "" if it has none, or if it is not available.
  // Loads the best provider if necessary.
  virtual std::string formula(const opdock_function& function) {
    (void)function;
    return "";
  }
  // Returns the generator from which ops on `device` draw if the caller passes none; NULL if there
  // is none. It lives as long as the resolver. Any thread.
  virtual opdock_generator* generator(opdock_device device) {
    (void)device;
    return nullptr;
  }
  // Writes a plugin's line to the program's log. Any thread.
  virtual void log(int32_t level, const char* message);
  // Returns how many threads share the work of a CPU op; 0 means one per core.
  virtual uint32_t threads() const { return 0; }
};

inline constexpr int32_t kMaxDevices = 64;  // of one type

}  // namespace opdock

// Usable from any thread. Immutable except for the slots: the first call on a device sets that
// device's slot, and forget() clears it.
struct opdock_function {
 public:
  // name: as the caller asked for it, "softmax" or "plugin/softmax". The resolver must outlive this
  // object.
  opdock_function(std::string name, opdock::Schema schema, opdock::Resolver* resolver,
                  opdock::Declared declared = {});
  opdock_function(const opdock_function&) = delete;
  opdock_function& operator=(const opdock_function&) = delete;

  const std::string& name() const { return name_; }
  const opdock::Schema& schema() const { return schema_; }
  const std::string& digest() const { return digest_; }
  const opdock_function_info& info() const { return description_.info(); }
  const std::vector<uint8_t>& arg_devices() const { return description_.declared().arg_devices; }
  const std::vector<opdock::ShapeRule>& rules() const { return description_.declared().rules; }
  const char* doc() const;      // loads on first use
  const char* formula() const;  // the same
  opdock::Resolver* resolver() const { return resolver_; }
  const opdock_param* params() const { return info().params; }
  uint32_t num_params() const { return num_params_; }
  const opdock_result* results() const { return info().results; }
  uint32_t num_results() const { return num_results_; }
  bool writes() const { return writes_; }  // into a Tensor(a!) parameter
  // Number of results with fresh tensors. If none of them is variable, it is the number of tensors,
  // too.
  uint32_t fresh() const { return fresh_; }
  bool is_variable() const { return is_variable_; }
  // True if every result is one fresh tensor, so that the planned outputs are the results.
  bool returns_tensors() const { return returns_tensors_; }

  // Tags for the fast check of arguments (accept.h): bit t of element i is set if any value of tag
  // t fits parameter i; accept.h still looks into tensors and bools. No bits are set if the op
  // writes into an argument or if one of its parameters may lie elsewhere than on the op's device.
  const uint32_t* quick_tags() const { return quick_tags_.data(); }

  // Returns the target on `device` if a call has already resolved it, else NULL.
  opdock::Target* known_target(opdock_device device) const {
    if (device.type == OPDOCK_CPU && device.index == 0) return cpu_.load(std::memory_order_acquire);
    const std::atomic<opdock::Target*>* slot = this->slot(device);
    return slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
  }
  // Returns the target on `device`: one atomic read once it is resolved. NULL and an error on
  // failure.
  opdock::Target* target(opdock_device device, opdock_status* status,
                         const opdock::ErrorBuffer& error) const {
    opdock::Target* found = known_target(device);
    return found != nullptr ? found : resolve(device, status, error);
  }
  // Clears the slot of the target's device, so that the next call there resolves again. Has no
  // effect if another thread has already stored another target.
  void forget(opdock::Target* target) const {
    std::atomic<opdock::Target*>* known = slot(target->device);
    if (known != nullptr) known->compare_exchange_strong(target, nullptr);
  }

 private:
  std::atomic<opdock::Target*>* slot(opdock_device device) const {
    if (device.index < 0 || device.index >= opdock::kMaxDevices) return nullptr;
    switch (device.type) {
      case OPDOCK_CPU:
        return device.index == 0 ? &cpu_ : nullptr;
      case OPDOCK_CUDA:
        return &cuda_[static_cast<size_t>(device.index)];
      case OPDOCK_ROCM:
        return &rocm_[static_cast<size_t>(device.index)];
      default:
        return nullptr;
    }
  }
  opdock::Target* resolve(opdock_device device, opdock_status* status,
                          const opdock::ErrorBuffer& error) const;

  std::string name_;
  opdock::Schema schema_;
  std::string digest_;
  opdock::Resolver* resolver_;
  opdock::Description description_;
  std::vector<uint32_t> quick_tags_;
  uint32_t num_params_, num_results_, fresh_;
  bool writes_ = false, is_variable_, returns_tensors_;

  mutable std::atomic<opdock::Target*> cpu_{nullptr};
  mutable std::array<std::atomic<opdock::Target*>, opdock::kMaxDevices> cuda_{}, rocm_{};
  // A text that is in a plugin's code.
  struct LoadedText {
    bool is_known = false;
    std::string text;
  };
  const char* loaded(LoadedText* text,
                     std::string (opdock::Resolver::*find)(const opdock_function&)) const;
  mutable opdock::ForkAwareLock texts_lock_;  // guards the next two members
  mutable LoadedText doc_, formula_;
};

namespace opdock {

// Implements opdock_bind.
opdock_status bind(const opdock_function& function, const opdock_value* positional,
                   uint32_t num_positional, const char* const* names, const opdock_value* named,
                   uint32_t num_named, opdock_value* bound, const ErrorBuffer& error);

// Returns whether `value` fits parameter `param` without conversion: compares its tag, and for a
// list the tags of the elements. Does not look into tensors.
bool fits(const opdock_value& value, const opdock_param& param);

// Returns whether an object's struct extends through `release`, the last member that the host uses.
inline bool is_whole(const opdock_object& object) {
  return OPDOCK_HAS(&object, opdock_object, release);
}

// Names a value for messages: "a float", "an object of type aio_handle".
std::string name_of(const opdock_value& value);

// Describes why a value does not fit: "found a float, wanted an int; …".
std::string misfit(const opdock_value& value, const opdock_param& param, const SchemaType& type);

}  // namespace opdock
