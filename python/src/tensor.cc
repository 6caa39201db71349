// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <unordered_map>

#include "cupy_array.h"
#include "errors.h"
#include "fast_tensor.h"
#include "streams.h"

namespace opdock::python {

namespace {

// Returns the module if the program has imported it: a borrowed reference, or NULL without an error
// set.
PyObject* loaded_module(const char* name) {
  PyObject* modules = PyImport_GetModuleDict();
  return modules == nullptr ? nullptr : PyDict_GetItemString(modules, name);
}

// Returns the type `module.name` if the program has imported the module: a new reference, or NULL
// without an error set.
PyObject* loaded_type(const char* module_name, const char* name) {
  PyObject* module = loaded_module(module_name);
  PyObject* type = module == nullptr ? nullptr : PyObject_GetAttrString(module, name);
  if (type != nullptr && !PyType_Check(type)) Py_CLEAR(type);
  PyErr_Clear();
  return type;
}

bool is_subclass(PyTypeObject* type, PyObject* base) {
  return base != nullptr && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base)) != 0;
}

// Returns the type's exchange table of DLPack major version 1, or NULL.
const DlpackExchange* exchange_table(PyTypeObject* type) {
  PyObject* capsule =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  const DlpackExchange* table = nullptr;
  if (capsule != nullptr && PyCapsule_CheckExact(capsule)) {
    table =
        static_cast<const DlpackExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  while (table != nullptr && table->version.major != kDlpackVersion.major) table = table->previous;
  return table;
}

bool has_attribute(PyTypeObject* type, const char* name) {
  PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name);
  PyErr_Clear();
  Py_XDECREF(found);
  return found != nullptr;
}

// Returns whether the name of the type's module starts with `prefix` ("jax" includes jaxlib).
bool is_of_module(PyTypeObject* type, const char* prefix) {
  PyObject* module = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__");
  const char* name = module == nullptr ? nullptr : PyUnicode_AsUTF8(module);
  const bool same = name != nullptr && std::string(name).rfind(prefix, 0) == 0;
  Py_XDECREF(module);
  PyErr_Clear();
  return same;
}

bool classify_torch(PyTypeObject* type, TypeEntry* entry) {
  entry->refusal = torch_subclass_refusal(type);
  entry->kind = entry->refusal.empty() ? ArrayKind::kTorch : ArrayKind::kRefused;
  entry->api = exchange_table(type);
  entry->borrows = entry->api != nullptr && entry->api->borrow != nullptr;
  return torch_calibrate();
}

void classify_numpy(PyTypeObject* type, PyObject* ndarray, TypeEntry* entry) {
  PyObject* memmap = loaded_type("numpy", "memmap");
  if (reinterpret_cast<PyObject*>(type) == ndarray || reinterpret_cast<PyObject*>(type) == memmap) {
    entry->kind = numpy_layout_holds() ? ArrayKind::kNumpy : ArrayKind::kDlpack;
  } else {
    entry->kind = ArrayKind::kRefused;
    entry->refusal = std::string("found a ") + type->tp_name +
                     ", whose meaning (a mask, a unit) would be lost, wanted a plain "
                     "numpy.ndarray; pass numpy.asarray(…), after filling in masked elements";
  }
  Py_XDECREF(memmap);
}

bool classify_new(PyTypeObject* type, TypeEntry* entry) {
  PyObject* torch_tensor = loaded_type("torch", "Tensor");
  PyObject* ndarray = loaded_type("numpy", "ndarray");
  bool ok = true;
  if (is_subclass(type, torch_tensor)) {
    ok = classify_torch(type, entry);
  } else if (is_subclass(type, ndarray)) {
    classify_numpy(type, ndarray, entry);
  } else if ((entry->api = exchange_table(type)) != nullptr && entry->api->borrow != nullptr) {
    entry->kind = ArrayKind::kExchange;
  } else if (has_attribute(type, "__dlpack__") && has_attribute(type, "__dlpack_device__")) {
    entry->kind = ArrayKind::kDlpack;
    PyObject* cupy = loaded_type("cupy", "ndarray");
    entry->is_cupy = is_subclass(type, cupy);
    if (reinterpret_cast<PyObject*>(type) == cupy) entry->cupy_type = cupy_device_type();
    Py_XDECREF(cupy);
    entry->immutable = is_of_module(type, "jax") || is_of_module(type, "tensorflow");
  }
  Py_XDECREF(torch_tensor);
  Py_XDECREF(ndarray);
  return ok;
}

