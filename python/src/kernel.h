// The Python type opdock.Kernel: a kernel of opdock.compile(), which a call launches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "frame.h"
#include "opdock/compile.h"

namespace opdock::python {

// The kind of a parameter, as far as the kernel's mangled name tells.
enum class ParamKind : uint8_t {
  kUnknown,  // extern "C", or one of the program's own types
  kInt,
  kFloat,
  kHalf,
  kBfloat16,
  kPointer,
};

// The kernel on one device.
struct KernelTarget {
  opdock_kernel* handle = nullptr;
  bool has_sizes = false;
  std::vector<uint32_t> sizes;
  std::vector<ParamKind> kinds;  // one for each element of `sizes`
};

inline constexpr int kMaxDevices = 64;

struct KernelInfo {
  PyObject* module = nullptr;  // the opdock.Module, which loads the kernel on a device
  std::string name;
  int32_t device_type = OPDOCK_CUDA;
  int32_t device = -1;  // the module's; -1: that of the arguments
  KernelTarget* targets[kMaxDevices] = {};
};

// Creates the Python type; returns a new reference, or NULL with an error set.
PyObject* make_kernel_type();
// Creates a kernel object; returns a new reference, or NULL with an error set. device: the index
// may be -1.
PyObject* make_kernel(PyObject* type, PyObject* module, const std::string& name,
                      opdock_device device);

// Returns the kinds of the parameters, from the kernel's name in the image; kUnknown for all if the
// name does not tell them.
std::vector<ParamKind> kinds_of(const char* image_name, uint32_t num_params);

// Packs the argument `index` of the launch, which is no array. Sets *slot to memory of the frame.
// Returns false with a Python error set.
bool pack_scalar(Frame& frame, const KernelInfo& kernel, const KernelTarget& target, uint32_t index,
                 PyObject* object, void** slot);
// Returns whether the parameter accepts an array's address; false with a Python error set.
bool check_pointer(const KernelInfo& kernel, const KernelTarget& target, uint32_t index);

}  // namespace opdock::python
