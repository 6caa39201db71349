// Hands memory that libopdock allocated to Python libraries, by the __dlpack__ protocol.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "errors.h"
#include "gil.h"
#include "new_tensor.h"

namespace opdock::python {

namespace {

struct ExportObject {
  PyObject base;
  opdock_tensor* tensor;  // owned until __dlpack__ has handed it over
};

PyTypeObject* export_type = nullptr;

void destroy(PyObject* self) {
  free_tensor(reinterpret_cast<ExportObject*>(self)->tensor);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

template <typename Managed>
void release(Managed* managed) {
  free_tensor(static_cast<opdock_tensor*>(managed->context));
  delete managed;
}

// Destructor of a capsule. One that was not consumed still owns its tensor.
template <typename Managed>
void destroy_capsule(PyObject* capsule) {
  const char* name = PyCapsule_GetName(capsule);
  if (name != nullptr && std::strncmp(name, "used_", 5) == 0) return;
  Managed* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed != nullptr) managed->deleter(managed);
}

template <typename Managed>
PyObject* make_capsule(opdock_tensor* tensor, const char* name) {
  Managed* managed = new Managed{};
  managed->tensor = *tensor;
  managed->context = tensor;
  managed->deleter = release<Managed>;
  if constexpr (requires { managed->version; }) managed->version = kDlpackVersion;
  PyObject* capsule = PyCapsule_New(managed, name, destroy_capsule<Managed>);
  if (capsule == nullptr) delete managed;
  return capsule;
}

// Implements __dlpack__. Any stream is fine, because the call has already waited for the device.
PyObject* dlpack(PyObject* self, PyObject*, PyObject* names) {
  ExportObject* object = reinterpret_cast<ExportObject*>(self);
  if (object->tensor == nullptr) {
    PyErr_SetString(PyExc_BufferError, "this result has been handed over already");
    return nullptr;
  }
  PyObject* version = names == nullptr ? nullptr : PyDict_GetItemString(names, "max_version");
  const bool versioned = version != nullptr && PyTuple_Check(version) &&
                         PyTuple_GET_SIZE(version) == 2 &&
                         PyLong_AsLong(PyTuple_GET_ITEM(version, 0)) >= 1;
  PyErr_Clear();
  PyObject* capsule = guarded([&] {
    return versioned ? make_capsule<DlpackManagedVersioned>(object->tensor, "dltensor_versioned")
                     : make_capsule<DlpackManaged>(object->tensor, "dltensor");
  });
  if (capsule != nullptr) object->tensor = nullptr;
  return capsule;
}

PyObject* dlpack_device(PyObject* self, PyObject*) {
  const opdock_tensor* tensor = reinterpret_cast<ExportObject*>(self)->tensor;
  if (tensor == nullptr) {
    PyErr_SetString(PyExc_BufferError, "this result has been handed over already");
    return nullptr;
  }
  return Py_BuildValue("(ii)", tensor->device.type, tensor->device.index);
}

PyMethodDef methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(dlpack)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)}, {Py_tp_methods, methods}, {0, nullptr}};

PyType_Spec spec = {"opdock._Export", sizeof(ExportObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

PyObject* make_export_type() {
  PyObject* type = PyType_FromSpec(&spec);
  export_type = reinterpret_cast<PyTypeObject*>(type);
  return type;
}

PyObject* export_host_tensor(opdock_tensor* tensor) {
  PyObject* self = export_type->tp_alloc(export_type, 0);
  if (self != nullptr) reinterpret_cast<ExportObject*>(self)->tensor = tensor;
  return self;
}

}  // namespace opdock::python
