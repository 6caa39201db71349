// A call: plain tensors first, then streams, outputs, the GIL, errors.
// SPDX-License-Identifier: Apache-2.0
#include "advice.h"
#include "errors.h"
#include "fast_tensor.h"
#include "function.h"
#include "gil.h"
#include "results.h"
#include "streams.h"
#include "tensor.h"

namespace opdock::python {

namespace {

// From this size on a CPU op takes longer than getting the GIL back may (25 ns when nobody else
// wants it, tens of microseconds when another thread spins).
constexpr uint64_t kReleaseBytes = 64 << 10;
constexpr size_t kErrorSize = 2048;

bool releases_gil(const FunctionInfo& info, const Frame& frame) {
  return info.may_block || (frame.device.type == OPDOCK_CPU && frame.cpu_bytes >= kReleaseBytes);
}

struct Call {
  Call(const FunctionInfo& op, Frame& room, const opdock_value* args)
      : info(op), frame(room), values(args) {
    error[0] = '\0';
    if (room.stream == nullptr) return;
    with_stream = {sizeof with_stream, 0, room.stream, nullptr, nullptr, 0};
    options = &with_stream;
  }

  const FunctionInfo& info;
  Frame& frame;
  const opdock_value* values;
  const opdock_call_options* options = nullptr;
  opdock_call_options with_stream;
  bool has_out = false;    // the outputs are the caller's `out=`
  char error[kErrorSize];  // uninitialised until something fails
};

// libopdock's text, where outputs are counted, in terms of the argument `out`.
std::string error_text(const Call& call) {
  const std::string text = call.error, prefix = call.info.name + ": output ";
  if (!call.has_out || text.rfind(prefix, 0) != 0) return text;
  const size_t colon = text.find(':', prefix.size());
  if (colon == std::string::npos) return text;
  const std::string number = text.substr(prefix.size(), colon - prefix.size());
  return call.info.name + "(): argument 'out'" +
         (call.info.num_fresh == 1 ? "" : "[" + number + "]") + text.substr(colon);
}

// After the op: the status as an exception, and the wait that arrays without a stream need.
[[gnu::noinline]] bool settle_slowly(Call& call, opdock_status status) {
  std::string problem;
  opdock_status waited = OPDOCK_OK;
  if (call.frame.wait) {
    const GilRelease release;
    waited = wait_for_stream(call.frame.gpu, call.frame.stream, &problem);
  }
  if (status != OPDOCK_OK) {
    raise_status(status, advise(error_text(call), call.frame.model).c_str());
    return false;
  }
  if (waited != OPDOCK_OK) raise_status(waited, (call.info.name + "(): " + problem).c_str());
  return waited == OPDOCK_OK;
}

inline bool settle(Call& call, opdock_status status) {
  return (status == OPDOCK_OK && !call.frame.wait) || settle_slowly(call, status);
}

[[gnu::always_inline]] inline bool invoke(Call& call, opdock_tensor** outputs,
                                          uint32_t num_outputs) {
  opdock_status status = OPDOCK_OK;
  {
    const GilRelease release(releases_gil(call.info, call.frame));
    status = opdock_invoke(call.info.handle, call.options, call.values, call.info.num_params,
                           outputs, num_outputs, call.error, kErrorSize);
  }
  return settle(call, status);
}

[[gnu::noinline]] bool run_planned(Call& call, const opdock_plan& plan, opdock_tensor** outputs) {
  opdock_status status = OPDOCK_OK;
  {
    const GilRelease release(releases_gil(call.info, call.frame));
    status =
        opdock_run_planned(call.info.handle, call.options, &plan, call.values, call.info.num_params,
                           outputs, plan.num_outputs, call.error, kErrorSize);
  }
  return settle(call, status);
}

// What Python gets back, `fresh` in order between the arguments that come back. Steals `fresh`.
[[gnu::noinline]] PyObject* gather(const FunctionInfo& info, PyObject* const* objects,
                                   PyObject** fresh) {
  const size_t count = info.results.size();
  if (count == 0) Py_RETURN_NONE;
  const auto result = [&](int32_t param) {
    if (param < 0) return *fresh++;
    PyObject* object = objects[param] == nullptr ? Py_None : objects[param];
    return Py_NewRef(object);
  };
  if (count == 1) return result(info.results[0]);
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  for (size_t i = 0; i < count; ++i) {
    PyObject* object = result(info.results[i]);
    if (tuple == nullptr) {
      Py_DECREF(object);
    } else {
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), object);
    }
  }
  return tuple;
}

[[gnu::noinline]] PyObject* finish_all(Call& call, PyObject* const* objects, Result* results) {
  const uint32_t count = call.info.num_fresh;
  PyObject** fresh = call.frame.take<PyObject*>(count + 1);
  uint32_t done = 0;
  while (done < count && (fresh[done] = finish_result(call.frame, &results[done])) != nullptr) {
    ++done;
  }
  if (done == count) return gather(call.info, objects, fresh);
  for (uint32_t i = 0; i < done; ++i) Py_DECREF(fresh[i]);
  for (uint32_t i = done; i < count; ++i) drop_result(&results[i]);
  return nullptr;
}

