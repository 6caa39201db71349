// Makes the call of an op whose arguments have been converted, in whatever way torch passed them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "call_memory.h"
#include "operator.h"

namespace opdock::torch {

// A call of an op: its arguments, and its results once it has been made.
struct Converted {
  opdock_value* values = nullptr;          // of all the op's parameters
  opdock_device device = {OPDOCK_CPU, 0};  // where results are allocated
  opdock_device gpu = {OPDOCK_CPU, 0};     // that of the first tensor on a GPU
  void* record = nullptr;                  // of the recorder; run() takes it
  AtenTensorHandle* fresh = nullptr;       // the new tensors, which are the caller's
  const uint32_t* counts = nullptr;        // of each result's tensors; NULL: each has one
  bool has_device = false;

  // Takes note of the device of a tensor among the arguments.
  void see(const Parameter& parameter, opdock_device where) {
    if (!has_device && parameter.is_on_op_device) {
      has_device = true;
      device = where;
    }
    if (where.type != OPDOCK_CPU && gpu.type == OPDOCK_CPU) gpu = where;
  }
};

// Plans the call, allocates its results and runs it. The memory of what it leaves in `call` is the
// arena's. Throws.
void run(const Operator& op, Arena* arena, Converted* call);

}  // namespace opdock::torch
