// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include <structmember.h>

#include <cstddef>
#include <memory>

#include "cupy_array.h"
#include "errors.h"
#include "fast_tensor.h"
#include "gil.h"
#include "launch_arguments.h"
#include "opdock/types.hpp"
#include "streams.h"
#include "tensor.h"
#include "torch_recording.h"

namespace opdock::python {

namespace {

constexpr size_t kKernelErrorSize = 2048;

struct KernelObject {
  PyObject base;
  vectorcallfunc vectorcall;
  KernelInfo* info;
};

KernelInfo& kernel_info(PyObject* self) {
  return *reinterpret_cast<KernelObject*>(self)->info;
}

// Returns an argument's name in messages: its index from 0, after grid and block.
const char* place(uint32_t index) {
  static constexpr const char* kPlaces[] = {"0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",
                                            "8",  "9",  "10", "11", "12", "13", "14", "15",
                                            "16", "17", "18", "19", "20", "21", "22", "23"};
  return index < std::size(kPlaces) ? kPlaces[index] : "24 or later";
}

// Calls a method of the module for a device; sets *out to the number it returns.
bool ask_module(const KernelInfo& kernel, const char* method, int32_t device, void** out) {
  PyObject* answer = PyObject_CallMethod(kernel.module, method, "i", static_cast<int>(device));
  *out = answer == nullptr ? nullptr : PyLong_AsVoidPtr(answer);
  Py_XDECREF(answer);
  return PyErr_Occurred() == nullptr;
}

// Compiles and loads the kernel on a device, on first use there. Returns NULL with an error set.
[[gnu::noinline]] KernelTarget* load(KernelInfo& kernel, int32_t device) {
  PyObject* answer = PyObject_CallMethod(kernel.module, "_load", "si", kernel.name.c_str(), device);
  void* const handle = answer == nullptr ? nullptr : PyLong_AsVoidPtr(answer);
  Py_XDECREF(answer);
  if (handle == nullptr) return nullptr;
  opdock_kernel_info info = {};
  info.struct_size = sizeof info;
  char error[kKernelErrorSize] = "";
  const opdock_status status =
      opdock_kernel_get_info(static_cast<opdock_kernel*>(handle), &info, error, kKernelErrorSize);
  if (status != OPDOCK_OK) {
    raise_status(status, error);
    return nullptr;
  }
  auto target = std::make_unique<KernelTarget>();
  target->handle = static_cast<opdock_kernel*>(handle);
  target->has_sizes = info.has_params != 0;
  target->sizes.assign(info.param_sizes, info.param_sizes + info.num_params);
  target->kinds = kinds_of(info.image_name, info.num_params);
  return kernel.targets[device] = target.release();
}

inline KernelTarget* target_on(KernelInfo& kernel, int32_t device) {
  if (device < 0 || device >= kMaxDevices) {
    refuse(kInvalidArgumentError, kernel,
           "found device " + std::to_string(device) + ", wanted one below " +
               std::to_string(kMaxDevices));
    return nullptr;
  }
  KernelTarget* target = kernel.targets[device];
  return target != nullptr ? target : load(kernel, device);
}

bool is_array(PyObject* object, bool* failed) {
  PyTypeObject* type = Py_TYPE(object);
  if (object == Py_None || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type) {
    return false;
  }
  const TypeEntry* entry = classify(type);
  *failed = entry == nullptr;
  return entry != nullptr && entry->kind != ArrayKind::kNone;
}

// Converts the arrays among the arguments; the values of all others get the tag OPDOCK_TAG_NONE.
bool take_arrays(KernelInfo& kernel, Frame& frame, PyObject* const* args, uint32_t count,
                 opdock_value* values) {
  for (uint32_t i = 0; i < count; ++i) {
    values[i].tag = OPDOCK_TAG_NONE;
    bool failed = false;
    if (!fast_tensor(frame, args[i], false, &values[i])) {
      if (!is_array(args[i], &failed)) {
        if (failed) return false;
        continue;
      }
      const Where where{kernel.name.c_str(), place(i)};
      if (!convert_tensor(frame, where, args[i], false, &values[i])) return false;
    }
  }
  return true;
}

bool check_devices(const KernelInfo& kernel, const opdock_value* values, uint32_t count,
                   int32_t device) {
  for (uint32_t i = 0; i < count; ++i) {
    if (values[i].tag != OPDOCK_TAG_TENSOR) continue;
    const opdock_device& found = values[i].as.tensor->device;
    if (found.type == kernel.device_type && found.index == device) continue;
    const std::string text =
        found.type == OPDOCK_CPU ? "an array on the CPU" : "an array on " + Device(found).name();
    return refuse(kInvalidArgumentError, kernel,
                  "argument " + std::to_string(i) + ": found " + text + ", wanted one on " +
                      Device(kernel.device_type, device).name() + "; move it there");
  }
  return true;
}

bool choose_stream(const KernelInfo& kernel, Frame& frame, PyObject* given, int32_t device) {
  if (given != nullptr) {
    if (!read_stream(kernel, given, &frame.stream)) return false;
    const TypeEntry *const owner = frame.stream_entry, *in_order = nullptr;
    const bool is_cupy = owner != nullptr && owner->is_cupy;
    if (is_cupy) {
      void* current = nullptr;
      if (!cupy_current_stream(frame.gpu.index, &current)) return false;
      if (current == frame.stream) in_order = owner;
    }
    if (!import_foreign(frame, in_order)) return false;
    // The caller is responsible for ordering CuPy's arrays with the stream that was given.
    if (is_cupy) frame.wait = false;
    return true;
  }
  if (frame.gpu.type != OPDOCK_CPU) return finish_streams(frame);
  return ask_module(kernel, "_stream", device, &frame.stream);
}

PyObject* finish(const KernelInfo& kernel, Frame& frame, opdock_status status, const char* error) {
  if (status != OPDOCK_OK) {
    raise_status(status, (kernel.name + "(): " + error).c_str());
    return nullptr;
  }
  if (frame.wait) {
    std::string problem;
    opdock_status waited = OPDOCK_OK;
    {
      const GilRelease release;
      waited = wait_for_stream(frame.gpu, frame.stream, &problem);
    }
    if (waited != OPDOCK_OK) {
      raise_status(waited, (kernel.name + "(): " + problem).c_str());
      return nullptr;
    }
  }
  Py_RETURN_NONE;
}

// Launches the kernel for a call's arguments; returns None, or NULL with an error set.
PyObject* launch(KernelInfo& kernel, Frame& frame, PyObject* const* args, size_t flagged_count,
                 PyObject* names) {
  const Py_ssize_t given = PyVectorcall_NARGS(flagged_count);
  if (given < 2) {
    refuse(kArgumentError, kernel, "found no grid and block, wanted kernel(grid, block, *args)");
    return nullptr;
  }
  opdock_launch how = {sizeof how, 0, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 0, nullptr, 0, 0};
  if (!read_dims(kernel, "grid", args[0], how.grid) ||
      !read_dims(kernel, "block", args[1], how.block)) {
    return nullptr;
  }
  Extras extras;
  extras.launch = &how;
  const Py_ssize_t num_names = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < num_names; ++i) {
    if (!read_extra(kernel, PyTuple_GET_ITEM(names, i), args[given + i], &extras)) return nullptr;
  }
  PyObject* const* own = args + 2;
  const uint32_t count = static_cast<uint32_t>(given - 2);
  opdock_value* values = frame.take<opdock_value>(count + 1);
  frame.addresses = true;
  if (!take_arrays(kernel, frame, own, count, values) || !check_recording(frame, kernel.name))
    return nullptr;
  int32_t device = kernel.device;
  if (device < 0 && frame.gpu.type != OPDOCK_CPU) device = frame.gpu.index;
  if (device < 0) {
    void* current = nullptr;
    if (!ask_module(kernel, "_device", -1, &current)) return nullptr;
    device = static_cast<int32_t>(reinterpret_cast<intptr_t>(current));
  }
  KernelTarget* target = target_on(kernel, device);
  if (target == nullptr) return nullptr;
  if (target->has_sizes && target->sizes.size() != count) {
    refuse(kArgumentError, kernel,
           "found " + std::to_string(count) + (count == 1 ? " argument" : " arguments") +
               " after grid and block, wanted " + std::to_string(target->sizes.size()));
    return nullptr;
  }
  // This imports arrays of libraries without a stream, which have addresses only afterwards.
  if (!choose_stream(kernel, frame, extras.stream, device) ||
      !check_devices(kernel, values, count, device)) {
    return nullptr;
  }
  void** slots = frame.take<void*>(count + 1);
  void** addresses = frame.take<void*>(count + 1);
  for (uint32_t i = 0; i < count; ++i) {
    if (values[i].tag == OPDOCK_TAG_TENSOR) {
      if (!check_pointer(kernel, *target, i)) return nullptr;
      const opdock_tensor& tensor = *values[i].as.tensor;
      addresses[i] = static_cast<char*>(tensor.data) + tensor.byte_offset;
      slots[i] = &addresses[i];
    } else if (!pack_scalar(frame, kernel, *target, i, own[i], &slots[i])) {
      return nullptr;
    }
  }
  how.args = slots;
  how.num_args = count;
  char error[kKernelErrorSize];
  error[0] = '\0';
  const opdock_status status =
      opdock_launch_kernel(target->handle, frame.stream, &how, error, kKernelErrorSize);
  return finish(kernel, frame, status, error);
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* names) {
  Frame frame;
  return guarded([&] { return launch(kernel_info(self), frame, args, flagged_count, names); });
}

void destroy_kernel(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  KernelInfo* info = reinterpret_cast<KernelObject*>(self)->info;
  if (info != nullptr) {
    for (KernelTarget* target : info->targets) delete target;
    Py_XDECREF(info->module);
    delete info;
  }
  type->tp_free(self);
  Py_DECREF(type);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  KernelInfo* info = reinterpret_cast<KernelObject*>(self)->info;
  if (info != nullptr) Py_VISIT(info->module);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

PyObject* get_kernel_name(PyObject* self, void*) {
  return PyUnicode_FromString(kernel_info(self).name.c_str());
}

// Returns the parameters' sizes from the first device whose driver reports them, else None.
PyObject* get_param_sizes(PyObject* self, void*) {
  for (const KernelTarget* target : kernel_info(self).targets) {
    if (target == nullptr || !target->has_sizes) continue;
    PyObject* list = PyList_New(0);
    for (uint32_t size : target->sizes) {
      PyObject* number = list == nullptr ? nullptr : PyLong_FromUnsignedLong(size);
      if (number == nullptr || PyList_Append(list, number) != 0) Py_CLEAR(list);
      Py_XDECREF(number);
    }
    return list;
  }
  Py_RETURN_NONE;
}

PyObject* represent_kernel(PyObject* self) {
  return PyUnicode_FromFormat("<opdock kernel %s>", kernel_info(self).name.c_str());
}

// Loads the kernel on a device.
PyObject* prepare_kernel(PyObject* self, PyObject* device) {
  return guarded([&]() -> PyObject* {
    const long index = PyLong_AsLong(device);
    if (index == -1 && PyErr_Occurred() != nullptr) return nullptr;
    if (target_on(kernel_info(self), static_cast<int32_t>(index)) == nullptr) return nullptr;
    Py_RETURN_NONE;
  });
}

PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef kernel_getters[] = {
    {"__name__", get_kernel_name, nullptr, "The name that the kernel was requested by.", nullptr},
    {"param_sizes", get_param_sizes, nullptr,
     "The size of each parameter in bytes; None if the driver does not report it.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef kernel_methods[] = {
    {"_prepare", prepare_kernel, METH_O, "Loads the kernel on the GPU with the given index."},
    {nullptr, nullptr, 0, nullptr}};

constexpr char kDoc[] =
    "A kernel: kernel(grid, block, *args, shared=0, stream=None, cluster=None, cooperative=False, "
    "programmatic=False).\n\n"
    "grid, block: an int or a tuple of up to three. args: arrays on the GPU (their address is "
    "passed), ints, floats, bools, None for a null pointer; NumPy scalars, ctypes objects and "
    "bytes of exactly the parameter's size. shared: bytes of dynamic shared memory. stream: a "
    "stream of torch or CuPy, or a handle; the default is the current stream of the arrays' "
    "library. The call enqueues the kernel and returns without waiting.";

PyType_Slot kernel_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_kernel)},
                              {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                              {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                              {Py_tp_repr, reinterpret_cast<void*>(represent_kernel)},
                              {Py_tp_doc, const_cast<char*>(kDoc)},
                              {Py_tp_members, kernel_members},
                              {Py_tp_getset, kernel_getters},
                              {Py_tp_methods, kernel_methods},
                              {0, nullptr}};

PyType_Spec kernel_spec = {"opdock.Kernel", sizeof(KernelObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                               Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                           kernel_slots};

}  // namespace

PyObject* make_kernel_type() {
  return PyType_FromSpec(&kernel_spec);
}

PyObject* make_kernel(PyObject* type, PyObject* module, const std::string& name,
                      opdock_device device) {
  PyTypeObject* kernel_type = reinterpret_cast<PyTypeObject*>(type);
  auto info = std::make_unique<KernelInfo>();
  info->name = name;
  info->device_type = device.type;
  info->device = device.index;
  KernelObject* self = reinterpret_cast<KernelObject*>(kernel_type->tp_alloc(kernel_type, 0));
  if (self == nullptr) return nullptr;
  info->module = Py_NewRef(module);
  self->vectorcall = call;
  self->info = info.release();
  return reinterpret_cast<PyObject*>(self);
}

}  // namespace opdock::python
