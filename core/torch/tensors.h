// Converts between torch's tensors and Opdock's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/opdock.h"
#include "shim.h"

namespace opdock::torch {

// Returns false for a dtype that Opdock does not have. number: torch's.
bool to_dtype(int32_t number, opdock_dtype* out);
// Returns torch's number, or -1 if torch has no such dtype.
int32_t from_dtype(opdock_dtype dtype);

// Returns the device of a torch device, of which the CPU's index is -1.
opdock_device to_device(int32_t type, int32_t index);

// Describes a tensor, whose shape and strides stay torch's. Returns false if torch cannot, or for a
// device or dtype that Opdock does not have.
bool to_tensor(AtenTensorHandle handle, bool written, opdock_tensor* out);

// Allocates a planned result, contiguous and aligned as planned, from torch's allocator; the handle
// is new. `tensor` describes it; its shape and strides belong to the handle. Returns false if there
// is no memory.
bool allocate(const opdock_output& output, opdock_device device, AtenTensorHandle* handle,
              opdock_tensor* tensor);

}  // namespace opdock::torch
