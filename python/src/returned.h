// What a call returns to Python: fresh tensors, arguments, numbers, objects and lists of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "function.h"
#include "results.h"

namespace opdock::python {

inline bool is_fresh(const opdock_result& result) {
  return result.tag == OPDOCK_TAG_TENSOR && result.param < 0;
}

// The fresh tensors of a call: how many each result has, and what they become.
struct Fresh {
  uint32_t count = 0;                // in all
  const uint32_t* counts = nullptr;  // of each result; NULL: one of each that is a fresh tensor
  Result* tensors = nullptr;
  PyObject** objects = nullptr;  // once they are finished

  uint32_t of(const FunctionInfo& info, uint32_t i) const {
    return counts != nullptr ? counts[i] : is_fresh(info.results[i]) ? 1 : 0;
  }
};

// What Python gets back, fresh tensors in order between the others; a new reference, or NULL with
// an error set. Steals fresh.objects, and takes objects out of `values`.
PyObject* gather(const FunctionInfo& info, PyObject* const* objects, opdock_value* values,
                 const Fresh& fresh);

// The same with fresh.tensors, which become Python's first.
PyObject* finish_all(const FunctionInfo& info, Frame& frame, PyObject* const* objects,
                     opdock_value* values, Fresh& fresh);

// Points the values of fresh results at fresh.tensors, which are allocated.
void point_at(const FunctionInfo& info, Frame& frame, const Fresh& fresh, opdock_value* values);

// Takes tensors that libopdock has allocated out of the values, into fresh.tensors.
void take_from_host(const FunctionInfo& info, const Fresh& fresh, opdock_value* values);

}  // namespace opdock::python
