// Builds the Python result of a call: new tensors, arguments, numbers, objects and lists of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "function.h"
#include "new_tensor.h"

namespace opdock::python {

inline bool is_fresh(const opdock_result& result) {
  return result.tag == OPDOCK_TAG_TENSOR && result.param < 0;
}

// The new ("fresh") tensors of a call: their number in each result, and their Python objects.
struct Fresh {
  uint32_t count = 0;                // in all
  const uint32_t* counts = nullptr;  // for each result; NULL: one for each new tensor
  Result* tensors = nullptr;
  PyObject** objects = nullptr;  // once they are finished

  uint32_t of(const FunctionInfo& info, uint32_t i) const {
    return counts != nullptr ? counts[i] : is_fresh(info.results[i]) ? 1 : 0;
  }
};

// Returns the call's Python result, with the new tensors in their places: a new reference, or NULL
// with an error set. Steals fresh.objects, and moves objects out of `values`.
PyObject* gather(const FunctionInfo& info, PyObject* const* objects, opdock_value* values,
                 const Fresh& fresh);

// Does the same after converting fresh.tensors to Python objects.
PyObject* finish_all(const FunctionInfo& info, Frame& frame, PyObject* const* objects,
                     opdock_value* values, Fresh& fresh);

// Makes the values of new results point to fresh.tensors, which must be allocated.
void bind_outputs(const FunctionInfo& info, Frame& frame, const Fresh& fresh, opdock_value* values);

// Moves tensors that libopdock allocated from `values` to fresh.tensors.
void take_from_host(const FunctionInfo& info, const Fresh& fresh, opdock_value* values);

}  // namespace opdock::python
