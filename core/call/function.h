// opdock_function: an op by name, before and after it is resolved on the devices it is called on.
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
#include "opdock/opdock.h"
#include "schema/schema.h"

namespace opdock {

// Finds who provides a function on a device. Implemented over the catalogue, and by tests.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // May load, may block; any thread.
  virtual Status resolve(const opdock_function& function, opdock_device device, Target** out) = 0;
  // Makes kernels of `target` ready that are made on demand: `name`, or all if it is NULL. The
  // device's context is current. May compile, may block; any thread.
  virtual Status make_kernels(const opdock_function&, Target*, const char* name) {
    (void)name;
    return {};  // for a resolver that hands none out
  }
  // The library's own kernels for products (gemm/gpu.h) on a device, by their numbers, all loaded.
  // They are kept until the process ends. May compile, may block; any thread.
  virtual Status gemm_kernels(opdock_device device, Driver* driver, Kernels** out) {
    (void)device, (void)driver, (void)out;
    return {OPDOCK_INCOMPATIBLE, "kernels for products cannot be compiled here"};
  }
  // A call on `target` failed with OPDOCK_INCOMPATIBLE. True: because its first kernel could not be
  // made, and nothing was launched; resolve() passes this target over on this thread until
  // end_of_call(), so that the call can be made again on what the chain has further.
  virtual bool give_up(const opdock_function&, Target*) { return false; }
  virtual void end_of_call() {}
  // The thread begins or ceases to wait for another one that is at work.
  virtual void waiting(bool begins) { (void)begins; }
  // Whether the program wants the call that this thread is in to end. Runs the program's code.
  virtual bool cancelled() { return false; }
  // The op's documentation; "" if it cannot be had. Loads the best provider if need be.
  virtual std::string doc(const opdock_function& function) = 0;
  // The generator that ops on `device` draw from if they are given none; NULL if there is none. Any
  // thread; lives as long as the resolver.
  virtual opdock_generator* generator(opdock_device device) {
    (void)device;
    return nullptr;
  }
  // A plugin's line for the program's log. Any thread.
  virtual void log(int32_t level, const char* message);
  // How many threads share the work of an op on the CPU; 0: as many as there are cores.
  virtual uint32_t threads() const { return 0; }
};

inline constexpr int32_t kMaxDevices = 64;  // of one type

}  // namespace opdock

// Any thread. Immutable but for the slots, each set by the first call on its device, until
// forget().
struct opdock_function {
 public:
  // name: as it was asked for, "softmax" or "plugin/softmax". The resolver outlives it.
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
  const char* doc() const;  // loads on first use
  opdock::Resolver* resolver() const { return resolver_; }
  const opdock_param* params() const { return info().params; }
  uint32_t num_params() const { return num_params_; }
  const opdock_result* results() const { return info().results; }
  uint32_t num_results() const { return num_results_; }
  bool writes() const { return writes_; }  // into a Tensor(a!) parameter
  // Results with fresh tensors. If none of them is variable, as many tensors as there are of these.
  uint32_t fresh() const { return fresh_; }
  bool is_variable() const { return is_variable_; }
  // Every result is one fresh tensor: what is planned is what is returned.
  bool returns_tensors() const { return returns_tensors_; }

  // For a quick look at arguments: bit t of element i says that a value of tag t fits parameter i
  // whatever it holds (accept.h looks into tensors and bools). No bits where the op writes.
  const uint32_t* quick_tags() const { return quick_tags_.data(); }

  // The target on `device` if a call has resolved it already, else NULL.
  opdock::Target* known_target(opdock_device device) const {
    if (device.type == OPDOCK_CPU && device.index == 0) return cpu_.load(std::memory_order_acquire);
    const std::atomic<opdock::Target*>* slot = this->slot(device);
    return slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
  }
  // The target on `device`: one atomic read once it is resolved. NULL and an error otherwise.
  opdock::Target* target(opdock_device device, opdock_status* status,
                         const opdock::ErrorBuffer& error) const {
    opdock::Target* found = known_target(device);
    return found != nullptr ? found : resolve(device, status, error);
  }
  // The next call on its device resolves anew, unless another thread has done so already.
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
  mutable opdock::Turn doc_turn_;  // of what follows
  mutable bool doc_known_ = false;
  mutable std::string doc_;
};

namespace opdock {

// opdock_bind.
opdock_status bind(const opdock_function& function, const opdock_value* positional,
                   uint32_t num_positional, const char* const* names, const opdock_value* named,
                   uint32_t num_named, opdock_value* bound, const ErrorBuffer& error);

// Whether `value` fits parameter `param` as it is: by tag, and its list's elements by theirs. Does
// not look into tensors.
bool fits(const opdock_value& value, const opdock_param& param);

// Whether an object has every member through `release`: what the host reads of it, and calls.
inline bool is_whole(const opdock_object& object) {
  return OPDOCK_HAS(&object, opdock_object, release);
}

// "a float", "an object of type aio_handle": what messages call a value.
std::string name_of(const opdock_value& value);

// "found a float, wanted an int; …" for a value that does not fit.
std::string misfit(const opdock_value& value, const opdock_param& param, const SchemaType& type);

}  // namespace opdock
