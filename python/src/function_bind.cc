// Converts the arguments of a vectorcall to values in the schema's order.
// SPDX-License-Identifier: Apache-2.0
#include "errors.h"
#include "fast_tensor.h"
#include "function.h"
#include "tensor.h"

namespace opdock::python {

namespace {

std::string call_name(const FunctionInfo& info) {
  return info.name + "()";
}

// Returns the index of the parameter with that name, or -1. Callers' names are interned, so
// comparing pointers usually suffices.
int32_t find_param(const FunctionInfo& info, PyObject* name) {
  for (uint32_t i = 0; i < info.num_params; ++i) {
    if (info.param_names[i] == name) return static_cast<int32_t>(i);
  }
  for (uint32_t i = 0; i < info.num_params; ++i) {
    if (PyUnicode_Compare(info.param_names[i], name) == 0) return static_cast<int32_t>(i);
  }
  return -1;
}

// If the arguments decide the number of results, the caller cannot know how many arrays to pass as
// `out`.
bool takes_out(const FunctionInfo& info) {
  return info.num_fresh > 0 && !info.is_variable;
}

bool is_out(const FunctionInfo& info, PyObject* name) {
  return takes_out(info) && PyUnicode_CompareWithASCIIString(name, "out") == 0;
}

// Returns "; did you mean 'scale'?", or an empty string. known: names separated by ", ".
std::string name_suggestion(PyObject* name, const std::string& known) {
  PyObject* helper = PyImport_ImportModule("opdock._names");
  PyObject* text = helper == nullptr
                       ? nullptr
                       : PyObject_CallMethod(helper, "suggestion", "Os", name, known.c_str());
  const char* chars = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  const std::string found = chars == nullptr ? "" : chars;
  PyErr_Clear();
  Py_XDECREF(helper);
  Py_XDECREF(text);
  return found;
}

bool unknown_name(const FunctionInfo& info, PyObject* name) {
  std::string known;
  for (uint32_t i = 0; i < info.num_params; ++i) {
    known += std::string(i == 0 ? "" : ", ") + info.params[i].name;
  }
  if (takes_out(info)) known += known.empty() ? "out" : ", out";
  const char* text = PyUnicode_AsUTF8(name);
  raise(kArgumentError, call_name(info) + ": found an argument named '" +
                            (text == nullptr ? "?" : text) + "', wanted one of: " + known +
                            name_suggestion(name, known));
  return false;
}

bool too_many(const FunctionInfo& info, Py_ssize_t given) {
  std::string advice;
  if (info.num_positional < info.num_params) {
    const std::string next = info.params[info.num_positional].name;
    advice = "; pass the others by name, such as " + next + "=…";
  }
  raise(kArgumentError, call_name(info) + ": found " + std::to_string(given) +
                            (given == 1 ? " positional argument" : " positional arguments") +
                            ", wanted at most " + std::to_string(info.num_positional) + advice);
  return false;
}

bool fill_defaults(const FunctionInfo& info, opdock_value* values, PyObject* const* objects) {
  for (uint32_t i = 0; i < info.num_params; ++i) {
    if (objects[i] != nullptr) continue;
    const opdock_param& param = info.params[i];
    if ((param.flags & OPDOCK_PARAM_HAS_DEFAULT) == 0) {
      raise(kArgumentError, call_name(info) + ": argument '" + param.name +
                                "' is missing, wanted " + info.declared->schema);
      return false;
    }
    values[i] = param.fallback;
  }
  return true;
}

// Most arguments are plain tensors, so the fast path is tried for these first.
bool convert(const FunctionInfo& info, Frame& frame, const opdock_param& param, PyObject* object,
             opdock_value* value) {
  constexpr uint32_t kOther = OPDOCK_PARAM_LIST | OPDOCK_PARAM_OPTIONAL;
  const bool tensor = param.tag == OPDOCK_TAG_TENSOR && (param.flags & kOther) == 0;
  const bool written = (param.flags & OPDOCK_PARAM_WRITTEN) != 0;
  if (tensor && fast_tensor(frame, object, written, value)) return true;
  const Where where{info.name.c_str(), param.name};
  return tensor ? convert_tensor(frame, where, object, written, value)
                : convert_argument(frame, where, param, object, value);
}

}  // namespace

bool bind_arguments(const FunctionInfo& info, Frame& frame, PyObject* const* args,
                    Py_ssize_t num_args, PyObject* names, uint32_t done, opdock_value* values,
                    PyObject** objects, PyObject** out) {
  if (num_args > static_cast<Py_ssize_t>(info.num_positional)) return too_many(info, num_args);
  const uint32_t given = static_cast<uint32_t>(num_args);
  for (uint32_t i = done; i < given; ++i) {
    objects[i] = args[i];
    if (!convert(info, frame, info.params[i], args[i], &values[i])) return false;
  }
  const Py_ssize_t num_names = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  if (num_names == 0 && given == info.num_params) return true;
  for (uint32_t i = given; i < info.num_params; ++i) objects[i] = nullptr;
  for (Py_ssize_t k = 0; k < num_names; ++k) {
    PyObject* name = PyTuple_GET_ITEM(names, k);
    PyObject* object = args[num_args + k];
    const int32_t found = find_param(info, name);
    if (found < 0) {
      if (!is_out(info, name)) return unknown_name(info, name);
      *out = object == Py_None ? nullptr : object;
      continue;
    }
    const opdock_param& param = info.params[found];
    if (objects[found] != nullptr) {
      raise(kArgumentError, call_name(info) + ": argument '" + param.name +
                                "' was given by position and by name, wanted once");
      return false;
    }
    objects[found] = object;
    if (!convert(info, frame, param, object, &values[found])) return false;
  }
  return fill_defaults(info, values, objects);
}

}  // namespace opdock::python
