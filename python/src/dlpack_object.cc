// Imports arrays by the Python protocol __dlpack__
// (https://data-apis.org/array-api/latest/design_topics/data_interchange.html).
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "errors.h"
#include "tensor.h"

namespace opdock::python {

namespace {

bool refuse_export(const Where& where, PyObject* object) {
  if (is_passed_on()) return false;
  // Keep the library's own exception as the cause.
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  Py_XINCREF(type);
  Py_XINCREF(value);
  Py_XINCREF(trace);
  PyErr_Restore(type, value, trace);
  const std::string text = take_error_text();
  PyErr_Restore(type, value, trace);
  return refuse(kInvalidArgumentError, where,
                "found an object of type " + type_name(object) +
                    " that its library cannot export (" + text +
                    "), wanted a dense array in memory");
}

// Returns object.__dlpack__(max_version=(1, 3), stream=…), or without max_version for an older
// library that does not know it.
PyObject* call_dlpack(PyObject* object, PyObject* stream) {
  static PyObject* const method = PyUnicode_InternFromString("__dlpack__");
  static PyObject* const version =
      Py_BuildValue("(II)", kDlpackVersion.major, kDlpackVersion.minor);
  static PyObject* const names[] = {nullptr, Py_BuildValue("(s)", "stream"),
                                    Py_BuildValue("(s)", "max_version"),
                                    Py_BuildValue("(ss)", "max_version", "stream")};
  const int has_stream = stream != nullptr ? 1 : 0;
  PyObject* const args[] = {object, version, stream};
  PyObject* capsule = PyObject_VectorcallMethod(method, args, 1, names[2 + has_stream]);
  if (capsule != nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return capsule;
  PyErr_Clear();
  PyObject* const older[] = {object, stream};
  return PyObject_VectorcallMethod(method, older, 1, names[has_stream]);
}

template <typename Managed>
void give_back(void* what) {
  Managed* managed = static_cast<Managed*>(what);
  if (managed->deleter != nullptr) managed->deleter(managed);
}

template <typename Managed>
void destroy_owner(PyObject* owner) {
  give_back<Managed>(PyCapsule_GetPointer(owner, nullptr));
}

// Moves the managed tensor from its capsule to a capsule of this module. The frame holds that one,
// and so does an op that keeps the argument. Returns NULL with an error set.
template <typename Managed>
Managed* consume(Frame& frame, PyObject* capsule, const char* name, const char* used_name) {
  Managed* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed == nullptr || PyCapsule_SetName(capsule, used_name) != 0) return nullptr;
  PyObject* owner = PyCapsule_New(managed, nullptr, destroy_owner<Managed>);
  if (owner == nullptr) {
    give_back<Managed>(managed);
    return nullptr;
  }
  frame.hold(owner);
  Import* import = frame.take<Import>(1);
  *import = {frame.imports, &managed->tensor, owner};
  frame.imports = import;
  return managed;
}

bool take_capsule(Frame& frame, const Where& where, PyObject* object, PyObject* capsule,
                  opdock_tensor** out, bool* read_only, bool* copied) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DlpackManagedVersioned* managed = consume<DlpackManagedVersioned>(
        frame, capsule, "dltensor_versioned", "used_dltensor_versioned");
    if (managed == nullptr) return false;
    if (managed->version.major != kDlpackVersion.major) {
      return refuse(kInvalidArgumentError, where,
                    "found DLPack version " + std::to_string(managed->version.major) +
                        ", wanted 1; use versions of " + type_name(object) +
                        "'s library and of opdock that match");
    }
    *out = &managed->tensor;
    *read_only = (managed->flags & kDlpackReadOnly) != 0;
    *copied = (managed->flags & kDlpackCopied) != 0;
    return true;
  }
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    DlpackManaged* managed = consume<DlpackManaged>(frame, capsule, "dltensor", "used_dltensor");
    if (managed == nullptr) return false;
    *out = &managed->tensor;
    return true;
  }
  return refuse(kInvalidArgumentError, where,
                "found an object of type " + type_name(object) +
                    " whose __dlpack__() gave no DLPack capsule, wanted \"dltensor_versioned\" or "
                    "\"dltensor\"; report it to that library");
}

}  // namespace

bool dlpack_to_tensor(Frame& frame, const Where& where, PyObject* object, PyObject* stream,
                      opdock_tensor** out, bool* read_only, bool* copied) {
  PyObject* capsule = call_dlpack(object, stream);
  if (capsule == nullptr) return refuse_export(where, object);
  const bool ok = take_capsule(frame, where, object, capsule, out, read_only, copied);
  Py_DECREF(capsule);
  return ok;
}

bool dlpack_device(const Where& where, PyObject* object, opdock_device* out) {
  static PyObject* const method = PyUnicode_InternFromString("__dlpack_device__");
  PyObject* pair = PyObject_CallMethodNoArgs(object, method);
  if (pair == nullptr) return refuse_export(where, object);
  long type = -1, index = -1;
  if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
    type = PyLong_AsLong(PyTuple_GET_ITEM(pair, 0));
    index = PyLong_AsLong(PyTuple_GET_ITEM(pair, 1));
  }
  Py_DECREF(pair);
  if (PyErr_Occurred() != nullptr || type < 0) {
    return refuse(kInvalidArgumentError, where,
                  "found an object of type " + type_name(object) +
                      " whose __dlpack_device__() gave no (type, index); report it to its library");
  }
  *out = {static_cast<int32_t>(type), static_cast<int32_t>(index)};
  if (type == kDlpackCudaHost || type == kDlpackRocmHost) *out = {OPDOCK_CPU, 0};
  if (type == kDlpackCudaManaged) out->type = OPDOCK_CUDA;
  return true;
}

}  // namespace opdock::python
