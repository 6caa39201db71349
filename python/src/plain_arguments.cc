// Converts arguments other than tensors: numbers, texts, dtypes, devices, streams, lists.
// SPDX-License-Identifier: Apache-2.0
#include "plain_arguments.h"

#include <cstring>

#include "errors.h"
#include "function.h"
#include "generator.h"
#include "imports.h"
#include "object.h"
#include "streams.h"
#include "tensor.h"

namespace opdock::python {

namespace {

// Returns whether the object is an array. Arrays have __float__ and __index__ too, but these would
// silently wait for the device.
bool is_array(PyObject* object) {
  const TypeEntry* entry = classify(Py_TYPE(object));
  if (entry == nullptr) PyErr_Clear();
  return entry != nullptr && entry->kind != ArrayKind::kNone;
}

bool wrong_type(const Where& where, PyObject* object, const char* wanted) {
  // An error that the object's library raised (such as an overflow) becomes the exception's cause.
  return refuse(kArgumentError, where,
                "found an object of type " + type_name(object) + ", wanted " + std::string(wanted));
}

// Reports a wrong type where a number is wanted; adds advice for arrays, strings and floats.
bool wrong_number(const Where& where, PyObject* object, const char* wanted) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // save the cause: is_array() may clear it
  std::string text(wanted);
  if (is_array(object)) {
    text += "; for an array's single element pass .item()";
  } else if (PyUnicode_Check(object)) {
    text += "; for a str pass float(…) or int(…)";
  } else if (PyFloat_Check(object)) {
    text += "; if it is a whole number, pass int(…)";
  }
  PyErr_Restore(type, value, trace);
  return wrong_type(where, object, text.c_str());
}

bool is_numpy_bool(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  return std::strcmp(name, "numpy.bool") == 0 || std::strcmp(name, "numpy.bool_") == 0;
}

bool convert_bool(const Where& where, PyObject* object, opdock_value* value) {
  if (!PyBool_Check(object) && !is_numpy_bool(object)) {
    return wrong_type(where, object, "a bool: True or False");
  }
  value->as.i64 = PyObject_IsTrue(object);
  return true;
}

bool convert_int(const Where& where, PyObject* object, opdock_value* value) {
  if (!PyLong_CheckExact(object) &&
      (PyBool_Check(object) || !PyIndex_Check(object) || is_array(object))) {
    return wrong_number(where, object, "an int");
  }
  PyObject* number = PyNumber_Index(object);
  int overflow = 0;
  value->as.i64 = number == nullptr ? 0 : PyLong_AsLongLongAndOverflow(number, &overflow);
  Py_XDECREF(number);
  if (overflow != 0) {
    return refuse(kInvalidArgumentError, where,
                  "found an int beyond 64 bits, wanted one from -2**63 to 2**63 - 1");
  }
  return PyErr_Occurred() == nullptr;
}

bool is_number(PyObject* object) {
  const PyNumberMethods* methods = Py_TYPE(object)->tp_as_number;
  return !PyBool_Check(object) && !is_numpy_bool(object) && methods != nullptr &&
         (methods->nb_float != nullptr || methods->nb_index != nullptr) && !is_array(object);
}

bool convert_float(const Where& where, PyObject* object, opdock_value* value) {
  if (PyFloat_CheckExact(object)) {
    value->as.f64 = PyFloat_AS_DOUBLE(object);
    return true;
  }
  constexpr const char* kWanted = "a float";
  if (!is_number(object) || PyComplex_Check(object)) return wrong_number(where, object, kWanted);
  value->as.f64 = PyFloat_AsDouble(object);
  return PyErr_Occurred() == nullptr || wrong_number(where, object, kWanted);
}

bool convert_complex(Frame& frame, const Where& where, PyObject* object, opdock_value* value) {
  constexpr const char* kWanted = "a complex number";
  if (!PyComplex_Check(object) && !is_number(object)) return wrong_number(where, object, kWanted);
  const Py_complex number = PyComplex_AsCComplex(object);
  if (PyErr_Occurred() != nullptr) return wrong_number(where, object, kWanted);
  double* parts = frame.take<double>(2);
  parts[0] = number.real;
  parts[1] = number.imag;
  value->as.c128 = parts;
  return true;
}

bool convert_string(Frame& frame, const Where& where, PyObject* object, opdock_value* value) {
  if (!PyUnicode_Check(object)) return wrong_type(where, object, "a str");
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) {
    return refuse(kInvalidArgumentError, where, "found a str that UTF-8 cannot express");
  }
  opdock_string* string = frame.take<opdock_string>(1);
  *string = {text, static_cast<uint64_t>(size)};
  value->as.str = string;
  return true;
}