[[gnu::noinline]] PyObject* run_fresh(Call& call, PyObject* const* objects) {
  const uint32_t count = call.info.num_fresh;
  Result* results = call.frame.take<Result>(count);
  opdock_tensor** outputs = call.frame.take<opdock_tensor*>(count);
  if (results_from_host(call.frame)) {
    for (uint32_t i = 0; i < count; ++i) outputs[i] = nullptr;
    const bool ok = invoke(call, outputs, count);
    for (uint32_t i = 0; i < count; ++i) results[i] = {{}, nullptr, nullptr, outputs[i]};
    if (ok) return finish_all(call, objects, results);
    for (uint32_t i = 0; i < count; ++i) drop_result(&results[i]);
    return nullptr;
  }
  opdock_plan plan = {};
  plan.struct_size = sizeof plan;
  plan.num_outputs = count;
  plan.outputs = call.frame.take<opdock_output>(count);
  const opdock_status status =
      opdock_plan_call(call.info.handle, call.options, call.values, call.info.num_params, &plan,
                       call.error, kErrorSize);
  if (status != OPDOCK_OK) {
    settle(call, status);
    return nullptr;
  }
  uint32_t made = 0;
  while (made < count && allocate_result(call.frame, plan.outputs[made], &results[made])) {
    outputs[made] = &results[made].tensor;
    ++made;
  }
  if (made == count && run_planned(call, plan, outputs)) return finish_all(call, objects, results);
  for (uint32_t i = 0; i < made; ++i) drop_result(&results[i]);
  return nullptr;
}

[[gnu::noinline]] PyObject* run_into(Call& call, PyObject* const* objects, PyObject* const* out,
                                     const opdock_value* out_values) {
  const uint32_t count = call.info.num_fresh;
  opdock_tensor** outputs = call.frame.take<opdock_tensor*>(count);
  PyObject** fresh = call.frame.take<PyObject*>(count);
  for (uint32_t i = 0; i < count; ++i) {
    outputs[i] = const_cast<opdock_tensor*>(out_values[i].as.tensor);
  }
  call.has_out = true;
  if (!invoke(call, outputs, count)) return nullptr;
  for (uint32_t i = 0; i < count; ++i) fresh[i] = Py_NewRef(out[i]);
  return gather(call.info, objects, fresh);
}

// out= as num_fresh arrays, borrowed from `out`; NULL with an error set.
[[gnu::noinline]] PyObject* const* out_items(const FunctionInfo& info, PyObject* const* out) {
  const uint32_t count = info.num_fresh;
  if (count == 1 && !PyTuple_Check(*out) && !PyList_Check(*out)) return out;
  const bool tuple = PyTuple_Check(*out);
  if (tuple && PyTuple_GET_SIZE(*out) == static_cast<Py_ssize_t>(count)) {
    return &PyTuple_GET_ITEM(*out, 0);
  }
  raise(kArgumentError,
        info.name + "(): argument 'out': found an object of type " + type_name(*out) +
            (tuple ? " of " + std::to_string(PyTuple_GET_SIZE(*out)) : "") + ", wanted " +
            (count == 1 ? std::string("one array")
                        : "a tuple of " + std::to_string(count) + " arrays"));
  return nullptr;
}

[[gnu::noinline]] const opdock_value* convert_out(const FunctionInfo& info, Frame& frame,
                                                  PyObject* const* out) {
  opdock_value* values = frame.take<opdock_value>(info.num_fresh);
  for (uint32_t i = 0; i < info.num_fresh; ++i) {
    const Where where{info.name.c_str(), "out", info.num_fresh == 1 ? -1 : Py_ssize_t{i}};
    if (!convert_tensor(frame, where, out[i], true, &values[i])) return nullptr;
  }
  return values;
}

void add_torch(PyObject* list, PyObject* object) {
  if (object == nullptr) return;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < count; ++i) add_torch(list, PySequence_Fast_GET_ITEM(object, i));
    return;
  }
  const TypeEntry* entry = classify(Py_TYPE(object));
  if (entry != nullptr && entry->kind == ArrayKind::kTorch) PyList_Append(list, object);
}

// Autograd notices in-place writes by a tensor's version counter, which a raw write leaves alone.
[[gnu::noinline]] bool mark_written(const FunctionInfo& info, PyObject* const* objects,
                                    PyObject* out) {
  PyObject* written = PyList_New(0);
  if (written == nullptr) return false;
  for (uint32_t i = 0; i < info.num_params; ++i) {
    if ((info.written >> i & 1) != 0) add_torch(written, objects[i]);
  }
  add_torch(written, out);
  bool ok = PyErr_Occurred() == nullptr;
  if (ok && PyList_GET_SIZE(written) > 0) {
    PyObject* helper = PyImport_ImportModule("opdock._torch");
    PyObject* done =
        helper == nullptr ? nullptr : PyObject_CallMethod(helper, "mark_written", "O", written);
    ok = done != nullptr;
    Py_XDECREF(helper);
    Py_XDECREF(done);
  }
  Py_DECREF(written);
  return ok;
}

