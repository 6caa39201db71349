// Converts torch tensors by the C exchange table, and checks what that table does not expose: the
// conjugate and negative bits, tensors without memory, and autograd. torch's dispatch key set shows
// the first two, and a pointer in the tensor shows the third. Their offsets differ between
// releases, so they are searched for in sample tensors whose key sets torch itself reports. If the
// search has no unique result, torch is asked through Python in every call.
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <vector>

#include "errors.h"
#include "fast_tensor.h"
#include "tensor.h"
#include "torch_library.h"
#include "torch_probe.h"
#include "torch_recording.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

// Number of words of a TensorImpl that may be read. If the key set is the 22nd word (torch 2.13),
// the bit fields after it are the 23rd; if it is the 23rd (torch 2.11), the bit fields follow. So a
// TensorImpl has at least 23 words.
constexpr size_t kImplWords = 23;
constexpr size_t kObjectWords = 4;  // words of the Python object, including its head

struct Probe {
  bool done = false;
  uint64_t tracked = 0;         // the key that tensors made in inference mode lack; 0: unknown
  ptrdiff_t impl = -1;          // byte offset of the TensorImpl's address in the Python object
  ptrdiff_t keys = -1;          // byte offset of the key set in the TensorImpl
  ptrdiff_t grad = -1;          // byte offset of the autograd data's address in the TensorImpl
  PyObject* refusal = nullptr;  // opdock._torch.refusal
  PyObject* write_refusal = nullptr;
  PyObject* has_own_function = nullptr;
  PyObject* is_grad_enabled = nullptr;
  PyObject* forward_names = nullptr;  // torch.autograd.forward_ad's __dict__
  PyObject* tensor_dispatch = nullptr;
  PyObject* requires_grad = nullptr;  // the interned name
  PyObject* level_name = nullptr;
};
Probe probe;

// Key sets that check_keys_slowly() has found to be plain. The first ones are the most used.
constexpr size_t kAccepted = 16;
uint64_t accepted[kAccepted];
size_t num_accepted = 0;