TypeSlot& slot_of(const PyTypeObject* type) {
  return recent_types[(reinterpret_cast<uintptr_t>(type) >> 4) % kTypeSlots];
}

// The map is never destroyed, because types may outlive any static object. Its nodes do not move.
std::unordered_map<PyTypeObject*, TypeEntry>& entries() {
  static auto& all = *new std::unordered_map<PyTypeObject*, TypeEntry>();
  return all;
}

// Called when a type is destroyed. All its arrays are gone, so no call uses its entry.
PyObject* forget_type(PyObject* address, PyObject* reference) {
  auto* const type = static_cast<PyTypeObject*>(PyLong_AsVoidPtr(address));
  TypeSlot& slot = slot_of(type);
  if (slot.type == type) slot = {};
  const auto found = entries().find(type);
  if (found != entries().end() && found->second.reference == reference) {
    entries().erase(found);
    Py_DECREF(reference);
  }
  Py_RETURN_NONE;
}
PyMethodDef forget_method = {"forget_type", forget_type, METH_O, nullptr};

// Returns a weak reference to the type, which calls forget_type() when the type is destroyed: a new
// reference, or NULL with an error set.
PyObject* watch(PyTypeObject* type) {
  PyObject* address = PyLong_FromVoidPtr(type);
  PyObject* forget = address == nullptr ? nullptr : PyCFunction_New(&forget_method, address);
  PyObject* reference =
      forget == nullptr ? nullptr : PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), forget);
  Py_XDECREF(address);
  Py_XDECREF(forget);
  return reference;
}

bool exchange_to_tensor(Frame&, const Where& where, PyObject* object, const TypeEntry& entry,
                        opdock_tensor* out) {
  if (entry.api->borrow(object, out) == 0) return true;
  if (is_passed_on()) return false;
  return refuse(kInvalidArgumentError, where,
                "found an object of type " + type_name(object) +
                    " that its library cannot export (" + take_error_text() +
                    "), wanted a dense tensor in memory");
}

bool check_written(const Where& where, PyObject* object, bool written, bool read_only) {
  if (!written || !read_only) return true;
  return refuse(kInvalidArgumentError, where,
                "found a read-only " + type_name(object) +
                    ", wanted one that can be written; pass a writable array or a copy");
}

// Records the size of a CPU tensor: calls with large ones release the GIL.
void note_bytes(Frame& frame, const opdock_tensor& tensor) {
  if (tensor.device.type != OPDOCK_CPU) return;
  const uint64_t element = (tensor.dtype.bits * tensor.dtype.lanes + 7u) / 8u;
  const uint64_t bytes = num_elements(tensor) * element;
  if (bytes > frame.cpu_bytes) frame.cpu_bytes = bytes;
}

bool import_dlpack(Frame& frame, const Where& where, PyObject* object, const TypeEntry& entry,
                   bool written, PyObject* stream, opdock_value* out) {
  bool read_only = false, copied = false;
  opdock_tensor* tensor = nullptr;
  if (!check_written(where, object, written, entry.immutable)) return false;
  if (!dlpack_to_tensor(frame, where, object, stream, &tensor, &read_only, &copied)) return false;
  if (!check_written(where, object, written, read_only || copied)) return false;
  if (!check_tensor(frame, where, tensor)) return false;
  note_bytes(frame, *tensor);
  *out = {OPDOCK_TAG_TENSOR, read_only ? OPDOCK_VALUE_READ_ONLY : 0u, {.tensor = tensor}};
  return true;
}

