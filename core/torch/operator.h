// An operator of torch and the op that it calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "opdock/opdock.h"
#include "shim.h"

namespace opdock::torch {

// A parameter of the operator. The op's optional generators are none: operators draw from torch's.
struct Parameter {
  uint32_t index;  // of the op's parameter
  uint32_t tag;
  bool is_optional;
  bool is_list;
  bool has_optional_elements;
  bool is_written;
  bool is_on_op_device;
};

// A result of the operator: a result of the op with fresh tensors.
struct Result {
  uint32_t index;  // of the op's result
  bool is_optional;
  bool is_list;
};

struct Operator {
  opdock_function* function = nullptr;
  const opdock_function_info* info = nullptr;
  std::string name;    // without opdock::
  std::string python;  // opdock_python::<name>, or empty
  std::vector<Parameter> parameters;
  std::vector<Result> results;
  uint32_t num_fresh = 0;    // tensors, if their number does not depend on the arguments
  bool is_variable = false;  // it does
  bool is_written = false;   // the op writes into an argument
  bool is_random = false;    // the op draws random numbers
  // A tensor that requires a gradient, while gradients are recorded, is an error: there is no
  // Python to record the call.
  bool refuses_gradients = false;
  // Until an op's plan for a GPU has asked for no workspace. An op without new results is called
  // directly then; if it does need a workspace one day, libopdock allocates it.
  mutable bool needs_workspace = true;
  // Stands for the operator in the recorder; NULL: the recorder does not record it.
  void* recorded = nullptr;
};

// Describes the operator `name` of an op. Returns "" or why the library cannot make it.
std::string describe(opdock_function* function, const std::string& name, Operator* out);

// At which of torch's dispatch keys an operator is called.
enum class Level { kDevice, kAutograd };

// Calls the operator: takes the arguments in `stack` and leaves the results there. Throws.
void call(const Operator& op, Level level, StableIValue* stack);

}  // namespace opdock::torch
