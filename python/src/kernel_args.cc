// Packs numbers and by-value structs as a kernel's arguments.
// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "errors.h"
#include "kernel.h"
#include "opdock/types.hpp"

namespace opdock::python {

namespace {

bool refuse(const char* exception, const KernelInfo& kernel, uint32_t index,
            const std::string& text) {
  raise(exception, kernel.name + "(): argument " + std::to_string(index) + ": " + text);
  return false;
}

std::string bytes_text(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

ParamKind kind_of(std::string_view type) {
  while (!type.empty() && type.front() == ' ') type.remove_prefix(1);
  constexpr std::string_view kConst = " const";
  if (type.ends_with(kConst)) type.remove_suffix(kConst.size());
  if (type.ends_with('*') || type.ends_with("* __restrict__") || type.ends_with("*__restrict__")) {
    return ParamKind::kPointer;
  }
  if (type == "float" || type == "double") return ParamKind::kFloat;
  if (type == "__half" || type == "opdock::half") return ParamKind::kHalf;
  if (type == "__nv_bfloat16" || type == "opdock::bfloat16") return ParamKind::kBfloat16;
  for (std::string_view name :
       {"bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int",
        "unsigned int", "long", "unsigned long", "long long", "unsigned long long"}) {
    if (type == name) return ParamKind::kInt;
  }
  return ParamKind::kUnknown;
}

// Returns the parameter types at the end of a demangled signature: {"a", " b"} for "void
// f<g(int)>(a, b)".
std::vector<std::string_view> parameters_of(std::string_view signature) {
  std::vector<std::string_view> found;
  if (!signature.ends_with(')')) return found;
  int depth = 0;
  size_t end = signature.size() - 1;
  for (size_t at = signature.size(); at-- > 0;) {
    const char c = signature[at];
    if (c == ')' || c == '>' || c == ']') ++depth;
    if (c == '(' || c == '<' || c == '[') --depth;
    const bool opens = depth == 0;
    if (!opens && !(c == ',' && depth == 1)) continue;
    if (end > at + 1) found.insert(found.begin(), signature.substr(at + 1, end - at - 1));
    end = at;
    if (opens) break;
  }
  return found;
}

// Returns `size` zeroed bytes of the frame.
char* room(Frame& frame, uint32_t size) {
  char* bytes = frame.take<char>(size < 16 ? 16 : size);
  std::memset(bytes, 0, size);
  return bytes;
}

template <typename T>
void store(void* slot, T value) {
  std::memcpy(slot, &value, sizeof value);
}

bool pack_float(const KernelInfo& kernel, uint32_t index, ParamKind kind, uint32_t size,
                double value, char* out) {
  if (kind == ParamKind::kHalf) {
    store(out, half(static_cast<float>(value)));
  } else if (kind == ParamKind::kBfloat16) {
    store(out, bfloat16(static_cast<float>(value)));
  } else if (size == 4) {
    store(out, static_cast<float>(value));
  } else if (size == 8) {
    store(out, value);
  } else {
    return refuse(kArgumentError, kernel, index,
                  "found a float for a parameter of " + bytes_text(size) +
                      ", wanted one of 4 or 8; pass a NumPy scalar or bytes of exactly its size");
  }
  return true;
}

// Returns the range of ints that fit a signed or an unsigned parameter, as text.
std::string range_text(uint32_t size) {
  if (size == 8) return "-2**63 to 2**64 - 1";
  const long long half = 1LL << (size * 8 - 1);
  return std::to_string(-half) + " to " + std::to_string(2 * half - 1);
}

bool pack_int(const KernelInfo& kernel, uint32_t index, uint32_t size, PyObject* object,
              char* out) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) return false;
  uint64_t bits = static_cast<uint64_t>(value);
  if (size != 1 && size != 2 && size != 4 && size != 8) {
    return refuse(kArgumentError, kernel, index,
                  "found an int for a parameter of " + bytes_text(size) +
                      ", wanted bytes or a NumPy scalar of exactly its size");
  }
  bool fits = overflow == 0;
  if (overflow > 0 && size == 8) {
    bits = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred() == nullptr) fits = true;
    PyErr_Clear();
  } else if (fits && size < 8) {
    const int width = static_cast<int>(size) * 8;
    fits = value >= -(1LL << (width - 1)) && value < (1LL << width);
  }
  if (!fits) {
    return refuse(kInvalidArgumentError, kernel, index,
                  "found " + text_of(object) + ", wanted an int of " + bytes_text(size) + ": " +
                      range_text(size));
  }
  std::memcpy(out, &bits, size);  // little-endian
  return true;
}

