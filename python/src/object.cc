// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "gil.h"
#include "hooks.h"
#include "opdock/types.hpp"

namespace opdock::python {

namespace {

struct ObjectObject {
  PyObject base;
  opdock_object* object;  // owns one reference
};

PyTypeObject* object_type = nullptr;

opdock_object* object_of(PyObject* self) {
  return reinterpret_cast<ObjectObject*>(self)->object;
}

// State shared by the thread that releases an object and the thread that waits for it.
struct Releasing {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;

  bool wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex);
    return ended.wait_for(lock, most, [this] { return has_ended; });
  }
};

// Starts a thread that releases `object`; returns a thread that is not joinable if none can be
// started.
std::thread start_releasing(opdock_object* object, const std::shared_ptr<Releasing>& state) {
  try {
    return std::thread([object, state] {
      object->release(object);
      const std::lock_guard lock(state->mutex);
      state->has_ended = true;
      state->ended.notify_all();
    });
  } catch (const std::system_error&) {
    return {};
  }
}

// Releases a reference. Releasing the last one may wait for I/O, and for threads that need the GIL.
// Only the main thread handles signals, so there a helper thread releases the object, and the main
// thread stops waiting after Ctrl-C.
void release_object(opdock_object* object) {
  constexpr std::chrono::milliseconds kPause(50);
  const bool is_main = gettid() == getpid();
  const auto state = std::make_shared<Releasing>();
  std::thread helper = is_main ? start_releasing(object, state) : std::thread();
  if (!helper.joinable()) {
    const GilRelease release;
    object->release(object);
    return;
  }
  for (;;) {
    {
      const GilRelease release;
      if (state->wait(kPause)) return helper.join();
    }
    if (is_interrupted()) return helper.detach();
  }
}

void object_destroy(PyObject* self) {
  if (opdock_object* object = object_of(self)) {
    // An object may be destroyed while an exception is set.
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    release_object(object);
    PyErr_Restore(type, value, trace);
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_type(PyObject* self, void*) {
  return PyUnicode_FromString(object_of(self)->type_id);
}
PyObject* get_version(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(object_of(self)->version);
}
PyObject* get_device(PyObject* self, void*) {
  return PyUnicode_FromString(Device(object_of(self)->device).name().c_str());
}

PyObject* object_represent(PyObject* self) {
  const opdock_object& object = *object_of(self);
  return PyUnicode_FromFormat("<opdock object %s %u on %s>", object.type_id, object.version,
                              Device(object.device).name().c_str());
}

PyGetSetDef object_getters[] = {
    {"type", get_type, nullptr, "The type's name, as in schemas.", nullptr},
    {"version", get_version, nullptr, "The version of the type.", nullptr},
    {"device", get_device, nullptr, "The device of its memory, such as \"cpu\".", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot object_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(object_destroy)},
    {Py_tp_repr, reinterpret_cast<void*>(object_represent)},
    {Py_tp_getset, object_getters},
    {Py_tp_doc,
     const_cast<char*>(
         "State that an op has made, to be passed to other ops, such as an I/O handle or "
         "a cache. It is freed with its last reference, in Python or in a plugin.")},
    {0, nullptr}};

PyType_Spec object_spec = {
    "opdock.Object", sizeof(ObjectObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    object_slots};

}  // namespace

PyObject* make_object_type() {
  PyObject* type = PyType_FromSpec(&object_spec);
  object_type = reinterpret_cast<PyTypeObject*>(type);
  return type;
}

PyObject* wrap_object(opdock_object* object) {
  PyObject* self = object_type->tp_alloc(object_type, 0);
  if (self == nullptr) {
    object->release(object);
    return nullptr;
  }
  reinterpret_cast<ObjectObject*>(self)->object = object;
  return self;
}

opdock_object* unwrap_object(PyObject* self) {
  return Py_TYPE(self) == object_type ? object_of(self) : nullptr;
}

}  // namespace opdock::python
