// Calls the ops of a built plugin as the host does, but with the test's own host table, so that
// tests cover only the plugin, and what the host checks because the plugin declares it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "opdock/plugin.h"

namespace opdock_test {

enum class Type { kFloat32, kFloat16, kBFloat16, kFloat64, kInt32, kBool, kInt8, kUint8, kInt64 };

opdock_dtype dtype_of(Type type);
std::string name_of(Type type);
// Half a unit in the last place at 1, as a relative error; and half the smallest positive number.
double half_ulp(Type type);
double half_smallest(Type type);
// Returns the nearest number of the type, ties to even; implemented from the definition.
double round_to(Type type, double value);
// Reads or writes one number in memory, which need not be aligned. Writing rounds to the type.
double read_number(Type type, const void* from);
void write_number(Type type, double value, void* to);

// A strided array on the CPU that owns its memory. Elements are read and written as double.
class Array {
 public:
  // Contiguous if `strides` is empty. Strides and `offset`, the first element's position, are in
  // elements; the memory has room for every element.
  Array(Type type, std::vector<int64_t> shape, std::vector<int64_t> strides = {},
        int64_t offset = 0);
  Array(const Array&) = delete;  // the tensor points into it
  Array& operator=(const Array&) = delete;

  Type type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t numel() const;
  // Reads or writes the element with this index in row-major order.
  double get(int64_t index) const;
  void set(int64_t index, double value);
  // Fills with normally distributed random numbers around `mean`, rounded to the type. The same
  // seed gives the same numbers.
  void fill(uint64_t seed, double deviation = 1.0, double mean = 0.0);
  // Number of bytes outside all elements that have changed since construction.
  int64_t gaps_changed() const;
  // Number of elements that still hold the initial byte pattern.
  int64_t unwritten() const;

  opdock_tensor* tensor() { return &tensor_; }
  opdock_value value(uint32_t flags = 0) const;

 private:
  int64_t position(int64_t index) const;

  Type type_;
  std::vector<int64_t> shape_, strides_;
  int64_t offset_;
  std::vector<unsigned char> memory_;
  opdock_tensor tensor_;
};

opdock_value none();
opdock_value number(double value);
opdock_value boolean(bool value);
opdock_value integer(int64_t value);
opdock_value text_value(const opdock_string* text);
opdock_value list_value(const opdock_list* list);

// A kernel launch that a plugin requested from the host. For a GEMM (gemm.h) the kernel is
// OPDOCK_GEMM_1 and `how` is empty.
struct Launch {
  std::string kernel;
  opdock_launch how;
  void* stream;
};

// The GPU that a test pretends the tensors are on.
struct RecordedGpu {
  uint32_t warp_size = 32;
  int32_t type = OPDOCK_CUDA;
  uint32_t arch_major = 9;
  uint32_t multiprocessors = 132;
  uint32_t max_shared_bytes = 0;  // 0: no kernel gets dynamic shared memory
  uint64_t memory_bytes = uint64_t{80} << 30;
};

// While an Answer lives, it answers every question of an op about its fastest variant
// (opdock.tuning/1) with `way`. Only one may exist at a time.
class Answer {
 public:
  using Questions = std::vector<std::pair<uint64_t, uint32_t>>;  // each with the number of variants

  explicit Answer(int32_t way);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  Questions asked;
  const int32_t way;
};

// Names of the host's device functions in the order in which plan called them.
using Reach = std::vector<std::string>;

struct Result {
  opdock_status status = OPDOCK_OK;
  std::string text;
  std::vector<opdock_output> planned;
  // of an op that returns a number or object, not a tensor; the caller owns an object
  opdock_value value = {};
  unsigned char state[64] = {};  // what plan passes to run
  uint64_t workspace_bytes = 0;  // requested by plan and provided to run
  uint64_t random_numbers = 0;   // requested by plan; run then draws with seed 1 and offset 3
};

class Op {
 public:
  // Loads the op from build/plugins/PLUGIN.so; aborts if it does not exist.
  Op(const std::string& plugin, const std::string& name);
  const opdock_op& descriptor() const { return *op_; }

  // outputs: the number of new tensors for these arguments, if the op returns a list. facts: the
  // device's facts; NULL: a CPU's.
  Result plan(const std::vector<opdock_value>& args, int32_t device = OPDOCK_CPU,
              Reach* reach = nullptr, size_t outputs = 1,
              const opdock_device_facts* facts = nullptr) const;
  // Plans and runs into these outputs as if all tensors were on this GPU (or on a GPU with this
  // warp size). Executes nothing; `launches` receives the launches that the plugin requests.
  Result record(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
                const RecordedGpu& gpu, std::vector<Launch>* launches,
                void* stream = nullptr) const;
  Result record(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
                uint32_t warp_size, std::vector<Launch>* launches, void* stream = nullptr) const {
    return record(args, outputs, RecordedGpu{warp_size}, launches, stream);
  }
  // Plans, and runs into these outputs if planning succeeds.
  Result call(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs) const;

 private:
  bool returns_list() const;
  bool returns_value() const;
  // Checks what the host checks by the op's tensor_rules before plan.
  void check_arguments(const std::vector<opdock_value>& args, Result* result) const;
  // Checks what the host checks of the outputs before run, by these rules and for shared memory.
  void check_outputs(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
                     Result* result) const;
  // Runs on this device after change(&call); sets the result's status, text and value.
  template <class Change>
  void run(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
           int32_t device, const Change& change, Result* result) const;

  const opdock_plugin* plugin_ = nullptr;
  const opdock_op* op_ = nullptr;
  // The host's knowledge of the op: its schema and its tensor_rules.
  struct Host;
  static std::shared_ptr<const Host> host_of(const opdock_op* op);
  std::shared_ptr<const Host> host_;
};

}  // namespace opdock_test