uint64_t word(const void* base, ptrdiff_t offset) {
  uint64_t value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

const void* impl_of(PyObject* object) {
  return reinterpret_cast<const void*>(word(object, probe.impl));
}

// Makes fast_tensor() accept the first two accepted key sets, if all offsets are known.
void tell_fast_path() {
  torch_plain = {};
  if (probe.impl < 0 || probe.keys < 0 || probe.grad < 0 || num_accepted == 0) return;
  torch_plain = {{probe.impl, probe.keys, probe.grad}, {accepted[0], accepted[0]}, probe.tracked};
  if (num_accepted > 1) torch_plain.keys[1] = accepted[1];
}

struct Sample {
  PyObject* tensor;
  uint64_t impl;
  uint64_t keys;
  std::optional<bool> grad;  // whether it has autograd data; no value if unknown (views)
};

// Returns the only offset, of words `first` to `last`, at which `matches` holds; -1 if there is
// none or several.
template <typename Matches>
ptrdiff_t find_offset(size_t first, size_t last, const Matches& matches) {
  ptrdiff_t found = -1;
  for (size_t i = first; i < last; ++i) {
    const ptrdiff_t offset = static_cast<ptrdiff_t>(i * sizeof(uint64_t));
    if (!matches(offset)) continue;
    if (found >= 0) return -1;
    found = offset;
  }
  return found;
}

void search(const std::vector<Sample>& samples) {
  const auto all = [&samples](const auto& holds) {
    for (const Sample& sample : samples) {
      if (!holds(sample)) return false;
    }
    return !samples.empty();
  };
  const size_t head = sizeof(PyObject) / sizeof(uint64_t);
  probe.impl = find_offset(head, kObjectWords, [&](ptrdiff_t at) {
    return all([at](const Sample& sample) { return word(sample.tensor, at) == sample.impl; });
  });
  if (probe.impl < 0) return;
  const auto in_impl = [](const Sample& sample, ptrdiff_t at) {
    return word(reinterpret_cast<const void*>(sample.impl), at);
  };
  probe.keys = find_offset(1, kImplWords, [&](ptrdiff_t at) {
    return all([&](const Sample& sample) { return in_impl(sample, at) == sample.keys; });
  });
  probe.grad = find_offset(1, kImplWords, [&](ptrdiff_t at) {
    return all([&](const Sample& sample) {
      return !sample.grad.has_value() || (in_impl(sample, at) != 0) == *sample.grad;
    });
  });
}

// Calls a function of opdock._torch, which returns None or a text with a problem. Returns false
// with a Python error set if there is a problem.
bool ask_refusal(PyObject* function, const Where& where, PyObject* object) {
  PyObject* text = PyObject_CallOneArg(function, object);
  if (text == nullptr) {
    return refuse(kInvalidArgumentError, where, "found a tensor that torch cannot describe");
  }
  bool ok = true;
  if (text != Py_None) {
    const char* chars = PyUnicode_AsUTF8(text);
    ok = refuse(kInvalidArgumentError, where, chars == nullptr ? "found an odd tensor" : chars);
  }
  Py_DECREF(text);
  return ok;
}

bool check_keys_slowly(const Where& where, PyObject* object, uint64_t keys, bool remember) {
  if (!ask_refusal(probe.refusal, where, object)) return false;
  if (remember) {
    accepted[num_accepted < kAccepted ? num_accepted++ : kAccepted - 1] = keys;
    tell_fast_path();
  }
  return true;
}

bool check_keys(const Where& where, PyObject* object) {
  if (probe.keys < 0) return check_keys_slowly(where, object, 0, false);
  const uint64_t keys = word(impl_of(object), probe.keys);
  for (size_t i = 0; i < num_accepted; ++i) {
    if (accepted[i] == keys) return true;
  }
  return check_keys_slowly(where, object, keys, true);
}

// torch itself allows writes to a tensor made in inference mode only in inference mode.
bool check_may_write(const Where& where, PyObject* object) {
  const bool is_known = probe.keys >= 0 && probe.tracked != 0;
  if (is_known && (word(impl_of(object), probe.keys) & probe.tracked) != 0) return true;
  return ask_refusal(probe.write_refusal, where, object);
}

// Returns 1 if the tensor takes part in reverse- or forward-mode differentiation now, 0 if it does
// not, -1 with a Python error set.
int records_gradients(PyObject* object) {
  PyObject* wanted = PyObject_GetAttr(object, probe.requires_grad);
  if (wanted == nullptr) return -1;
  Py_DECREF(wanted);
  if (wanted == Py_True) {
    PyObject* enabled = PyObject_CallNoArgs(probe.is_grad_enabled);
    if (enabled == nullptr) return -1;
    Py_DECREF(enabled);
    if (enabled == Py_True) return 1;
  }
  PyObject* level = PyDict_GetItem(probe.forward_names, probe.level_name);
  if (level == nullptr || PyLong_AsLong(level) < 0) return 0;
  py::object tangent = py::reinterpret_borrow<py::dict>(probe.forward_names)["unpack_dual"](
                           py::reinterpret_borrow<py::object>(object))
                           .attr("tangent");
  return tangent.is_none() ? 0 : 1;
}

// Returns false without an error set, and sets frame.must_record, if the call is to be recorded.
bool check_gradients(Frame& frame, const Where& where, PyObject* object) {
  if (probe.grad >= 0 && word(impl_of(object), probe.grad) == 0) return true;
  int records = -1;
  try {
    records = records_gradients(object);
  } catch (py::error_already_set& error) {
    error.restore();
  }
  if (records == 0) return true;
  if (records < 0) return false;
  if (frame.may_record) {
    frame.must_record = true;
    return false;
  }
  return refuse(kInvalidArgumentError, where,
                "found a tensor that takes part in differentiation, wanted one that does not: this "
                "call records no gradient; pass x.detach(), call under torch.no_grad(), or, for "
                "gradients, call torch.ops.opdock." +
                    std::string(where.function) + " (docs/guide/pytorch.md)");
}

}  // namespace

