// An op on one device: what a call needs once everything is resolved and loaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/turn.h"
#include "call/kernels.h"
#include "driver/driver.h"
#include "opdock/plugin.h"
#include "schema/shape_rule.h"

namespace opdock {

class Tuning;

// Lives until the process ends. What does not change after construction is read without a lock.
struct Target {
  const opdock_op* op = nullptr;
  std::string plugin;  // its name, for messages
  opdock_device device{};
  const opdock_device_facts* facts = nullptr;
  Driver* driver = nullptr;          // NULL on the CPU
  Kernels* kernels = nullptr;        // NULL on the CPU; shared by the plugin's ops on this device
  Tuning* tuning = nullptr;          // likewise; NULL: nothing is ever tuned
  std::vector<opdock_dtype> dtypes;  // what the deciding tensor may have; empty: anything
  // The same for a quick look: the bits of the dtypes of element `code`, or-ed, for one lane and
  // bits that are a power of two; all set if anything may come. What is odd is looked up in
  // `dtypes`.
  std::array<uint8_t, 32> dtype_bits{};
  Turn* serial = nullptr;  // held while the op works, if it lacks OPDOCK_OP_THREAD_SAFE

  // What a call of the op starts from: host, device and facts filled in, the rest zero.
  opdock_call call{};

  // The op's shape rules; empty for one without fresh tensors (and in tests of the call path).
  std::vector<ShapeRule> rules;
  // How many more plans are compared with them.
  std::atomic<uint32_t> plans_to_check{0};

  std::atomic<bool> prepared{false};
  // Prepared, on the CPU and thread-safe: nothing is to be done around run.
  std::atomic<bool> runs_directly{false};
  Turn preparing;

  bool has_flag(uint32_t flag) const { return (op->flags & flag) != 0; }
  // false also for what is odd.
  bool takes_quickly(opdock_dtype dtype) const {
    return dtype.lanes == 1 && dtype.code < dtype_bits.size() &&
           (dtype.bits & (dtype.bits - 1)) == 0 &&
           (dtype_bits.data()[dtype.code] & dtype.bits) != 0;
  }
  bool takes(opdock_dtype dtype) const;
};

// The target of `op` on `device`, made by the first caller; asking again gives the same one, for
// every function and runtime of the process. Thread-safe. rules: the op's.
Target* intern_target(const opdock_op* op, const std::string& plugin, opdock_device device,
                      const opdock_device_facts* facts, Driver* driver, Kernels* kernels,
                      const std::vector<opdock_dtype>& dtypes, std::vector<ShapeRule> rules = {},
                      Tuning* tuning = nullptr);

// Facts of the CPU; static.
const opdock_device_facts* cpu_facts();

}  // namespace opdock