bool convert_dlpack(Frame& frame, const Where& where, PyObject* object, const TypeEntry& entry,
                    bool written, opdock_value* out) {
  opdock_device device;
  opdock_tensor* address = nullptr;
  if (entry.cupy_type != OPDOCK_CPU) {
    address = frame.take<opdock_tensor>(1);
    const Read read = cupy_address(object, entry.cupy_type, address);
    if (read == Read::kError) return false;
    if (read == Read::kNotPlain) address = nullptr;
  }
  if (address != nullptr) {
    device = address->device;
  } else if (!dlpack_device(where, object, &device)) {
    return false;
  }
  note_tensor(frame, object, entry, entry.is_cupy, device);
  if (device.type == OPDOCK_CPU) {
    return import_dlpack(frame, where, object, entry, written, nullptr, out);
  }
  PendingImport* pending = frame.take<PendingImport>(1);
  *pending = {frame.pending, object, &entry, where, written, device, out, address};
  frame.pending = pending;
  return true;
}

// Converts a CuPy array for a call on CuPy's own stream. kNotPlain: import_dlpack() must do it.
Read finish_cupy(Frame& frame, const PendingImport& pending) {
  opdock_tensor* const tensor = pending.tensor;
  if (tensor == nullptr) return Read::kNotPlain;
  if (!frame.addresses) {
    const Read read = cupy_layout(frame, pending.object, tensor);
    if (read != Read::kDone) return read;
    if (!check_tensor(frame, pending.where, tensor)) return Read::kError;
  }
  *pending.value = {OPDOCK_TAG_TENSOR, 0, {.tensor = tensor}};
  return Read::kDone;
}

}  // namespace

TypeSlot recent_types[kTypeSlots];

const TypeEntry* classify_slowly(PyTypeObject* type) {
  const auto known = entries().find(type);
  if (known != entries().end()) {
    slot_of(type) = {type, &known->second};
    return &known->second;
  }
  TypeEntry entry;
  if (!classify_new(type, &entry)) return nullptr;
  // This is not cached: a type may become an array type when a library is imported.
  static const TypeEntry no_array;
  if (entry.kind == ArrayKind::kNone) return &no_array;
  entry.reference = watch(type);
  if (entry.reference == nullptr) return nullptr;
  const auto [place, is_new] = entries().try_emplace(type, std::move(entry));
  if (!is_new) Py_DECREF(entry.reference);  // another thread stored it first
  slot_of(type) = {type, &place->second};
  return &place->second;
}

bool refuse(const char* exception, const Where& where, const std::string& text) {
  std::string message = std::string(where.function) + "(): argument '" + where.parameter + "'";
  if (where.element >= 0) message += "[" + std::to_string(where.element) + "]";
  raise(exception, message + ": " + text);
  return false;
}

bool check_tensor_slow(Frame& frame, const Where& where, opdock_tensor* tensor) {
  if (tensor->ndim > OPDOCK_MAX_NDIM) {
    return refuse(kInvalidArgumentError, where,
                  "found " + std::to_string(tensor->ndim) + " dimensions, wanted at most " +
                      std::to_string(OPDOCK_MAX_NDIM) + "; reshape it");
  }
  if (tensor->strides == nullptr && tensor->ndim > 0) {
    tensor->strides = frame.take<int64_t>(static_cast<size_t>(tensor->ndim));
    int64_t step = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
      tensor->strides[i] = step;
      step *= tensor->shape[i] > 0 ? tensor->shape[i] : 1;
    }
  }
  if (tensor->data == nullptr && num_elements(*tensor) != 0) {
    return refuse(kInvalidArgumentError, where,
                  "found a tensor without memory (an all-zero, functionalised or fake one), wanted "
                  "one with data; make it real first, for torch by .clone()");
  }
  int32_t* type = &tensor->device.type;
  if (*type == OPDOCK_CPU) return true;
  if (*type == kDlpackCudaHost || *type == kDlpackRocmHost) {
    tensor->device = {OPDOCK_CPU, 0};
  } else if (*type == kDlpackCudaManaged) {
    *type = OPDOCK_CUDA;
  } else if (*type != OPDOCK_CUDA && *type != OPDOCK_ROCM) {
    return refuse(kInvalidArgumentError, where,
                  "found memory of DLPack device type " + std::to_string(*type) +
                      ", wanted the CPU, CUDA or ROCm; move it to one of them");
  }
  return true;
}

