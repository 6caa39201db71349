// Declares what the Python package calls in libopdock_torch, which it opens after torch.
// C++ programs call none of this: they link the library, or open it, and the ops are registered.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "opdock/opdock.h"

extern "C" {

// The functions of Python that the library calls. All may be called without the GIL.
struct opdock_torch_python {
  uint32_t struct_size;
  uint32_t reserved;
  // Throws the C++ exception that becomes Opdock's Python exception for `status`.
  void (*raise)(opdock_status status, const char* text);
  // Throws the C++ exception for the Python one that a Python kernel has left in this thread, if it
  // has left one.
  void (*rethrow)();
  int32_t (*allows_tf32)();          // as in opdock_call_options
  int32_t (*wants_deterministic)();  // likewise
  // Returns the op of the operator that computes a gradient of the operator `op`, and registers the
  // operator if there is none yet; `name`, of the operator, is valid as long as the process.
  // gradient: the op's name as declared; NULL for a formula, whose gradient for the parameters
  // `params`, separated by blanks, is a formula too. Throws.
  opdock_function* (*find_gradient)(const char* op, const char* gradient, const char* params,
                                    const char** name);
  // Keeps an exception that one of these functions has thrown in this thread, for the operator
  // opdock_python::raise_left, whose kernel raises it in Python. Returns false for another one.
  bool (*leave)(const std::exception_ptr& error);
};

// How to tell a plain tensor, which no part of torch but the op itself has to see. Offsets are in
// bytes from the beginning of torch's TensorImpl.
struct opdock_torch_layout {
  int64_t keys;      // where the tensor's set of dispatch keys is
  int64_t grad;      // where the address of its autograd data is
  uint64_t allowed;  // the keys that plain tensors may have
};

// [any thread]
// Connects the library with Python, before anything else. OPDOCK_INCOMPATIBLE if this torch is too
// old.
OPDOCK_EXPORT opdock_status opdock_torch_connect(const opdock_torch_python* python, char* error,
                                                 uint32_t error_size);

// [any thread]
// Has operators that are implemented from now on pass plain tensors to the op without entering
// Python. OPDOCK_UNSUPPORTED if this torch does not show the state of a thread that this needs.
OPDOCK_EXPORT opdock_status opdock_torch_set_layout(const opdock_torch_layout* layout, char* error,
                                                    uint32_t error_size);
// [any thread]
// Returns the address of the calling thread's included and excluded dispatch keys, each as its
// difference from the default; NULL if unknown.
OPDOCK_EXPORT const uint64_t* opdock_torch_thread_keys();

// [any thread]
// Opens the library at `path`, which records calls for autograd without Python, for the operators
// that are implemented from now on. build: of the torch in this process, as recorder.h describes
// it. OPDOCK_INCOMPATIBLE if the library cannot be opened, or serves another build of torch.
OPDOCK_EXPORT opdock_status opdock_torch_open_recorder(const char* path, const char* build,
                                                       char* error, uint32_t error_size);
// [any thread]
// Says whether that library records calls (nonzero, as at first) or Python does. For tests.
OPDOCK_EXPORT void opdock_torch_use_recorder(int32_t wanted);

// [any thread]
// Returns the schema with which the library defines the operator in a program without Python, valid
// until the thread's next call; "" for an op that it leaves out there. For tests.
OPDOCK_EXPORT const char* opdock_torch_schema(opdock_function* function, const char* name);

// A tensor of torch, whose address is that of an at::Tensor.
typedef struct AtenTensorOpaque* opdock_torch_tensor;

// [any thread]
// Allocates a planned result from torch's allocator, contiguous and aligned as planned. Returns
// NULL if there is no memory. `tensor` describes it; its shape and strides belong to the result.
OPDOCK_EXPORT opdock_torch_tensor opdock_torch_allocate(const opdock_output* output,
                                                        const opdock_device* device,
                                                        opdock_tensor* tensor);
// [any thread]
// Frees what opdock_torch_allocate has returned, once.
OPDOCK_EXPORT void opdock_torch_release(opdock_torch_tensor tensor);

// [any thread]
// Implements the operator opdock::<name>, which is defined already, for the CPU and for CUDA.
// OPDOCK_UNSUPPORTED for an op that only Python can call.
OPDOCK_EXPORT opdock_status opdock_torch_implement(opdock_function* function, const char* name,
                                                   uint32_t flags, char* error,
                                                   uint32_t error_size);
// Implements the operator also for autograd, where calls that are neither plain nor recorded by the
// recorder go to the operator opdock_python::<name>, which has the same parameters and returns the
// results as one Tensor?[].
#define OPDOCK_TORCH_GUARDED (1u << 0)
// The op is a formula.
#define OPDOCK_TORCH_FORMULA (1u << 1)
}
