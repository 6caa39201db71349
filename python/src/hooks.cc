// SPDX-License-Identifier: Apache-2.0
#include "hooks.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dlpack_abi.h"
#include "errors.h"
#include "function.h"
#include "gil.h"
#include "imports.h"

namespace opdock::python {

namespace {

struct PendingError {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
};
thread_local PendingError kept;

void keep_error() {
  if (kept.type != nullptr) {  // the caller gets the first one
    PyErr_Clear();
    return;
  }
  PyErr_Fetch(&kept.type, &kept.value, &kept.trace);
}

// Returns f(), called with the GIL; returns `otherwise` if the interpreter is shutting down.
template <typename F>
auto with_gil(F&& f, decltype(f()) otherwise) {
  if (Py_IsInitialized() == 0) return otherwise;
  const Gil gil;
  return block_on_forced_unwind(f);
}

int32_t cancelled(void*) {
  const auto ask = [] {
    if (kept.type != nullptr) return 1;
    if (PyErr_CheckSignals() == 0) return 0;
    keep_error();
    // If the call had nothing left to cancel and succeeds, this raises the error afterwards.
    Py_AddPendingCall([](void*) { return raise_kept_error() ? -1 : 0; }, nullptr);
    return 1;
  };
  return with_gil(ask, 1);
}

// The hook `waiting`. The call may hold the GIL or not, and waits may nest, since a hook's Python
// code may start another one. So each end reacquires exactly what its own begin released.
void waiting(void*, int32_t begins) {
  thread_local std::vector<PyThreadState*> given_up;
  if (begins != 0) {
    given_up.push_back(nullptr);
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) given_up.back() = PyEval_SaveThread();
    return;
  }
  PyThreadState* const state = given_up.back();
  given_up.pop_back();
  if (state != nullptr) take_gil(state);
}

// Returns opdock._fallback.<name>(*arguments); steals `arguments`. Returns NULL with an error set.
PyObject* call_helper(const char* name, PyObject* arguments) {
  PyObject* module = arguments == nullptr ? nullptr : PyImport_ImportModule("opdock._fallback");
  PyObject* helper = module == nullptr ? nullptr : PyObject_GetAttrString(module, name);
  PyObject* result = helper == nullptr ? nullptr : PyObject_CallObject(helper, arguments);
  Py_XDECREF(helper);
  Py_XDECREF(module);
  Py_XDECREF(arguments);
  return result;
}

int32_t has_reference(void*, const char* op, const char* file) {
  const auto ask = [=] {
    PyObject* answer = call_helper("has", Py_BuildValue("(sz)", op, file));
    const int yes = answer == nullptr ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (yes < 0) PyErr_WriteUnraisable(nullptr);
    return yes > 0 ? 1 : 0;
  };
  return with_gil(ask, 0);
}

// Returns ([(name, is keyword only, is the generator), …], [index of the parameter that the result
// returns, or -1, …]).
PyObject* describe(opdock_function* function) {
  const opdock_function_info& info = *opdock_describe(function);
  PyObject* names = PyList_New(0);
  for (uint32_t i = 0; names != nullptr && i < info.num_params; ++i) {
    const bool keyword_only = (info.params[i].flags & OPDOCK_PARAM_KEYWORD_ONLY) != 0;
    const bool is_generator = info.params[i].tag == OPDOCK_TAG_GENERATOR;
    PyObject* item = Py_BuildValue("(sOO)", info.params[i].name, keyword_only ? Py_True : Py_False,
                                   is_generator ? Py_True : Py_False);
    if (item == nullptr || PyList_Append(names, item) != 0) Py_CLEAR(names);
    Py_XDECREF(item);
  }
  PyObject* returned = PyList_New(0);
  for (uint32_t i = 0; returned != nullptr && i < info.num_results; ++i) {
    PyObject* number = PyLong_FromLong(info.results[i].param);
    if (number == nullptr || PyList_Append(returned, number) != 0) Py_CLEAR(returned);
    Py_XDECREF(number);
  }
  return Py_BuildValue("(NN)", names, returned);
}

// Handles an exception of open_reference(). An ordinary one becomes a text for the report. An error
// that is no Exception (KeyboardInterrupt), or a warning that was turned into an error, is kept and
// reaches the caller unchanged.
opdock_status open_failed(char* error, uint32_t error_size) {
  const bool is_ordinary =
      PyErr_ExceptionMatches(PyExc_Exception) != 0 && PyErr_ExceptionMatches(PyExc_Warning) == 0;
  if (!is_ordinary) {
    keep_error();
    return OPDOCK_CANCELLED;
  }
  std::snprintf(error, error_size, "%s", take_error_text().c_str());
  return OPDOCK_NOT_FOUND;
}

opdock_status open_reference(void*, opdock_function* function, opdock_device device,
                             const char* file, const char* record, void** out, char* error,
                             uint32_t error_size) {
  const auto open = [=]() -> opdock_status {
    PyObject* arguments =
        Py_BuildValue("(N(ii)zs)", describe(function), device.type, device.index, file, record);
    PyObject* made = call_helper("open_reference", arguments);
    if (made == nullptr) return open_failed(error, error_size);
    if (PyUnicode_Check(made)) {  // the reason why its file has none
      const char* why = PyUnicode_AsUTF8(made);
      std::snprintf(error, error_size, "%s", why == nullptr ? "" : why);
      PyErr_Clear();
      Py_DECREF(made);
      return OPDOCK_NOT_FOUND;
    }
    *out = made;  // lives as long as the process
    return OPDOCK_OK;
  };
  return with_gil(open, OPDOCK_CANCELLED);
}

// Returns a capsule for memory that belongs to the call. Nobody may keep it, so the deleter frees
// only the struct.
PyObject* borrow(const opdock_tensor& tensor) {
  DlpackManaged* managed = new DlpackManaged{};
  managed->tensor = tensor;
  managed->deleter = [](DlpackManaged* self) { delete self; };
  return PyCapsule_New(managed, "dltensor", [](PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;  // consumed
    delete static_cast<DlpackManaged*>(PyCapsule_GetPointer(capsule, "dltensor"));
  });
}

PyObject* to_python(const opdock_value& value) {
  switch (value.tag) {
    case OPDOCK_TAG_TENSOR:
      return borrow(*value.as.tensor);
    case OPDOCK_TAG_DTYPE:
      return Py_BuildValue("(siii)", "dtype", value.as.dtype.code, value.as.dtype.bits,
                           value.as.dtype.lanes);
    case OPDOCK_TAG_DEVICE:
      return Py_BuildValue("(sii)", "device", value.as.device.type, value.as.device.index);
    case OPDOCK_TAG_GENERATOR:  // `random` of run() is used instead
      Py_RETURN_NONE;
    case OPDOCK_TAG_LIST: {
      PyObject* list = PyList_New(0);
      for (uint64_t i = 0; list != nullptr && i < value.as.list->count; ++i) {
        PyObject* item = to_python(value.as.list->data[i]);
        if (item == nullptr || PyList_Append(list, item) != 0) Py_CLEAR(list);
        Py_XDECREF(item);
      }
      return list;
    }
    case OPDOCK_TAG_OBJECT:
    case OPDOCK_TAG_STREAM:
      PyErr_SetString(PyExc_TypeError,
                      "found an object or a stream, which a reference cannot take");
      return nullptr;
    default:
      return value_to_python(value);
  }
}

// Returns (seed, first position) of the call's random numbers; None if it draws none.
PyObject* random_range(const opdock_generator* generator) {
  if (generator == nullptr) Py_RETURN_NONE;
  if (generator->device_seed != nullptr) {
    PyErr_SetString(PyExc_RuntimeError,
                    "found a generator with a seed in device memory, wanted one on the host: a "
                    "reference draws torch's numbers");
    return nullptr;
  }
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(generator->seed),
                       static_cast<unsigned long long>(generator->offset));
}

