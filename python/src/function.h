// The Python type of an op's function. CPython calls it by the vectorcall protocol.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "frame.h"
#include "opdock/opdock.h"

namespace opdock::python {

// The data of an op that a call needs; it is made once and then only read.
struct FunctionInfo {
  opdock_function* handle = nullptr;
  uint32_t num_params = 0;
  uint32_t num_positional = 0;
  uint32_t num_plain = 0;  // leading positional parameters of type Tensor
  uint32_t num_results = 0;
  uint32_t num_fresh = 0;  // results that are new tensors
  uint64_t written = 0;    // bit i: the op writes into parameter i, such as Tensor(a!)
  bool may_block = false;
  bool is_variable = false;  // the number of new tensors depends on arguments: Tensor?, Tensor[]
  bool draws = false;        // the op draws random numbers
  bool retains = false;      // the op keeps arguments after the call
  bool is_split = false;     // the op's arguments are on several devices
  const opdock_function_info* declared = nullptr;
  const opdock_param* params = nullptr;
  const opdock_result* results = nullptr;
  PyObject* runtime = nullptr;  // keeps the handle alive
  // Called with this function, a tuple and a dict of arguments for a call that torch's autograd
  // records; NULL if there is none.
  PyObject* recorder = nullptr;
  std::string name;
  std::string asked_for;  // the name it was looked up by: "softmax" or "plugin/softmax"
  std::vector<PyObject*> param_names;  // interned
};

struct FunctionObject {
  PyObject base;
  vectorcallfunc vectorcall;
  FunctionInfo* info;
  PyObject* weak_references;
};

inline FunctionInfo& info_of(PyObject* self) {
  return *reinterpret_cast<FunctionObject*>(self)->info;
}

// Creates the Python type; returns a new reference, or NULL with an error set.
PyObject* make_function_type();

// Creates a function object for the handle, which `runtime` (a Python object) keeps alive. Returns
// a new reference, or NULL with an error set.
PyObject* make_function(PyObject* type, PyObject* runtime, opdock_function* handle,
                        const std::string& asked_for);
// Has calls that torch's autograd records be made by `recorder`. Before the first call.
void set_recorder(PyObject* function, PyObject* recorder);
// Returns the FunctionInfo of a function object, or NULL with a TypeError set.
const FunctionInfo* function_info(PyObject* object);

// Calls a function object; CPython's vectorcall convention.
PyObject* call_function(PyObject* self, PyObject* const* args, size_t flagged_count,
                        PyObject* names);

// ---- the steps of a call; each returns false or NULL with a Python error set

// Puts the arguments into the schema's order and converts them. Sets objects[i] to the argument of
// parameter i, borrowed, or to NULL if its default is used. The first `done` arguments are already
// converted and in place. Sets *out to the `out=` argument, if one was given and is not None.
bool bind_arguments(const FunctionInfo& info, Frame& frame, PyObject* const* args,
                    Py_ssize_t num_args, PyObject* names, uint32_t done, opdock_value* values,
                    PyObject** objects, PyObject** out);

// Converts one argument that was given.
bool convert_argument(Frame& frame, const Where& where, const opdock_param& param, PyObject* object,
                      opdock_value* value);

// Returns a value, such as a default, as a Python object; a new reference.
PyObject* value_to_python(const opdock_value& value);

}  // namespace opdock::python
