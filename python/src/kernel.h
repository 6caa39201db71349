// The Python type opdock.Kernel: a kernel that opdock.compile() made, launched by calling it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "frame.h"
#include "opdock/compile.h"

namespace opdock::python {

// What is known of a parameter beyond its size, from the kernel's mangled name.
enum class ParamKind : uint8_t {
  kUnknown,  // extern "C", or a type of the program's own
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
  std::vector<ParamKind> kinds;  // as many as sizes
};

inline constexpr int kMaxDevices = 64;

struct KernelInfo {
  PyObject* module = nullptr;  // the opdock.Module, which loads the kernel on a device
  std::string name;
  int32_t device_type = OPDOCK_CUDA;
  int32_t device = -1;  // the module's; -1: the one that the arguments lie on
  KernelTarget* targets[kMaxDevices] = {};
};

// Creates the Python type; a new reference or NULL with an error set.
PyObject* make_kernel_type();
// A kernel object; a new reference, or NULL with an error set. device: its index may be -1.
PyObject* make_kernel(PyObject* type, PyObject* module, const std::string& name,
                      opdock_device device);

// The kinds that the parameters have by the name in the image; all unknown where it does not tell.
std::vector<ParamKind> kinds_of(const char* image_name, uint32_t num_params);

// Packs argument `index` of the launch, which is no array, into *slot; what it points at is the
// frame's. False with a Python error set.
bool pack_scalar(Frame& frame, const KernelInfo& kernel, const KernelTarget& target, uint32_t index,
                 PyObject* object, void** slot);
// Whether a parameter takes an array's address; false with a Python error set.
bool check_pointer(const KernelInfo& kernel, const KernelTarget& target, uint32_t index);

}  // namespace opdock::python
