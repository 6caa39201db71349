// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <cstring>

#include "errors.h"
#include "imports.h"
#include "plain_arguments.h"
#include "tensor.h"

namespace opdock::python {

namespace {

struct GeneratorObject {
  PyObject base;
  opdock_generator generator;
};

PyTypeObject* generator_type = nullptr;

// Reads 64 bits from an int. Returns false with an error set for anything else.
bool read_bits(PyObject* number, const char* what, uint64_t* out) {
  if (to_bits(number, out)) return true;
  raise(kArgumentError,
        std::string(what) + ": found an object of type " + type_name(number) + ", wanted an int");
  return false;
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
  if (!read_bits(seed, "Generator(): argument 'seed'", &made.seed) ||
      (offset != nullptr && !read_bits(offset, "Generator(): argument 'offset'", &made.offset))) {
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

// One of a generator's two numbers, for the getter and setter. Access is atomic, because calls on
// other threads advance the offset.
struct Number {
  const char* name;
  uint64_t opdock_generator::* member;
};
Number seed_number = {"Generator.seed", &opdock_generator::seed};
Number offset_number = {"Generator.offset", &opdock_generator::offset};

PyObject* get_number(PyObject* self, void* which) {
  const auto member = static_cast<const Number*>(which)->member;
  const uint64_t& number = reinterpret_cast<GeneratorObject*>(self)->generator.*member;
  return PyLong_FromUnsignedLongLong(__atomic_load_n(&number, __ATOMIC_RELAXED));
}

int set_number(PyObject* self, PyObject* object, void* which) {
  const Number& number = *static_cast<const Number*>(which);
  if (object == nullptr) {
    PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", number.name);
    return -1;
  }
  uint64_t bits = 0;
  if (!read_bits(object, number.name, &bits)) return -1;
  uint64_t& place = reinterpret_cast<GeneratorObject*>(self)->generator.*number.member;
  __atomic_store_n(&place, bits, __ATOMIC_RELAXED);
  return 0;
}

PyGetSetDef generator_numbers[] = {
    {"seed", get_number, set_number, "The sequence's seed, 64 bits.", &seed_number},
    {"offset", get_number, set_number, "The position of the next number; calls advance it.",
     &offset_number},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot generator_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(generator_create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(generator_destroy)},
    {Py_tp_repr, reinterpret_cast<void*>(generator_represent)},
    {Py_tp_getset, generator_numbers},
    {Py_tp_doc,
     const_cast<char*>(
         "Generator(seed, offset=0)\n--\n\nA sequence of random numbers and a position "
         "in it, for the argument `generator` of ops that draw random numbers. Calls that share "
         "a generator may run at the same time: each gets its own part of the sequence.")},
    {0, nullptr}};

PyType_Spec generator_spec = {"opdock.Generator", sizeof(GeneratorObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, generator_slots};

// Returns the name of the op's generator parameter, which must exist.
const char* generator_parameter(const FunctionInfo& info) {
  uint32_t i = 0;
  while (i + 1 < info.num_params && info.params[i].tag != OPDOCK_TAG_GENERATOR) ++i;
  return info.params[i].name;
}

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
  if (!to_bits(seed, &generator->seed) ||
      (offset != nullptr && !to_bits(offset, &generator->offset))) {
    return refuse(kArgumentError, where,
                  "found an object of type " + type_name(object) +
                      ", wanted an opdock.Generator, a torch.Generator, a seed (an int) or a pair "
                      "(seed, offset)");
  }
  return true;
}

bool reserve_from_torch(const FunctionInfo& info, Frame& frame, uint64_t count,
                        opdock_generator** out) {
  const bool is_torch =
      frame.model_entry != nullptr && frame.model_entry->kind == ArrayKind::kTorch;
  if (frame.torch_generator == nullptr && (frame.has_generator || !is_torch)) return true;
  static PyObject* slot = nullptr;
  PyObject* reserve = imported("opdock._torch", "reserve_random", &slot);
  PyObject* reserved =
      reserve == nullptr
          ? nullptr
          : PyObject_CallFunction(
                reserve, "OK(ii)",
                frame.torch_generator == nullptr ? Py_None : frame.torch_generator,
                static_cast<unsigned long long>(count), frame.device.type, frame.device.index);
  if (reserved == nullptr) return false;
  frame.hold(reserved);  // it also owns the memory of a device seed
  if (PyUnicode_Check(reserved)) {
    return refuse(kInvalidArgumentError, {info.name.c_str(), generator_parameter(info)},
                  text_of(reserved));
  }
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