// Calls a function of opdock._names, which converts the object to `count` numbers. Returns count,
// or -1 if the function does not know the object.
int ask_names(PyObject* function, PyObject* object, long* numbers, int count) {
  PyObject* found = function == nullptr ? nullptr : PyObject_CallOneArg(function, object);
  if (found == nullptr) return -1;
  const bool known = PyTuple_Check(found) && PyTuple_GET_SIZE(found) == count;
  for (int i = 0; known && i < count; ++i) numbers[i] = PyLong_AsLong(PyTuple_GET_ITEM(found, i));
  Py_DECREF(found);
  return known && PyErr_Occurred() == nullptr ? count : -1;
}

bool convert_dtype(const Where& where, PyObject* object, opdock_value* value) {
  static PyObject* dtype = nullptr;
  long numbers[3];
  if (ask_names(imported("opdock._names", "dtype", &dtype), object, numbers, 3) < 0) {
    return wrong_type(where, object, "a dtype: of torch or NumPy, or a name such as \"float32\"");
  }
  value->as.dtype = {static_cast<uint8_t>(numbers[0]), static_cast<uint8_t>(numbers[1]),
                     static_cast<uint16_t>(numbers[2])};
  return true;
}

bool convert_device(const Where& where, PyObject* object, opdock_value* value) {
  static PyObject* device = nullptr;
  long numbers[2];
  if (ask_names(imported("opdock._names", "device", &device), object, numbers, 2) < 0) {
    return wrong_type(where, object,
                      "a device: torch.device, a text such as \"cuda:0\", or DLPack's pair");
  }
  value->as.device = {static_cast<int32_t>(numbers[0]), static_cast<int32_t>(numbers[1])};
  return true;
}

bool convert_stream(const Where& where, PyObject* object, opdock_value* value) {
  return stream_address(object, &value->as.ptr) || wrong_type(where, object, kWantedStream);
}

bool convert_object(const Where& where, const opdock_param& param, PyObject* object,
                    opdock_value* value) {
  value->as.object = unwrap_object(object);
  if (value->as.object != nullptr) return true;
  return wrong_type(where, object,
                    (std::string("an opdock.Object of type ") + param.object_type).c_str());
}

bool convert_one(Frame& frame, const Where& where, const opdock_param& param, PyObject* object,
                 opdock_value* value) {
  value->tag = param.tag;
  value->flags = 0;
  value->as.i64 = 0;
  switch (param.tag) {
    case OPDOCK_TAG_TENSOR:
      return convert_tensor(frame, where, object, (param.flags & OPDOCK_PARAM_WRITTEN) != 0, value);
    case OPDOCK_TAG_BOOL:
      return convert_bool(where, object, value);
    case OPDOCK_TAG_INT:
      return convert_int(where, object, value);
    case OPDOCK_TAG_FLOAT:
      return convert_float(where, object, value);
    case OPDOCK_TAG_COMPLEX:
      return convert_complex(frame, where, object, value);
    case OPDOCK_TAG_STRING:
      return convert_string(frame, where, object, value);
    case OPDOCK_TAG_DTYPE:
      return convert_dtype(where, object, value);
    case OPDOCK_TAG_DEVICE:
      return convert_device(where, object, value);
    case OPDOCK_TAG_STREAM:
      return convert_stream(where, object, value);
    case OPDOCK_TAG_GENERATOR:
      return convert_generator(frame, where, object, value);
    case OPDOCK_TAG_OBJECT:
      return convert_object(where, param, object, value);
    default:
      return refuse("UnsupportedError", where,
                    "found a parameter of a type that Python cannot pass (value tag " +
                        std::to_string(param.tag) + "); call this op from C or C++");
  }
}