// Packs NumPy scalars, ctypes objects and bytes by copying their memory.
bool pack_buffer(Frame& frame, const KernelInfo& kernel, const KernelTarget& target, uint32_t index,
                 PyObject* object, void** slot) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS) != 0) {
    clear_error();
    return refuse(kArgumentError, kernel, index,
                  "found an object of type " + type_name(object) +
                      ", wanted an array on the GPU, a number, None, or bytes of a struct");
  }
  const uint64_t size = static_cast<uint64_t>(view.len);
  const bool fits = !target.has_sizes || target.sizes[index] == size;
  if (fits) {
    *slot = room(frame, static_cast<uint32_t>(size));
    std::memcpy(*slot, view.buf, size);
  }
  PyBuffer_Release(&view);
  if (fits) return true;
  return refuse(kArgumentError, kernel, index,
                "found " + type_name(object) + " of " + bytes_text(size) + ", wanted " +
                    bytes_text(target.sizes[index]));
}

}  // namespace

std::vector<ParamKind> kinds_of(const char* image_name, uint32_t num_params) {
  std::vector<ParamKind> kinds(num_params, ParamKind::kUnknown);
  int status = 0;
  char* const text = abi::__cxa_demangle(image_name, nullptr, nullptr, &status);
  if (text == nullptr) return kinds;
  const std::vector<std::string_view> types = parameters_of(text);
  if (types.size() == num_params) {
    for (uint32_t i = 0; i < num_params; ++i) kinds[i] = kind_of(types[i]);
  }
  std::free(text);
  return kinds;
}

bool check_pointer(const KernelInfo& kernel, const KernelTarget& target, uint32_t index) {
  if (!target.has_sizes) return true;
  const ParamKind kind = target.kinds[index];
  if (target.sizes[index] == sizeof(void*) &&
      (kind == ParamKind::kPointer || kind == ParamKind::kUnknown)) {
    return true;
  }
  return refuse(kArgumentError, kernel, index,
                "found an array, wanted a number: the parameter is no pointer, it has " +
                    bytes_text(target.sizes[index]));
}

bool pack_scalar(Frame& frame, const KernelInfo& kernel, const KernelTarget& target, uint32_t index,
                 PyObject* object, void** slot) {
  if (object == Py_None) {
    if (!check_pointer(kernel, target, index)) return false;
    *slot = room(frame, sizeof(void*));
    return true;
  }
  const bool is_float = PyFloat_CheckExact(object);
  if (!is_float && !PyLong_Check(object)) {
    return pack_buffer(frame, kernel, target, index, object, slot);
  }
  if (!target.has_sizes) {
    return refuse(kArgumentError, kernel, index,
                  "found a Python number, wanted a NumPy scalar of the parameter's exact type: "
                  "this driver (before CUDA 12.4), or this code object, does not tell its size");
  }
  const ParamKind kind = target.kinds[index];
  const uint32_t size = target.sizes[index];
  const bool takes_float =
      kind == ParamKind::kFloat || kind == ParamKind::kHalf || kind == ParamKind::kBfloat16;
  *slot = room(frame, size);
  char* const out = static_cast<char*>(*slot);
  if (is_float && (kind == ParamKind::kInt || kind == ParamKind::kPointer)) {
    return refuse(kArgumentError, kernel, index,
                  kind == ParamKind::kInt ? "found a float, wanted an int"
                                          : "found a float, wanted an array on the GPU");
  }
  if (!is_float && !takes_float) return pack_int(kernel, index, size, object, out);
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) return false;
  return pack_float(kernel, index, kind, size, value, out);
}

}  // namespace opdock::python
