// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <structmember.h>

#include <cstddef>
#include <cstring>

#include "errors.h"
#include "tensor.h"

namespace opdock::python {

namespace {

struct GeneratorObject {
  PyObject base;
  opdock_generator generator;
};

PyTypeObject* generator_type = nullptr;

// A Python int of any size, reduced to 64 bits; false with an error set for what is none.
bool to_bits(PyObject* number, const char* what, uint64_t* out) {
  if (!PyLong_Check(number)) {
    raise(kArgumentError, std::string("Generator(): argument '") + what +
                              "': found an object of type " + type_name(number) +
                              ", wanted an int");
    return false;
  }
  *out = PyLong_AsUnsignedLongLongMask(number);
  return PyErr_Occurred() == nullptr;
}

PyObject* generator_create(PyTypeObject* type, PyObject* args, PyObject* names) {
  static const char* const kNames[] = {"seed", "offset", nullptr};
  PyObject *seed = nullptr, *offset = nullptr;
  if (PyArg_ParseTupleAndKeywords(args, names, "O|O", const_cast<char**>(kNames), &seed, &offset) ==
      0) {
    return nullptr;
  }
  opdock_generator made{};
  made.struct_size = sizeof made;
  if (!to_bits(seed, "seed", &made.seed) ||
      (offset != nullptr && !to_bits(offset, "offset", &made.offset))) {
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) reinterpret_cast<GeneratorObject*>(self)->generator = made;
  return self;
}

void generator_destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* generator_represent(PyObject* self) {
  const opdock_generator& it = reinterpret_cast<GeneratorObject*>(self)->generator;
  return PyUnicode_FromFormat("opdock.Generator(%llu, offset=%llu)",
                              static_cast<unsigned long long>(it.seed),
                              static_cast<unsigned long long>(it.offset));
}

PyMemberDef generator_members[] = {
    {"seed", T_ULONGLONG, offsetof(GeneratorObject, generator) + offsetof(opdock_generator, seed),
     0, "Which sequence: 64 bits."},
    {"offset", T_ULONGLONG,
     offsetof(GeneratorObject, generator) + offsetof(opdock_generator, offset), 0,
     "The position of the next number; calls advance it."},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot generator_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(generator_create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(generator_destroy)},
    {Py_tp_repr, reinterpret_cast<void*>(generator_represent)},
    {Py_tp_members, generator_members},
    {Py_tp_doc, const_cast<char*>(
                    "Generator(seed, offset=0)\n--\n\nA sequence of random numbers and a position "
                    "in it, for the `generator` of ops that draw some. Calls that share one may "
                    "run at once: each gets numbers of its own.")},
    {0, nullptr}};

PyType_Spec generator_spec = {"opdock.Generator", sizeof(GeneratorObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, generator_slots};

bool is_torch_generator(PyObject* object) {
  return std::strcmp(Py_TYPE(object)->tp_name, "torch._C.Generator") == 0;
}

}  // namespace

PyObject* make_generator_type() {
  PyObject* type = PyType_FromSpec(&generator_spec);
  generator_type = reinterpret_cast<PyTypeObject*>(type);
  return type;
}

bool convert_generator(Frame& frame, const Where& where, PyObject* object, opdock_value* value) {
  frame.has_generator = true;
  if (Py_TYPE(object) == generator_type) {
    value->as.generator = &reinterpret_cast<GeneratorObject*>(object)->generator;
    return true;
  }
  opdock_generator* generator = frame.take<opdock_generator>(1);
  *generator = {};
  generator->struct_size = sizeof *generator;
  value->as.generator = generator;
  if (is_torch_generator(object)) {
    frame.torch_generator = object;
    return true;
  }
  PyObject* seed = object;
  PyObject* offset = nullptr;
  if (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2) {
    seed = PyTuple_GET_ITEM(object, 0);
    offset = PyTuple_GET_ITEM(object, 1);
  }
  if (!PyLong_CheckExact(seed) || (offset != nullptr && !PyLong_CheckExact(offset))) {
    return refuse(kArgumentError, where,
                  "found an object of type " + type_name(object) +
                      ", wanted an opdock.Generator, a torch.Generator, a seed (an int) or a pair "
                      "(seed, offset)");
  }
  generator->seed = PyLong_AsUnsignedLongLongMask(seed);
  if (offset != nullptr) generator->offset = PyLong_AsUnsignedLongLongMask(offset);
  return true;
}

bool reserve_from_torch(Frame& frame, uint64_t count, opdock_generator** out) {
  const bool is_torch =
      frame.model_entry != nullptr && frame.model_entry->kind == ArrayKind::kTorch;
  if (frame.torch_generator == nullptr && (frame.has_generator || !is_torch)) return true;
  PyObject* helper = PyImport_ImportModule("opdock._torch");
  PyObject* reserved =
      helper == nullptr
          ? nullptr
          : PyObject_CallMethod(helper, "reserve_random", "OK(ii)",
                                frame.torch_generator == nullptr ? Py_None : frame.torch_generator,
                                static_cast<unsigned long long>(count), frame.device.type,
                                frame.device.index);
  Py_XDECREF(helper);
  if (reserved == nullptr) return false;
  frame.hold(reserved);  // the seed's memory among it
  opdock_generator* generator = frame.take<opdock_generator>(1);
  *generator = {};
  generator->struct_size = sizeof *generator;
  generator->seed = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(reserved, 0));
  generator->offset = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(reserved, 1));
  generator->device_seed =
      static_cast<const uint64_t*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(reserved, 2)));
  *out = generator;
  return PyErr_Occurred() == nullptr;
}

}  // namespace opdock::python
