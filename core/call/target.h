// An op on one device: everything that a call needs once the op is resolved and loaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/fork_aware_lock.h"
#include "call/kernels.h"
#include "call/tensor_rules.h"
#include "driver/driver.h"
#include "opdock/plugin.h"
#include "schema/shape_rule.h"

namespace opdock {

class Tuning;

// Lives until the process ends. Members that do not change after construction are read without a
// lock.
struct Target {
  const opdock_op* op = nullptr;
  std::string plugin;  // the plugin's name, for messages
  opdock_device device{};
  const opdock_device_facts* facts = nullptr;
  Driver* driver = nullptr;          // NULL on the CPU
  Kernels* kernels = nullptr;        // NULL on the CPU; shared by the plugin's ops on this device
  Tuning* tuning = nullptr;          // also shared; NULL if nothing is ever tuned
  std::vector<opdock_dtype> dtypes;  // that the deciding tensor may have; empty: any
  // `dtypes` in the form of a fast check: element `code` holds the OR of the `bits` of that code's
  // dtypes, for dtypes of one lane whose bits are a power of two. All bits are set if any dtype may
  // come. Other dtypes are looked up in `dtypes`.
  std::array<uint8_t, 32> dtype_bits{};
  ForkAwareLock* serial = nullptr;  // held while the op works, if it lacks OPDOCK_OP_THREAD_SAFE

  // The initial value of each call's opdock_call: host, device and facts filled in, the rest zero.
  opdock_call call{};

  // The rules by which the host checks the tensors before plan; NULL if the op declares none.
  std::unique_ptr<const TensorRules> tensor_rules;
  // The op's shape rules; empty for an op without fresh tensors (and in tests of the call path).
  std::vector<ShapeRule> rules;
  // How many more plans are compared with the rules.
  std::atomic<uint32_t> plans_to_check{0};

  std::atomic<bool> prepared{false};
  // True if the op is prepared, on the CPU and thread-safe: run needs nothing before or after it.
  std::atomic<bool> runs_directly{false};
  ForkAwareLock preparing;

  bool has_flag(uint32_t flag) const { return (op->flags & flag) != 0; }
  // Checks only dtype_bits, so it also returns false for a dtype that only takes() can look up.
  bool takes_quickly(opdock_dtype dtype) const {
    return dtype.lanes == 1 && dtype.code < dtype_bits.size() &&
           (dtype.bits & (dtype.bits - 1)) == 0 &&
           (dtype_bits.data()[dtype.code] & dtype.bits) != 0;
  }
  bool takes(opdock_dtype dtype) const;
};

// Returns the target of `op` on `device`. The first caller creates it; later calls, from any
// function or runtime of the process, return the same one. Thread-safe. rules: the op's.
Target* intern_target(const opdock_op* op, const std::string& plugin, opdock_device device,
                      const opdock_device_facts* facts, Driver* driver, Kernels* kernels,
                      const std::vector<opdock_dtype>& dtypes, std::vector<ShapeRule> rules = {},
                      Tuning* tuning = nullptr,
                      std::unique_ptr<const TensorRules> tensor_rules = nullptr);

// Facts of the CPU; static.
const opdock_device_facts* cpu_facts();

}  // namespace opdock