bool convert_tensor(Frame& frame, const Where& where, PyObject* object, bool written,
                    opdock_value* out) {
  const TypeEntry* entry = classify(Py_TYPE(object));
  if (entry == nullptr) return false;
  bool read_only = false;
  opdock_tensor* tensor = nullptr;
  switch (entry->kind) {
    case ArrayKind::kTorch:
      if (entry->api == nullptr) {  // torch before 2.9
        if (!torch_to_tensor(frame, where, object, *entry, written, nullptr)) return false;
        return convert_dlpack(frame, where, object, *entry, written, out);
      }
      tensor = frame.take<opdock_tensor>(1);
      if (!torch_to_tensor(frame, where, object, *entry, written, tensor)) return false;
      break;
    case ArrayKind::kNumpy:
      tensor = frame.take<opdock_tensor>(1);
      if (!numpy_to_tensor(frame, where, object, tensor, &read_only)) return false;
      if (!check_written(where, object, written, read_only)) return false;
      break;
    case ArrayKind::kExchange:
      tensor = frame.take<opdock_tensor>(1);
      if (!exchange_to_tensor(frame, where, object, *entry, tensor)) return false;
      break;
    case ArrayKind::kDlpack:
      return convert_dlpack(frame, where, object, *entry, written, out);
    case ArrayKind::kRefused:
      return refuse(kArgumentError, where, entry->refusal);
    case ArrayKind::kNone:
      return refuse(kArgumentError, where,
                    "found an object of type " + type_name(object) +
                        ", wanted a tensor: torch, NumPy, CuPy, JAX or any array with __dlpack__" +
                        (PyList_Check(object) || PyTuple_Check(object) || PyNumber_Check(object)
                             ? "; make one of it by torch.tensor(…) or numpy.array(…)"
                             : ""));
  }
  if (!check_tensor(frame, where, tensor)) return false;
  note_tensor(frame, object, *entry, true, tensor->device);
  note_bytes(frame, *tensor);
  *out = {OPDOCK_TAG_TENSOR, read_only ? OPDOCK_VALUE_READ_ONLY : 0u, {.tensor = tensor}};
  return true;
}

bool finish_streams(Frame& frame) {
  const TypeEntry* owner = frame.stream_entry;
  if (owner != nullptr && owner->api != nullptr) {
    if (owner->api->current_stream(frame.gpu.type, frame.gpu.index, &frame.stream) != 0) {
      return false;
    }
  } else if (owner != nullptr && !cupy_current_stream(frame.gpu.index, &frame.stream)) {
    return false;
  }
  return import_foreign(frame, owner);
}

bool import_foreign(Frame& frame, const TypeEntry* in_order) {
  for (PendingImport* pending = frame.pending; pending != nullptr; pending = pending->next) {
    // An array of the stream's library is ordered by the stream. The call's stream is made to wait
    // for any other array; and the call itself waits for the stream, because such an array's memory
    // may be reused once the call has returned.
    const bool own = in_order != nullptr &&
                     (pending->entry == in_order || (in_order->is_cupy && pending->entry->is_cupy));
    const Read read = own ? finish_cupy(frame, *pending) : Read::kNotPlain;
    if (read == Read::kError) return false;
    if (read == Read::kDone) continue;
    if (!own) frame.wait = true;
    PyObject* stream = protocol_stream(frame.gpu.type, frame.stream, own);
    if (stream == nullptr) return false;
    const bool ok = import_dlpack(frame, pending->where, pending->object, *pending->entry,
                                  pending->written, stream, pending->value);
    Py_DECREF(stream);
    if (!ok) return false;
  }
  return true;
}

}  // namespace opdock::python
