// New results: arrays that the library of the call's arguments allocates, of its own type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "opdock/opdock.h"
#include "tensor.h"

struct AtenTensorOpaque;  // torch's name for a tensor in its stable C interface

namespace opdock::python {

// One output while it is being made. It comes from a Frame's uninitialised memory, so set it to {}
// before use.
struct Result {
  opdock_tensor tensor;
  PyObject* object;                 // owned, or NULL until finished
  DlpackManagedVersioned* managed;  // owned, or NULL
  opdock_tensor* host;              // owned, released by free_tensor(); or NULL
  AtenTensorOpaque* torch;          // owned, a tensor of torch; or NULL
};

// Frees a tensor that libopdock allocated; NULL is allowed.
void free_tensor(opdock_tensor* tensor);

// Returns whether a result needs more alignment than the arguments' library provides, so that
// libopdock must allocate it.
bool wants_alignment(const Frame& frame, const opdock_plan& plan);

// Returns whether libopdock (opdock_invoke) allocates the results of this call, to be handed over
// afterwards.
bool results_from_host(const Frame& frame);

// Allocates one planned output. `output` must outlive *result. Returns false with a Python error
// set; *result is then empty.
bool allocate_result(Frame& frame, const opdock_output& output, Result* result);

// Converts the result to its Python object and empties it; returns a new reference, or NULL with an
// error set.
PyObject* finish_result(const Frame& frame, Result* result);

// Releases what an unfinished result owns.
void drop_result(Result* result);

// make_export_type() creates a Python type with __dlpack__ and __dlpack_device__.
// export_host_tensor() creates an object of it, which takes over a tensor that libopdock allocated.
// These two functions return a new reference, or NULL with an error set; on failure the tensor
// stays the caller's.
PyObject* make_export_type();
PyObject* export_host_tensor(opdock_tensor* tensor);

}  // namespace opdock::python
