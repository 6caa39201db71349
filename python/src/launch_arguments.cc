// SPDX-License-Identifier: Apache-2.0
#include "launch_arguments.h"

#include "errors.h"
#include "streams.h"

namespace opdock::python {
namespace {

bool read_number(const KernelInfo& kernel, const char* what, PyObject* object, uint32_t least,
                 uint32_t* out) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (PyErr_Occurred() != nullptr) {
    clear_error();
    return refuse(
        kArgumentError, kernel,
        std::string(what) + ": found an object of type " + type_name(object) + ", wanted an int");
  }
  if (overflow != 0 || value < least || value > UINT32_MAX) {
    return refuse(kInvalidArgumentError, kernel,
                  std::string(what) + ": found " + text_of(object) + ", wanted " +
                      std::to_string(least) + " to " + std::to_string(UINT32_MAX));
  }
  *out = static_cast<uint32_t>(value);
  return true;
}

}  // namespace

bool refuse(const char* exception, const KernelInfo& kernel, const std::string& text) {
  raise(exception, kernel.name + "(): " + text);
  return false;
}

bool read_dims(const KernelInfo& kernel, const char* what, PyObject* object, uint32_t (&out)[3]) {
  if (PyLong_CheckExact(object)) return read_number(kernel, what, object, 1, &out[0]);
  const bool sequence = PyTuple_Check(object) || PyList_Check(object);
  const Py_ssize_t count = sequence ? PySequence_Fast_GET_SIZE(object) : 1;
  if (count < 1 || count > 3) {
    return refuse(
        kArgumentError, kernel,
        std::string(what) + ": found " + std::to_string(count) + " numbers, wanted 1 to 3");
  }
  if (!sequence) return read_number(kernel, what, object, 1, &out[0]);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!read_number(kernel, what, PySequence_Fast_GET_ITEM(object, i), 1, &out[i])) return false;
  }
  return true;
}

bool read_stream(const KernelInfo& kernel, PyObject* object, void** out) {
  return stream_address(object, out) || refuse(kArgumentError, kernel,
                                               "argument 'stream': found an object of type " +
                                                   type_name(object) + ", wanted " + kWantedStream);
}

bool read_extra(const KernelInfo& kernel, PyObject* name, PyObject* object, Extras* extras) {
  opdock_launch& launch = *extras->launch;
  const auto is = [&](const char* known) {
    return PyUnicode_CompareWithASCIIString(name, known) == 0;
  };
  if (is("shared"))
    return read_number(kernel, "argument 'shared'", object, 0, &launch.shared_bytes);
  if (is("stream")) {
    extras->stream = object == Py_None ? nullptr : object;
    return true;
  }
  if (is("cluster")) {
    if (object == Py_None) return true;
    for (uint32_t& size : launch.cluster) size = 1;
    return read_dims(kernel, "argument 'cluster'", object, launch.cluster);
  }
  const bool cooperative = is("cooperative");
  if (cooperative || is("programmatic")) {
    const int wanted = PyObject_IsTrue(object);
    if (wanted < 0) return false;
    if (wanted != 0) {
      launch.flags |= cooperative ? OPDOCK_LAUNCH_COOPERATIVE : OPDOCK_LAUNCH_PROGRAMMATIC;
    }
    return true;
  }
  const char* text = PyUnicode_AsUTF8(name);
  return refuse(kArgumentError, kernel,
                "found an unknown argument '" + std::string(text == nullptr ? "" : text) +
                    "', wanted shared, stream, cluster, cooperative or programmatic");
}

}  // namespace opdock::python
