// The Python type opdock.Function.
// SPDX-License-Identifier: Apache-2.0
#include "function.h"

#include <structmember.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "errors.h"
#include "gil.h"

namespace opdock::python {

namespace {

void destroy_function(PyObject* self) {
  if (reinterpret_cast<FunctionObject*>(self)->weak_references != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  FunctionInfo* info = reinterpret_cast<FunctionObject*>(self)->info;
  if (info != nullptr) {
    for (PyObject* name : info->param_names) Py_DECREF(name);
    Py_XDECREF(info->runtime);
    Py_XDECREF(info->recorder);
    delete info;
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* text(std::string_view value) {
  return PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace");
}

PyObject* get_function_name(PyObject* self, void*) {
  return text(info_of(self).name);
}

PyObject* get_schema(PyObject* self, void*) {
  return text(info_of(self).declared->schema);
}

PyObject* get_module(PyObject*, void*) {
  return text("opdock.ops");
}

// Returns the result of a function of opdock._describe, called with this function object.
PyObject* describe(PyObject* self, const char* helper) {
  PyObject* module = PyImport_ImportModule("opdock._describe");
  PyObject* made = module == nullptr ? nullptr : PyObject_CallMethod(module, helper, "O", self);
  Py_XDECREF(module);
  return made;
}

PyObject* get_signature(PyObject* self, void*) {
  return describe(self, "signature");
}
PyObject* get_text_signature(PyObject* self, void*) {
  return describe(self, "text_signature");
}
PyObject* get_doc(PyObject* self, void*) {
  return describe(self, "doc");
}

PyObject* get_op_doc(PyObject* self, void*) {
  const char* doc = nullptr;
  {
    const GilRelease release;  // this may load the plugin
    doc = opdock_function_doc(info_of(self).handle);
  }
  return text(doc);
}

// [(name, value tag, flags, default or None), …]
PyObject* get_params(PyObject* self, void*) {
  const FunctionInfo& info = info_of(self);
  PyObject* list = PyList_New(0);
  for (uint32_t i = 0; list != nullptr && i < info.num_params; ++i) {
    const opdock_param& param = info.params[i];
    PyObject* fallback = value_to_python(param.fallback);
    PyObject* item = fallback == nullptr
                         ? nullptr
                         : Py_BuildValue("(sIIN)", param.name, param.tag, param.flags, fallback);
    if (item == nullptr || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

// [(index of the parameter that the result returns, or -1; value tag; flags), …]
PyObject* get_results(PyObject* self, void*) {
  const FunctionInfo& info = info_of(self);
  PyObject* list = PyList_New(0);
  for (uint32_t i = 0; list != nullptr && i < info.num_results; ++i) {
    const opdock_result& result = info.results[i];
    PyObject* item = Py_BuildValue("(iII)", result.param, result.tag, result.flags);
    if (item == nullptr || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

// [([(index of a parameter, index of its gradient among the op's results), …], op or None,
//   [(kind, index, constant), …], or the reason why there is no op), …]
PyObject* get_gradients(PyObject* self, void*) {
  const opdock_function_info& declared = *info_of(self).declared;
  PyObject* list = PyList_New(0);
  for (uint32_t i = 0; list != nullptr && i < declared.num_gradients; ++i) {
    const opdock_gradient& gradient = declared.gradients[i];
    PyObject* params = PyList_New(0);
    for (uint32_t k = 0; params != nullptr && k < gradient.num_params; ++k) {
      PyObject* pair = Py_BuildValue("(II)", gradient.params[k], gradient.results[k]);
      if (pair == nullptr || PyList_Append(params, pair) != 0) Py_CLEAR(params);
      Py_XDECREF(pair);
    }
    PyObject* args = gradient.op == nullptr ? text(gradient.why) : PyList_New(0);
    for (uint32_t k = 0; gradient.op != nullptr && args != nullptr && k < gradient.num_args; ++k) {
      const opdock_gradient_arg& arg = gradient.args[k];
      PyObject* constant = value_to_python(arg.constant);
      PyObject* item =
          constant == nullptr ? nullptr : Py_BuildValue("(IIN)", arg.kind, arg.index, constant);
      if (item == nullptr || PyList_Append(args, item) != 0) Py_CLEAR(args);
      Py_XDECREF(item);
    }
    PyObject* item = params == nullptr || args == nullptr
                         ? nullptr
                         : Py_BuildValue("(OzO)", params, gradient.op, args);
    if (item == nullptr || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(params);
    Py_XDECREF(args);
    Py_XDECREF(item);
  }
  return list;
}

PyObject* represent_function(PyObject* self) {
  return PyUnicode_FromFormat("<opdock function %s>", info_of(self).declared->schema);
}

// Implements pickling by name: another process finds its own plugin.
PyObject* reduce(PyObject* self, PyObject*) {
  PyObject* module = PyImport_ImportModule("opdock");
  PyObject* load = module == nullptr ? nullptr : PyObject_GetAttrString(module, "load");
  Py_XDECREF(module);
  return load == nullptr ? nullptr : Py_BuildValue("N(s)", load, info_of(self).asked_for.c_str());
}

PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FunctionObject, weak_references), READONLY,
     nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef function_getters[] = {
    {"__name__", get_function_name, nullptr, "The op's name.", nullptr},
    {"__qualname__", get_function_name, nullptr, "The op's name.", nullptr},
    {"__module__", get_module, nullptr, "\"opdock.ops\"", nullptr},
    {"__doc__", get_doc, nullptr, nullptr, nullptr},
    {"__signature__", get_signature, nullptr, "An inspect.Signature.", nullptr},
    {"__text_signature__", get_text_signature, nullptr, "The parameters and defaults.", nullptr},
    {"schema", get_schema, nullptr, "The op's schema, such as \"f(Tensor x) -> Tensor\".", nullptr},
    {"_op_doc", get_op_doc, nullptr, "The op's description in its plugin.", nullptr},
    {"_params", get_params, nullptr, "(name, value tag, flags, default) of each parameter.",
     nullptr},
    {"_results", get_results, nullptr,
     "(returned parameter or -1, value tag, flags) of each result.", nullptr},
    {"_gradients", get_gradients, nullptr,
     "(parameters, op, arguments or the reason for none) of each gradient.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef function_methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

PyType_Slot function_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_function)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_repr, reinterpret_cast<void*>(represent_function)},
                                {Py_tp_members, function_members},
                                {Py_tp_getset, function_getters},
                                {Py_tp_methods, function_methods},
                                {0, nullptr}};

PyType_Spec function_spec = {"opdock.Function", sizeof(FunctionObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                             function_slots};

std::unique_ptr<FunctionInfo> read_info(opdock_function* handle) {
  auto info = std::make_unique<FunctionInfo>();
  info->handle = handle;
  const opdock_function_info& declared = *opdock_describe(handle);
  info->declared = &declared;
  info->name = declared.name;
  info->params = declared.params;
  info->num_params = declared.num_params;
  info->results = declared.results;
  info->num_results = declared.num_results;
  constexpr uint32_t kOther = OPDOCK_PARAM_LIST | OPDOCK_PARAM_OPTIONAL | OPDOCK_PARAM_KEYWORD_ONLY;
  for (uint32_t i = 0; i < info->num_params; ++i) {
    const opdock_param& param = info->params[i];
    if ((param.flags & OPDOCK_PARAM_KEYWORD_ONLY) == 0) info->num_positional = i + 1;
    if ((param.flags & OPDOCK_PARAM_WRITTEN) != 0) info->written |= uint64_t{1} << i;
    const bool plain = param.tag == OPDOCK_TAG_TENSOR && (param.flags & kOther) == 0;
    if (plain && info->num_plain == i) info->num_plain = i + 1;
    info->is_split = info->is_split || param.device != OPDOCK_ON_OP_DEVICE;
  }
  for (uint32_t i = 0; i < info->num_results; ++i) {
    const opdock_result& result = info->results[i];
    if (result.tag != OPDOCK_TAG_TENSOR || result.param >= 0) continue;
    ++info->num_fresh;
    info->is_variable = info->is_variable || result.flags != 0;
  }
  info->may_block = (declared.flags & (OPDOCK_OP_MAY_BLOCK | OPDOCK_OP_HOST_SYNC)) != 0;
  info->draws = (declared.flags & OPDOCK_OP_RANDOM) != 0;
  info->retains = (declared.flags & OPDOCK_OP_RETAINS) != 0;
  return info;
}

}  // namespace

PyObject* make_function_type() {
  return PyType_FromSpec(&function_spec);
}

PyObject* make_function(PyObject* type, PyObject* runtime, opdock_function* handle,
                        const std::string& asked_for) {
  std::unique_ptr<FunctionInfo> info = read_info(handle);
  info->asked_for = asked_for;
  for (uint32_t i = 0; i < info->num_params; ++i) {
    PyObject* name = PyUnicode_InternFromString(info->params[i].name);
    if (name == nullptr) return nullptr;
    info->param_names.push_back(name);
  }
  PyTypeObject* function_type = reinterpret_cast<PyTypeObject*>(type);
  FunctionObject* self =
      reinterpret_cast<FunctionObject*>(function_type->tp_alloc(function_type, 0));
  if (self == nullptr) return nullptr;
  info->runtime = Py_NewRef(runtime);
  self->vectorcall = call_function;
  self->info = info.release();
  return reinterpret_cast<PyObject*>(self);
}

void set_recorder(PyObject* function, PyObject* recorder) {
  info_of(function).recorder = Py_NewRef(recorder);
}

const FunctionInfo* function_info(PyObject* object) {
  if (Py_TYPE(object)->tp_dealloc == destroy_function) return &info_of(object);
  PyErr_SetString(PyExc_TypeError, "wanted a function that opdock.load() returned");
  return nullptr;
}

}  // namespace opdock::python