TorchPlain torch_plain;

bool torch_calibrate() {
  if (probe.done) return true;
  try {
    py::module_ helper = py::module_::import("opdock._torch");
    py::module_ torch = py::module_::import("torch");
    py::list found = helper.attr("samples")();
    std::vector<Sample> samples;
    for (py::handle item : found) {
      const py::tuple sample = py::reinterpret_borrow<py::tuple>(item);
      samples.push_back({py::object(sample[0]).ptr(), sample[1].cast<uint64_t>(),
                         sample[2].cast<uint64_t>(), sample[3].cast<std::optional<bool>>()});
    }
    search(samples);
    probe.tracked = helper.attr("tracked_key")().cast<uint64_t>();
    find_torch_recording();
    open_torch_library();
    const auto take = [](const py::handle& from, const char* name) {
      return py::object(from.attr(name)).release().ptr();
    };
    probe.refusal = take(helper, "refusal");
    probe.write_refusal = take(helper, "write_refusal");
    probe.has_own_function = take(helper, "has_own_function");
    probe.is_grad_enabled = py::object(torch.attr("is_grad_enabled")).release().ptr();
    probe.tensor_dispatch =
        py::object(torch.attr("Tensor").attr("__torch_dispatch__")).release().ptr();
    py::object forward = py::module_::import("torch.autograd.forward_ad");
    probe.forward_names = py::object(forward.attr("__dict__")).release().ptr();
    probe.requires_grad = PyUnicode_InternFromString("requires_grad");
    probe.level_name = PyUnicode_InternFromString("_current_level");
    probe.done = true;
    return true;
  } catch (py::error_already_set& error) {
    error.restore();
    return false;
  }
}

std::string torch_subclass_refusal(PyTypeObject* type) {
  if (!torch_calibrate()) {
    PyErr_Clear();
    return "";
  }
  PyObject* dispatch =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__torch_dispatch__");
  PyErr_Clear();
  const bool own = dispatch != nullptr && dispatch != probe.tensor_dispatch;
  Py_XDECREF(dispatch);
  if (own) {
    return std::string("found a ") + type->tp_name +
           ", a tensor subclass that handles operators itself (fake, wrapped or distributed), "
           "wanted a plain torch.Tensor; pass the real tensor it stands for";
  }
  PyObject* answer = PyObject_CallOneArg(probe.has_own_function, reinterpret_cast<PyObject*>(type));
  PyErr_Clear();
  Py_XDECREF(answer);
  if (answer != Py_True) return "";
  return std::string("found a ") + type->tp_name +
         ", a tensor subclass whose __torch_function__ may give its data another meaning, wanted a "
         "plain torch.Tensor; pass the real tensor it stands for, or, for the data as they lie, "
         "x.as_subclass(torch.Tensor)";
}

bool torch_to_tensor(Frame& frame, const Where& where, PyObject* object, const TypeEntry& entry,
                     bool written, opdock_tensor* out) {
  if (!check_keys(where, object) || !check_gradients(frame, where, object)) return false;
  if (written && !check_may_write(where, object)) return false;
  if (torch_may_record() && torch_records(where.function)) return false;
  if (out == nullptr) return true;
  if (entry.api->borrow != nullptr && entry.api->borrow(object, out) == 0) return true;
  if (is_passed_on()) return false;
  return refuse(kInvalidArgumentError, where,
                "found a tensor that torch cannot export (" + take_error_text() +
                    "), wanted a dense tensor in memory");
}

TorchProbe torch_probe_result() {
  return {probe.impl, probe.keys, probe.grad};
}

bool torch_probe_set(const TorchProbe& found) {
  if (!torch_calibrate()) return false;
  probe.impl = found.impl;
  probe.keys = found.keys;
  probe.grad = found.grad;
  tell_fast_path();
  try {
    found.keys < 0 ? forget_torch_recording() : find_torch_recording();
    return true;
  } catch (py::error_already_set& error) {
    error.restore();
    return false;
  }
}

}  // namespace opdock::python