// Converts the arguments that are plain tensors given by position, as far as they are the first
// ones; returns how many.
[[gnu::always_inline]] inline uint32_t take_tensors(const FunctionInfo& info, Frame& frame,
                                                    PyObject* const* args, Py_ssize_t num_args,
                                                    opdock_value* values) {
  const uint32_t limit = num_args < static_cast<Py_ssize_t>(info.num_plain)
                             ? static_cast<uint32_t>(num_args)
                             : info.num_plain;
  uint32_t done = 0;
  while (done < limit &&
         fast_tensor(frame, args[done], (info.written >> done & 1) != 0, &values[done])) {
    ++done;
  }
  return done;
}

// The arguments that take_tensors() left.
[[gnu::noinline]] PyObject* const* take_others(const FunctionInfo& info, Frame& frame,
                                               PyObject* const* args, Py_ssize_t num_args,
                                               PyObject* names, uint32_t done, opdock_value* values,
                                               PyObject** out) {
  PyObject** objects = frame.take<PyObject*>(info.num_params);
  for (uint32_t i = 0; i < done; ++i) objects[i] = args[i];
  return bind_arguments(info, frame, args, num_args, names, done, values, objects, out) ? objects
                                                                                        : nullptr;
}

// The op with `out=`, from its conversion on.
[[gnu::noinline]] PyObject* run_with_out(const FunctionInfo& info, Frame& frame,
                                         const opdock_value* values, PyObject* const* objects,
                                         PyObject* out) {
  PyObject* const* items = out_items(info, &out);
  const opdock_value* out_values = items == nullptr ? nullptr : convert_out(info, frame, items);
  if (out_values == nullptr) return nullptr;
  if (frame.gpu.type != OPDOCK_CPU && !finish_streams(frame)) return nullptr;
  Call call(info, frame, values);
  return run_into(call, objects, items, out_values);
}

// Runs the op and returns what Python sees: None, one result, or a tuple.
[[gnu::noinline]] PyObject* run_function(const FunctionInfo& info, Frame& frame,
                                         const opdock_value* values, PyObject* const* objects) {
  if (frame.gpu.type != OPDOCK_CPU && !finish_streams(frame)) return nullptr;
  Call call(info, frame, values);
  if (info.num_fresh != 0) return run_fresh(call, objects);
  return invoke(call, nullptr, 0) ? gather(info, objects, nullptr) : nullptr;
}

// For advice: the argument of the first tensor parameter, or NULL.
PyObject* first_array(const FunctionInfo& info, PyObject* const* objects) {
  for (uint32_t i = 0; i < info.num_params; ++i) {
    const bool is_list = (info.params[i].flags & OPDOCK_PARAM_LIST) != 0;
    if (info.params[i].tag == OPDOCK_TENSOR && !is_list) return objects[i];
  }
  return nullptr;
}

// The same where there is nothing to do around the op: no stream, no fresh result, no other thread
// to let run.
[[gnu::always_inline]] inline PyObject* run_directly(const FunctionInfo& info,
                                                     const opdock_value* values,
                                                     PyObject* const* objects) {
  char error[kErrorSize];
  error[0] = '\0';
  const opdock_status status =
      opdock_invoke(info.handle, nullptr, values, info.num_params, nullptr, 0, error, kErrorSize);
  if (status != OPDOCK_OK) [[unlikely]] {
    raise_status(status, advise(error, first_array(info, objects)).c_str());
    return nullptr;
  }
  return info.results.empty() ? Py_NewRef(Py_None) : gather(info, objects, nullptr);
}

}  // namespace

PyObject* call_function(PyObject* self, PyObject* const* args, size_t flagged_count,
                        PyObject* names) {
  Frame frame;
  return guarded([&]() -> PyObject* {
    const FunctionInfo& info = info_of(self);
    opdock_value* values = frame.take<opdock_value>(info.num_params);
    PyObject* const* objects = args;
    PyObject* out = nullptr;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const uint32_t done = take_tensors(info, frame, args, count, values);
    if (names != nullptr || done != count || done != info.num_params) {
      objects = take_others(info, frame, args, count, names, done, values, &out);
      if (objects == nullptr) return nullptr;
    }
    PyObject* result = nullptr;
    if (out != nullptr) {
      result = run_with_out(info, frame, values, objects, out);
    } else if (info.num_fresh == 0 && frame.gpu.type == OPDOCK_CPU && !releases_gil(info, frame)) {
      result = run_directly(info, values, objects);
    } else {
      result = run_function(info, frame, values, objects);
    }
    if (result != nullptr && (info.written != 0 || out != nullptr) &&
        !mark_written(info, objects, out)) {
      Py_CLEAR(result);
    }
    return result;
  });
}

}  // namespace opdock::python