bool is_optional(const opdock_param& param) {
  return (param.flags & OPDOCK_PARAM_OPTIONAL) != 0;
}

bool convert_list(Frame& frame, const Where& where, const opdock_param& param, PyObject* object,
                  opdock_value* value) {
  if (!PyList_Check(object) && !PyTuple_Check(object)) {
    return wrong_type(where, object, "a list or tuple");
  }
  // Copy to a tuple, since another thread may change a list while the op runs.
  PyObject* items = PySequence_Tuple(object);
  if (items == nullptr) return false;
  frame.hold(items);
  const Py_ssize_t count = PyTuple_GET_SIZE(items);
  opdock_value* elements = frame.take<opdock_value>(static_cast<size_t>(count) + 1);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    const Where element{where.function, where.parameter, i};
    if (item == Py_None && (param.flags & OPDOCK_PARAM_OPTIONAL_ELEMENTS) != 0) {
      elements[i] = {OPDOCK_TAG_NONE, 0, {.i64 = 0}};
    } else if (!convert_one(frame, element, param, item, &elements[i])) {
      return false;
    }
  }
  ConvertedList* list = frame.take<ConvertedList>(1);
  *list = {{elements, static_cast<uint64_t>(count)}, items};
  *value = {OPDOCK_TAG_LIST, 0, {.list = &list->list}};
  return true;
}

}  // namespace

bool convert_argument(Frame& frame, const Where& where, const opdock_param& param, PyObject* object,
                      opdock_value* value) {
  if (object == Py_None && is_optional(param)) {
    *value = {OPDOCK_TAG_NONE, 0, {.i64 = 0}};
    return true;
  }
  if ((param.flags & OPDOCK_PARAM_LIST) != 0) {
    return convert_list(frame, where, param, object, value);
  }
  return convert_one(frame, where, param, object, value);
}

bool to_bits(PyObject* object, uint64_t* out) {
  if (PyBool_Check(object) || is_numpy_bool(object) || is_array(object)) return false;
  PyObject* number = PyNumber_Index(object);
  if (number != nullptr) *out = PyLong_AsUnsignedLongLongMask(number);
  Py_XDECREF(number);
  if (PyErr_Occurred() == nullptr) return true;
  clear_error();
  return false;
}

PyObject* value_to_python(const opdock_value& value) {
  switch (value.tag) {
    case OPDOCK_TAG_BOOL:
      return PyBool_FromLong(value.as.i64 != 0);
    case OPDOCK_TAG_INT:
      return PyLong_FromLongLong(value.as.i64);
    case OPDOCK_TAG_FLOAT:
      return PyFloat_FromDouble(value.as.f64);
    case OPDOCK_TAG_COMPLEX:
      return PyComplex_FromDoubles(value.as.c128[0], value.as.c128[1]);
    case OPDOCK_TAG_STRING:
      return PyUnicode_FromStringAndSize(value.as.str->data,
                                         static_cast<Py_ssize_t>(value.as.str->size));
    case OPDOCK_TAG_LIST: {
      const Py_ssize_t count = static_cast<Py_ssize_t>(value.as.list->count);
      PyObject* list = PyList_New(count);
      for (Py_ssize_t i = 0; list != nullptr && i < count; ++i) {
        PyObject* item = value_to_python(value.as.list->data[i]);
        if (item == nullptr) Py_CLEAR(list);
        if (list != nullptr) PyList_SET_ITEM(list, i, item);
      }
      return list;
    }
    default:
      Py_RETURN_NONE;
  }
}

}  // namespace opdock::python
