// Detects whether torch records a thread's operators. torch keeps a set of included and a set of
// excluded dispatch keys for each thread, and includes a certain key while it records. Reading
// these sets costs a call almost nothing. Before they are used, the sets are compared with what
// torch reports; if they differ, torch is asked through Python in every call.
// SPDX-License-Identifier: Apache-2.0
#include "torch_recording.h"

#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include "errors.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

PyObject* recorder = nullptr;  // opdock._torch.recorder
void* library = nullptr;       // libc10.so

// Returns the address of this thread's c10::impl::raw_local_dispatch_key_set, or NULL.
const uint64_t* find_thread_keys() {
  if (library == nullptr) return nullptr;
  return static_cast<const uint64_t*>(dlsym(library, "_ZN3c104impl26raw_local_dispatch_key_setE"));
}

}  // namespace

uint64_t torch_recording_keys = 0;

void find_torch_recording() {
  forget_torch_recording();
  const py::module_ helper = py::module_::import("opdock._torch");
  recorder = py::object(helper.attr("recorder")).release().ptr();
  library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  const uint64_t* keys = find_thread_keys();
  if (keys == nullptr) return;
  const py::cpp_function read([keys] { return py::make_tuple(keys[0], keys[1]); });
  torch_recording_keys = helper.attr("recording_keys")(read).cast<uint64_t>();
}

void forget_torch_recording() {
  torch_recording_keys = 0;
}

bool torch_records(const char* function) {
  if (torch_thread_keys == nullptr && torch_recording_keys != 0) {
    torch_thread_keys = find_thread_keys();
    if (!torch_may_record()) return false;
  }
  PyObject* name = PyObject_CallNoArgs(recorder);
  if (name == nullptr) return true;
  const bool records = name != Py_None;
  if (records) {
    raise(kInvalidArgumentError,
          std::string(function) + "(): found " + text_of(name) +
              " recording operators in this thread, wanted a call outside of it: its results would "
              "be constants there; wrap it by torch.library.custom_op and call that instead");
  }
  Py_DECREF(name);
  return records;
}

}  // namespace opdock::python