// Returns a list of the values, converted by to_python().
PyObject* to_list(const opdock_value* values, uint32_t count) {
  PyObject* list = PyList_New(0);
  for (uint32_t i = 0; list != nullptr && i < count; ++i) {
    PyObject* item = to_python(values[i]);
    if (item == nullptr || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

PyObject* run_arguments(void* reference, const opdock_call* call, const opdock_value* args,
                        uint32_t num_args, const opdock_value* results, uint32_t num_results) {
  PyObject* values = to_list(args, num_args);
  PyObject* outputs = values == nullptr ? nullptr : to_list(results, num_results);
  PyObject* random = outputs == nullptr ? nullptr : random_range(call->generator);
  if (random == nullptr) {
    Py_XDECREF(values);
    Py_XDECREF(outputs);
    return nullptr;
  }
  return Py_BuildValue("(ONN(ii)KN)", static_cast<PyObject*>(reference), values, outputs,
                       call->device.type, call->device.index,
                       static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(call->stream)),
                       random);
}

// Stores the numbers and bools that the reference returned. `found` has one element for each
// result, which is None for a tensor.
bool take_numbers(PyObject* found, opdock_value* results, uint32_t num_results) {
  for (uint32_t i = 0; i < num_results; ++i) {
    PyObject* item = PyList_GetItem(found, static_cast<Py_ssize_t>(i));
    if (item == nullptr) return false;
    if (item == Py_None) continue;
    opdock_value& value = results[i];
    if (PyBool_Check(item)) {
      value.tag = OPDOCK_TAG_BOOL;
      value.as.i64 = item == Py_True ? 1 : 0;
    } else if (PyFloat_Check(item)) {
      value.tag = OPDOCK_TAG_FLOAT;
      value.as.f64 = PyFloat_AS_DOUBLE(item);
    } else {
      value.tag = OPDOCK_TAG_INT;
      value.as.i64 = PyLong_AsLongLong(item);
    }
  }
  return PyErr_Occurred() == nullptr;
}

opdock_status run_reference(void*, void* reference, const opdock_call* call,
                            const opdock_value* args, uint32_t num_args, opdock_value* results,
                            uint32_t num_results) {
  const auto run = [=]() -> opdock_status {
    PyObject* done =
        call_helper("run", run_arguments(reference, call, args, num_args, results, num_results));
    const bool good = done != nullptr && take_numbers(done, results, num_results);
    Py_XDECREF(done);
    if (good) return OPDOCK_OK;
    // The reference's own exception, with its traceback, says more than a status.
    keep_error();
    return call->host->set_error(call, OPDOCK_CANCELLED, "the reference raised an exception");
  };
  return with_gil(run, OPDOCK_CANCELLED);
}

std::atomic<bool> tf32_option, deterministic_option;

const opdock_references kReferences = {sizeof(opdock_references), 0, has_reference, open_reference,
                                       run_reference};

}  // namespace

void set_hooks(opdock_options* options) {
  options->cancelled = cancelled;
  options->waiting = waiting;
  options->references = &kReferences;
}

bool is_interrupted() {
  return cancelled(nullptr) != 0;
}

// Returns what a function of torch._C without arguments answers, 0 if it raises.
static int32_t ask_torch(const char* function, PyObject** slot) {
  return with_gil(
      [=] {
        PyObject* ask = imported("torch._C", function, slot);
        PyObject* answer = ask == nullptr ? nullptr : PyObject_CallNoArgs(ask);
        const int32_t yes = answer == Py_True ? 1 : 0;
        Py_XDECREF(answer);
        PyErr_Clear();
        return yes;
      },
      0);
}

int32_t torch_allows_tf32() {
  // This is the value behind torch.backends.cuda.matmul.allow_tf32, without its Python code. torch
  // raises if its old and new settings contradict each other; TF32 is not allowed then.
  static PyObject* slot = nullptr;
  return ask_torch("_get_cublas_allow_tf32", &slot);
}

int32_t torch_wants_deterministic() {
  static PyObject* slot = nullptr;
  return ask_torch("_get_deterministic_algorithms", &slot);
}

int32_t option_allows_tf32() {
  return tf32_option.load(std::memory_order_relaxed) ? 1 : 0;
}

void allow_tf32(bool allowed) {
  tf32_option.store(allowed, std::memory_order_relaxed);
}

int32_t option_wants_deterministic() {
  return deterministic_option.load(std::memory_order_relaxed) ? 1 : 0;
}

void want_deterministic(bool wanted) {
  deterministic_option.store(wanted, std::memory_order_relaxed);
}

bool raise_kept_error() {
  if (kept.type == nullptr) return false;
  const PendingError error = std::exchange(kept, {});
  PyErr_Restore(error.type, error.value, error.trace);
  return true;
}

void add_reasons() {
  char* text = nullptr;
  if (opdock_take_reasons_json(&text, nullptr, 0) != OPDOCK_OK) return;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* module = value == nullptr || std::strcmp(text, "[]") == 0
                         ? nullptr
                         : PyImport_ImportModule("opdock._errors");
  PyObject* done =
      module == nullptr ? nullptr : PyObject_CallMethod(module, "add_reasons", "Os", value, text);
  opdock_free(text);
  PyErr_Clear();
  Py_XDECREF(module);
  Py_XDECREF(done);
  PyErr_Restore(type, value, trace);
}

}  // namespace opdock::python
