// Implements a call of an op's function: arguments (plain tensors first), streams, outputs, the
// GIL, errors.
// SPDX-License-Identifier: Apache-2.0
#include "advice.h"
#include "errors.h"
#include "fast_tensor.h"
#include "function.h"
#include "generator.h"
#include "gil.h"
#include "hooks.h"
#include "imports.h"
#include "keep.h"
#include "new_tensor.h"
#include "opdock/types.hpp"
#include "return_value.h"
#include "streams.h"
#include "tensor.h"
#include "torch_recording.h"

namespace opdock::python {

namespace {

// The size of a CPU op's largest tensor from which the GIL is released: the op then takes longer
// than reacquiring the GIL may (25 ns if no other thread wants it, tens of microseconds if another
// thread spins).
constexpr uint64_t kReleaseBytes = 64 << 10;
constexpr size_t kErrorSize = 2048;

bool releases_gil(const FunctionInfo& info, const Frame& frame) {
  return info.may_block || (frame.device.type == OPDOCK_CPU && frame.cpu_bytes >= kReleaseBytes);
}

bool is_torch_type(const TypeEntry* entry) {
  return entry != nullptr && entry->kind == ArrayKind::kTorch;
}

// Options for a call on a GPU's default stream. kOnDefaultStream[true] is for torch's tensors, for
// which torch decides whether TF32 is allowed, and whether equal calls have to give equal bits.
constexpr opdock_call_options options_by(int32_t (*allows_tf32)(void),
                                         int32_t (*wants_deterministic)(void)) {
  return {sizeof(opdock_call_options), 0, nullptr, nullptr, nullptr, 0, nullptr, allows_tf32,
          wants_deterministic};
}
constexpr opdock_call_options kOnDefaultStream[2] = {
    options_by(option_allows_tf32, option_wants_deterministic),
    options_by(torch_allows_tf32, torch_wants_deterministic)};

struct Call {
  Call(const FunctionInfo& op, Frame& room, const opdock_value* args, PyObject* const* given)
      : info(op), frame(room), values(args), objects(given) {
    error[0] = '\0';
    if (room.stream != nullptr || op.retains) [[unlikely]]
      set_options();
    else if (room.gpu.type != OPDOCK_CPU)
      options = &kOnDefaultStream[is_torch_type(room.model_entry)];
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  opdock_call_options& set_options() {
    if (options != &with_options) {
      with_options = kOnDefaultStream[is_torch_type(frame.model_entry)];
      with_options.stream = frame.stream;
      options = &with_options;
    }
    if (info.retains) {
      kept = {&info, values, objects, frame.imports};
      keeper = keeper_of(&kept);
      with_options.keeper = &keeper;
    }
    return with_options;
  }

  const FunctionInfo& info;
  Frame& frame;
  const opdock_value* values;
  PyObject* const* objects;  // the Python arguments
  const opdock_call_options* options = nullptr;
  opdock_call_options with_options;
  KeptArguments kept;
  opdock_keeper keeper;
  bool has_out = false;    // the outputs are the caller's `out=`
  char error[kErrorSize];  // uninitialised until something fails
};

// Returns libopdock's error text; "output 0" becomes "argument 'out'" if the caller passed `out=`.
std::string error_text(const Call& call) {
  const std::string text = call.error, prefix = call.info.name + ": output ";
  if (!call.has_out || text.rfind(prefix, 0) != 0) return text;
  const size_t colon = text.find(':', prefix.size());
  if (colon == std::string::npos) return text;
  const std::string number = text.substr(prefix.size(), colon - prefix.size());
  return call.info.name + "(): argument 'out'" +
         (call.info.num_fresh == 1 ? "" : "[" + number + "]") + text.substr(colon);
}

// Finishes after the op: waits for the device if arrays without a stream need that, and raises the
// exception for `status`. Returns false with a Python error set.
[[gnu::noinline]] bool finish_call_slow(Call& call, opdock_status status) {
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

inline bool finish_call(Call& call, opdock_status status) {
  return (status == OPDOCK_OK && !call.frame.wait) || finish_call_slow(call, status);
}

[[gnu::always_inline]] inline bool invoke(Call& call, opdock_value* results) {
  opdock_status status = OPDOCK_OK;
  {
    const GilRelease release(releases_gil(call.info, call.frame));
    status = opdock_invoke(call.info.handle, call.options, call.values, call.info.num_params,
                           results, call.info.num_results, call.error, kErrorSize);
  }
  return finish_call(call, status);
}

[[gnu::noinline]] bool run_planned(Call& call, const opdock_plan& plan, opdock_value* results) {
  opdock_status status = OPDOCK_OK;
  {
    const GilRelease release(releases_gil(call.info, call.frame));
    status =
        opdock_run_planned(call.info.handle, call.options, &plan, call.values, call.info.num_params,
                           results, call.info.num_results, call.error, kErrorSize);
  }
  return finish_call(call, status);
}

// Counts the new tensors that the call returns. libopdock counts them if the number depends on the
// arguments.
bool count_fresh(Call& call, Fresh* fresh) {
  fresh->count = call.info.num_fresh;
  fresh->counts = nullptr;
  if (!call.info.is_variable) return true;
  uint32_t* counts = call.frame.take<uint32_t>(call.info.num_results);
  const opdock_status status = opdock_count_results(
      call.info.handle, call.values, call.info.num_params, counts, call.error, kErrorSize);
  if (status != OPDOCK_OK) return finish_call(call, status);
  fresh->count = 0;
  for (uint32_t i = 0; i < call.info.num_results; ++i) fresh->count += counts[i];
  fresh->counts = counts;
  return true;
}

// Plans the call; if it draws from torch's generator, reserves the random numbers there.
bool plan_call(Call& call, uint32_t tensors, opdock_plan* plan) {
  plan->struct_size = sizeof *plan;
  plan->room = tensors;
  plan->outputs = call.frame.take<opdock_output>(tensors);
  const opdock_status status = opdock_plan_call(call.info.handle, call.options, call.values,
                                                call.info.num_params, plan, call.error, kErrorSize);
  if (status != OPDOCK_OK) return finish_call(call, status);
  if (plan->random_numbers == 0) return true;
  opdock_generator* generator = nullptr;
  if (!reserve_from_torch(call.info, call.frame, plan->random_numbers, &generator)) return false;
  if (generator != nullptr) call.set_options().generator = generator;
  return true;
}

// Returns whether torch allocates the workspace: for calls on a GPU whose results are torch
// tensors. torch reuses memory in stream order by itself, whereas returning memory to the driver is
// work for the stream that costs 0.8 us a call on an H100.
bool uses_torch_workspace(const Frame& frame) {
  const TypeEntry *const model = frame.model_entry, *const stream = frame.stream_entry;
  return frame.gpu.type != OPDOCK_CPU && Device(frame.device) == Device(frame.gpu) &&
         is_torch_type(model) && model->api != nullptr && is_torch_type(stream);
}

// Allocates the workspace from torch. If that fails, libopdock allocates it.
void take_workspace(Call& call, const opdock_plan& plan) {
  constexpr uint64_t kAlignment = 256;  // a plan's 0 means 256; torch's memory has 512
  if (plan.workspace_bytes == 0 || plan.workspace_alignment > kAlignment) return;
  opdock_output wanted = {};
  wanted.dtype = dtype_of<uint8_t>();
  wanted.ndim = 1;
  wanted.shape[0] = static_cast<int64_t>(plan.workspace_bytes);
  Result* const memory = call.frame.take<Result>(1);
  if (!allocate_result(call.frame, wanted, memory)) return PyErr_Clear();
  call.frame.hold([](void* what) { drop_result(static_cast<Result*>(what)); }, memory);
  char* const data = static_cast<char*>(memory->tensor.data) + memory->tensor.byte_offset;
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) return;
  call.set_options().workspace = data;
  call.set_options().workspace_bytes = plan.workspace_bytes;
}

// Runs a call without new results, or one whose results go to the caller's `out` arrays.
bool run_into_values(Call& call, uint32_t fresh, opdock_value* values) {
  const bool torchs = uses_torch_workspace(call.frame);
  if (!torchs && !call.info.draws) return invoke(call, values);
  opdock_plan plan;
  if (!plan_call(call, fresh, &plan)) return false;
  if (!torchs) return invoke(call, values);
  take_workspace(call, plan);
  return run_planned(call, plan, values);
}

// Runs a call with results that libopdock allocates and that are then handed to Python.
[[gnu::noinline]] PyObject* run_with_host_results(Call& call, Fresh& fresh, opdock_value* values) {
  for (uint32_t i = 0; i < call.info.num_results; ++i) values[i] = {};
  if (!invoke(call, values)) {
    for (uint32_t i = 0; i < call.info.num_results; ++i) opdock_value_free(&values[i]);
    return nullptr;
  }
  take_from_host(call.info, fresh, values);
  return finish_all(call.info, call.frame, call.objects, values, fresh);
}

[[gnu::noinline]] PyObject* run_fresh(Call& call) {
  Fresh fresh;
  if (!count_fresh(call, &fresh)) return nullptr;
  opdock_value* values = call.frame.take<opdock_value>(call.info.num_results);
  fresh.tensors = call.frame.take<Result>(fresh.count);
  bool from_host = fresh.count != 0 && results_from_host(call.frame);
  opdock_plan plan;
  if (!from_host || call.info.draws) {
    if (!plan_call(call, fresh.count, &plan)) return nullptr;
    from_host = from_host || wants_alignment(call.frame, plan);
  }
  if (from_host) return run_with_host_results(call, fresh, values);
  uint32_t made = 0;
  while (made < fresh.count &&
         allocate_result(call.frame, plan.outputs[made], &fresh.tensors[made])) {
    ++made;
  }
  if (made == fresh.count) {
    if (uses_torch_workspace(call.frame)) take_workspace(call, plan);
    bind_outputs(call.info, call.frame, fresh, values);
    if (run_planned(call, plan, values))
      return finish_all(call.info, call.frame, call.objects, values, fresh);
  }
  for (uint32_t i = 0; i < made; ++i) drop_result(&fresh.tensors[i]);
  return nullptr;
}

[[gnu::noinline]] PyObject* run_into(Call& call, PyObject* const* out,
                                     const opdock_value* out_values) {
  Fresh fresh;
  fresh.count = call.info.num_fresh;
  fresh.counts = nullptr;
  opdock_value* values = call.frame.take<opdock_value>(call.info.num_results);
  uint32_t next = 0;
  for (uint32_t i = 0; i < call.info.num_results; ++i) {
    values[i] = is_fresh(call.info.results[i]) ? out_values[next++] : opdock_value{};
  }
  call.has_out = true;
  if (!run_into_values(call, fresh.count, values)) return nullptr;
  fresh.objects = call.frame.take<PyObject*>(fresh.count);
  for (uint32_t i = 0; i < fresh.count; ++i) fresh.objects[i] = Py_NewRef(out[i]);
  return gather(call.info, call.objects, values, fresh);
}

// Returns `out` as num_fresh arrays, borrowed from it; NULL with an error set.
[[gnu::noinline]] PyObject* const* out_items(const FunctionInfo& info, PyObject* const* out) {
  const uint32_t count = info.num_fresh;
  if (count == 1 && !PyTuple_Check(*out) && !PyList_Check(*out)) return out;
  const bool tuple = PyTuple_Check(*out);
  if (tuple && PyTuple_GET_SIZE(*out) == static_cast<Py_ssize_t>(count)) {
    return &PyTuple_GET_ITEM(*out, 0);
  }
  raise(kArgumentError,
        info.name + "(): argument 'out': found an object of type " + type_name(*out) +
            (tuple ? " with " + std::to_string(PyTuple_GET_SIZE(*out)) + " elements" : "") +
            ", wanted " +
            (count == 1 ? std::string("one array; pass out=y")
                        : "a tuple of " + std::to_string(count) + " arrays, one for each result"));
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

// Appends the torch tensors in `object` to *list, which is created for the first one. Returns false
// with an error set.
bool add_torch(PyObject** list, PyObject* object) {
  if (object == nullptr) return true;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (!add_torch(list, PySequence_Fast_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  const TypeEntry* entry = classify(Py_TYPE(object));
  if (entry == nullptr) return false;
  if (entry->kind != ArrayKind::kTorch) return true;
  if (*list == nullptr) *list = PyList_New(0);
  return *list != nullptr && PyList_Append(*list, object) == 0;
}

// Increments the version counters of written torch tensors: autograd detects in-place writes by
// them, and a raw write does not change them.
[[gnu::noinline]] bool mark_written(const FunctionInfo& info, PyObject* const* objects,
                                    PyObject* out) {
  PyObject* written = nullptr;
  bool ok = add_torch(&written, out);
  for (uint32_t i = 0; i < info.num_params && ok; ++i) {
    if ((info.written >> i & 1) != 0) ok = add_torch(&written, objects[i]);
  }
  if (ok && written != nullptr) {
    static PyObject* slot = nullptr;
    PyObject* increment = imported("torch.autograd.graph", "increment_version", &slot);
    PyObject* done = increment == nullptr ? nullptr : PyObject_CallOneArg(increment, written);
    ok = done != nullptr;
    Py_XDECREF(done);
  }
  Py_XDECREF(written);
  return ok;
}

// Converts the leading positional arguments as long as they are plain tensors; returns how many.
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

// Converts the arguments that take_tensors() left; returns all arguments in the schema's order.
[[gnu::noinline]] PyObject* const* bind_remaining(const FunctionInfo& info, Frame& frame,
                                                  PyObject* const* args, Py_ssize_t num_args,
                                                  PyObject* names, uint32_t done,
                                                  opdock_value* values, PyObject** out) {
  PyObject** objects = frame.take<PyObject*>(info.num_params);
  for (uint32_t i = 0; i < done; ++i) objects[i] = args[i];
  return bind_arguments(info, frame, args, num_args, names, done, values, objects, out) ? objects
                                                                                        : nullptr;
}

// For an op with arguments on several devices: chooses the first tensor on the op's own device as
// the model of the results.
[[gnu::noinline]] bool choose_model(const FunctionInfo& info, Frame& frame,
                                    const opdock_value* values, PyObject* const* objects) {
  for (uint32_t i = 0; i < info.num_params; ++i) {
    if (values[i].tag != OPDOCK_TAG_TENSOR || info.params[i].device != OPDOCK_ON_OP_DEVICE)
      continue;
    frame.model = objects[i];
    frame.model_entry = classify(Py_TYPE(objects[i]));
    frame.device = values[i].as.tensor->device;
    return frame.model_entry != nullptr;
  }
  return true;
}

// Finds the stream of the call and the model of its results, once all arguments are known.
bool resolve_devices(const FunctionInfo& info, Frame& frame, const opdock_value* values,
                     PyObject* const* objects) {
  if (frame.gpu.type != OPDOCK_CPU && !finish_streams(frame)) return false;
  return !info.is_split || choose_model(info, frame, values, objects);
}

// Runs the op with `out=`: converts `out`, then calls.
[[gnu::noinline]] PyObject* run_with_out(const FunctionInfo& info, Frame& frame,
                                         const opdock_value* values, PyObject* const* objects,
                                         PyObject* out) {
  PyObject* const* items = out_items(info, &out);
  const opdock_value* out_values = items == nullptr ? nullptr : convert_out(info, frame, items);
  if (out_values == nullptr || !resolve_devices(info, frame, values, objects)) return nullptr;
  Call call(info, frame, values, objects);
  return run_into(call, items, out_values);
}

// Runs the op; returns None, one result, or a tuple of results.
[[gnu::noinline]] PyObject* run_function(const FunctionInfo& info, Frame& frame,
                                         const opdock_value* values, PyObject* const* objects) {
  if (!resolve_devices(info, frame, values, objects)) return nullptr;
  if (info.retains) drop_kept();
  Call call(info, frame, values, objects);
  if (info.num_results != 0 || info.draws) return run_fresh(call);
  return run_into_values(call, 0, nullptr) ? Py_NewRef(Py_None) : nullptr;
}

// Returns the argument of the first tensor parameter, or NULL; for advise().
PyObject* first_array(const FunctionInfo& info, PyObject* const* objects) {
  for (uint32_t i = 0; i < info.num_params; ++i) {
    const bool is_list = (info.params[i].flags & OPDOCK_PARAM_LIST) != 0;
    if (info.params[i].tag == OPDOCK_TAG_TENSOR && !is_list) return objects[i];
  }
  return nullptr;
}

// Does what run_function() does for a call that needs nothing around the op: it has no stream,
// returns no new tensors, and keeps the GIL.
[[gnu::always_inline]] inline PyObject* run_directly(const FunctionInfo& info, Frame& frame,
                                                     const opdock_value* values,
                                                     PyObject* const* objects) {
  char error[kErrorSize];
  error[0] = '\0';
  opdock_value* results =
      info.num_results == 0 ? nullptr : frame.take<opdock_value>(info.num_results);
  const opdock_status status = opdock_invoke(info.handle, nullptr, values, info.num_params, results,
                                             info.num_results, error, kErrorSize);
  if (status != OPDOCK_OK) [[unlikely]] {
    raise_status(status, advise(error, first_array(info, objects)).c_str());
    return nullptr;
  }
  return info.num_results == 0 ? Py_NewRef(Py_None) : gather(info, objects, results, {});
}

// Returns whether the function's declaration allows run_directly().
bool is_direct(const FunctionInfo& info) {
  return info.num_fresh == 0 && !info.draws && !info.retains && !info.is_split;
}

// Has the function's recorder make the call.
[[gnu::cold, gnu::noinline]] PyObject* call_recorder(PyObject* self, PyObject* const* args,
                                                     Py_ssize_t count, PyObject* names) {
  PyObject* const positional = PyTuple_New(count);
  PyObject* const named = PyDict_New();
  PyObject* result = nullptr;
  if (positional != nullptr && named != nullptr) {
    for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    const Py_ssize_t num_names = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    Py_ssize_t k = 0;
    while (k < num_names && PyDict_SetItem(named, PyTuple_GET_ITEM(names, k), args[count + k]) == 0)
      ++k;
    if (k == num_names)
      result =
          PyObject_CallFunctionObjArgs(info_of(self).recorder, self, positional, named, nullptr);
  }
  Py_XDECREF(positional);
  Py_XDECREF(named);
  return result;
}

}  // namespace

PyObject* call_function(PyObject* self, PyObject* const* args, size_t flagged_count,
                        PyObject* names) {
  Frame frame;
  const FunctionInfo& info = info_of(self);
  frame.may_record = info.recorder != nullptr;
  PyObject* const result = guarded([&]() -> PyObject* {
    opdock_value* values = frame.take<opdock_value>(info.num_params);
    PyObject* const* objects = args;
    PyObject* out = nullptr;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const uint32_t done = take_tensors(info, frame, args, count, values);
    if (names != nullptr || done != count || done != info.num_params) {
      objects = bind_remaining(info, frame, args, count, names, done, values, &out);
      if (objects == nullptr) return nullptr;
    }
    if (!check_recording(frame, info.name)) return nullptr;
    PyObject* result = nullptr;
    if (out != nullptr) {
      result = run_with_out(info, frame, values, objects, out);
    } else if (is_direct(info) && frame.gpu.type == OPDOCK_CPU && !releases_gil(info, frame)) {
      result = run_directly(info, frame, values, objects);
    } else {
      result = run_function(info, frame, values, objects);
    }
    if (result != nullptr && (info.written != 0 || out != nullptr) &&
        !mark_written(info, objects, out)) {
      Py_CLEAR(result);
    }
    return result;
  });
  if (frame.must_record) [[unlikely]]
    return call_recorder(self, args, PyVectorcall_NARGS(flagged_count), names);
  return result;
}

}  // namespace opdock::python
