// Fresh outputs: memory of the library whose arrays came in, wrapped as its own type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "opdock/opdock.h"
#include "tensor.h"

namespace opdock::python {

// One output while it is being made. Plain memory from a Frame: set to {} before use.
struct Result {
  opdock_tensor tensor;
  PyObject* object;                 // owned, or NULL until finished
  DlpackManagedVersioned* managed;  // owned, or NULL
  opdock_tensor* host;              // owned; given back by free_tensor(), or NULL
};

// Gives back a tensor that libopdock has allocated; NULL is fine.
void free_tensor(opdock_tensor* tensor);

// Whether a result wants more alignment than the arguments' library gives, so that libopdock
// allocates it.
bool wants_alignment(const Frame& frame, const opdock_plan& plan);

// Whether results for this call are allocated by libopdock (opdock_invoke) and then handed over.
bool results_from_host(const Frame& frame);

// Allocates one planned output, which outlives the result. False with a Python error set; the
// result is then empty.
bool allocate_result(Frame& frame, const opdock_output& output, Result* result);

// Turns the result into the Python object and empties it; a new reference, or NULL with an error.
PyObject* finish_result(const Frame& frame, Result* result);

// Gives back what an unfinished result owns.
void drop_result(Result* result);

// A Python object with __dlpack__ and __dlpack_device__ that owns a tensor libopdock allocated.
PyObject* make_export_type();
PyObject* export_host_tensor(opdock_tensor* tensor);

}  // namespace opdock::python
