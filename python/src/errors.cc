// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <iterator>

#include "hooks.h"

namespace opdock::python {

namespace {

// Returns a new reference to opdock._errors.<name>, or NULL with an error set.
PyObject* find_exception(const char* name) {
  PyObject* module = PyImport_ImportModule("opdock._errors");
  if (module == nullptr) return nullptr;
  PyObject* found = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  return found;
}

}  // namespace

bool is_passed_on() {
  return PyErr_Occurred() != nullptr && (PyErr_ExceptionMatches(PyExc_Exception) == 0 ||
                                         PyErr_ExceptionMatches(PyExc_MemoryError) != 0);
}

void clear_error() {
  if (!is_passed_on()) PyErr_Clear();
}

void raise(const char* exception, const std::string& message) {
  if (is_passed_on()) return;
  PyObject *type = nullptr, *cause = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &cause, &trace);
  if (type != nullptr) PyErr_NormalizeException(&type, &cause, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  PyObject* found = find_exception(exception);
  if (found != nullptr) {
    // Messages may quote a library's text; bytes that are not UTF-8 must not hide the message.
    PyObject* text =
        PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace");
    PyObject* value = text == nullptr ? nullptr : PyObject_CallOneArg(found, text);
    Py_XDECREF(text);
    if (value != nullptr) {
      if (cause != nullptr) PyException_SetCause(value, Py_NewRef(cause));
      PyErr_SetObject(found, value);
      Py_DECREF(value);
    }
    Py_DECREF(found);
  }
  Py_XDECREF(cause);
}

void raise_status(opdock_status status, const char* text) {
  if (raise_kept_error()) return;
  static constexpr const char* kNames[] = {
      kInternalError,   kInvalidArgumentError, "UnsupportedError", "OutOfMemoryError",
      "DeviceError",    "DeviceLostError",     "NotFoundError",    "IncompatibleError",
      "CancelledError", kInternalError,        "IoError"};
  const bool known = status > 0 && status < static_cast<opdock_status>(std::size(kNames));
  raise(known ? kNames[status] : kInternalError, text);
  if (status == OPDOCK_NOT_FOUND || status == OPDOCK_INCOMPATIBLE) add_reasons();
}

std::string text_of(PyObject* object) {
  PyObject* text = PyObject_Str(object);
  const char* bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  const std::string result =
      bytes == nullptr ? "an object of type " + type_name(object) : std::string(bytes);
  Py_XDECREF(text);
  PyErr_Clear();
  return result;
}

std::string take_error_text() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  if (type == nullptr) return "no error was set";
  std::string text = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  PyObject* words = value == nullptr ? nullptr : PyObject_Str(value);
  const char* chars = words == nullptr ? nullptr : PyUnicode_AsUTF8(words);
  if (chars != nullptr && *chars != '\0') {
    const std::string all(chars);
    text += ": " + all.substr(0, all.find('\n'));
  }
  PyErr_Clear();
  Py_XDECREF(words);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return text;
}

std::string type_name(PyObject* object) {
  PyObject *error = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&error, &value, &trace);  // may become the cause of the caller's error
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  std::string name;
  PyObject* module = PyObject_GetAttrString(type, "__module__");
  if (module != nullptr && PyUnicode_Check(module)) {
    const char* text = PyUnicode_AsUTF8(module);
    if (text != nullptr && std::string(text) != "builtins") name = std::string(text) + ".";
  }
  Py_XDECREF(module);
  PyObject* plain = PyObject_GetAttrString(type, "__qualname__");
  if (plain != nullptr && PyUnicode_Check(plain)) {
    const char* text = PyUnicode_AsUTF8(plain);
    if (text != nullptr) name += text;
  }
  Py_XDECREF(plain);
  PyErr_Restore(error, value, trace);
  return name;
}

}  // namespace opdock::python
