// opdock/types.hpp: errors, dtypes, devices and 16-bit floats, for plugin.hpp and opdock.hpp.
// C++17, header-only.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_TYPES_HPP_
#define OPDOCK_TYPES_HPP_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "opdock/plugin.h"

namespace opdock {

// The exception that every wrapper of the C interface throws: an opdock_status and a sentence that
// says what was found, what was wanted and what to do.
class Error : public std::exception {
 public:
  Error(opdock_status status, std::string text) : status_(status), text_(std::move(text)) {}
  opdock_status status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  opdock_status status_;
  std::string text_;
};

// Returns whether an error number of the CUDA driver or of HIP means that the device refuses
// everything from now on in this process (OPDOCK_DEVICE_LOST). The two APIs agree on the numbers
// that both have.
inline bool loses_device(int driver_error) {
  switch (driver_error) {
    case 53:   // HIP: PriorLaunchFailure
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

namespace detail {

// A piece of a text: a text, an integer, or a double, in as many digits as it needs. It is one type
// for all, so that the compiler need not instantiate the code that builds an error's text for each
// combination.
class Part {
 public:
  Part(const char* text) : text_(text) {}
  Part(std::string_view text) : text_(text) {}
  Part(const std::string& text) : text_(text) {}
  Part(char) = delete;  // ambiguous: a text of one letter, or a number
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Part(T number)
      : magnitude_(number < T() ? uint64_t{0} - static_cast<uint64_t>(number)
                                : static_cast<uint64_t>(number)),
        is_number_(true),
        is_negative_(number < T()) {}
  Part(double number) : real_(number), is_real_(true) {}

  void append_to(std::string& text) const {
    if (is_real_) {
      char digits[32];
      int precision = 5;
      do {
        std::snprintf(digits, sizeof digits, "%.*g", ++precision, real_);
      } while (precision < 17 && std::strtod(digits, nullptr) != real_);
      text += digits;
      return;
    }
    if (!is_number_) {
      text += text_;
      return;
    }
    char digits[20];
    size_t at = sizeof digits;
    uint64_t rest = magnitude_;
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (is_negative_) text += '-';
    text.append(digits + at, sizeof digits - at);
  }

 private:
  std::string_view text_;
  uint64_t magnitude_ = 0;
  double real_ = 0;
  bool is_number_ = false, is_negative_ = false, is_real_ = false;
};

[[gnu::cold, gnu::noinline]] inline std::string join(std::initializer_list<Part> parts) {
  std::string text;
  for (const Part& part : parts) part.append_to(text);
  return text;
}

// Joins texts and numbers into one text.
template <class... Parts>
std::string concat(const Parts&... parts) {
  return join({Part(parts)...});
}

template <class To, class From>
To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// IEEE 754 binary16, round to nearest even; NaNs stay NaNs.
inline uint16_t half_from_float(float value) {
  uint32_t bits = bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (bits >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and more
  if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at 2^-24, the subnormals' step
    uint32_t sum = bit_cast<uint32_t>(bit_cast<float>(bits) + 0.5f);
    return static_cast<uint16_t>(sign | (sum - 0x3f000000u));
  }
  bits += 0xfffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((bits - 0x38000000u) >> 13));
}

inline float half_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact
    uint32_t magnitude = bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
    return bit_cast<float>(sign | magnitude);
  }
  if (exponent == 31) return bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// The upper half of a float, round to nearest even; NaNs stay NaNs.
inline uint16_t bfloat16_from_float(float value) {
  uint32_t bits = bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace detail

// Storage of a float16 on the host. Arithmetic is done in float.
struct half {
  uint16_t bits;
  half() = default;
  half(float value) : bits(detail::half_from_float(value)) {}
  operator float() const { return detail::half_to_float(bits); }
};

// Storage of a bfloat16 on the host. Arithmetic is done in float.
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  bfloat16(float value) : bits(detail::bfloat16_from_float(value)) {}
  operator float() const { return detail::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2, "two bytes an element, as in memory");

namespace detail {

// Every dtype that has a name; the host and the programs read it too.
struct DtypeName {
  char name[20];
  uint8_t code;
  uint8_t bits;
};
inline constexpr DtypeName kDtypeNames[] = {
    {"bool", OPDOCK_DTYPE_BOOL, 8},
    {"int8", OPDOCK_DTYPE_INT, 8},
    {"int16", OPDOCK_DTYPE_INT, 16},
    {"int32", OPDOCK_DTYPE_INT, 32},
    {"int64", OPDOCK_DTYPE_INT, 64},
    {"int4", OPDOCK_DTYPE_INT, 4},
    {"uint8", OPDOCK_DTYPE_UINT, 8},
    {"uint16", OPDOCK_DTYPE_UINT, 16},
    {"uint32", OPDOCK_DTYPE_UINT, 32},
    {"uint64", OPDOCK_DTYPE_UINT, 64},
    {"uint4", OPDOCK_DTYPE_UINT, 4},
    {"float16", OPDOCK_DTYPE_FLOAT, 16},
    {"float32", OPDOCK_DTYPE_FLOAT, 32},
    {"float64", OPDOCK_DTYPE_FLOAT, 64},
    {"bfloat16", OPDOCK_DTYPE_BFLOAT, 16},
    {"complex32", OPDOCK_DTYPE_COMPLEX, 32},
    {"complex64", OPDOCK_DTYPE_COMPLEX, 64},
    {"complex128", OPDOCK_DTYPE_COMPLEX, 128},
    {"float8_e3m4", OPDOCK_DTYPE_FLOAT8_E3M4, 8},
    {"float8_e4m3", OPDOCK_DTYPE_FLOAT8_E4M3, 8},
    {"float8_e4m3b11fnuz", OPDOCK_DTYPE_FLOAT8_E4M3B11FNUZ, 8},
    {"float8_e4m3fn", OPDOCK_DTYPE_FLOAT8_E4M3FN, 8},
    {"float8_e4m3fnuz", OPDOCK_DTYPE_FLOAT8_E4M3FNUZ, 8},
    {"float8_e5m2", OPDOCK_DTYPE_FLOAT8_E5M2, 8},
    {"float8_e5m2fnuz", OPDOCK_DTYPE_FLOAT8_E5M2FNUZ, 8},
    {"float8_e8m0fnu", OPDOCK_DTYPE_FLOAT8_E8M0FNU, 8},
    {"float6_e2m3fn", OPDOCK_DTYPE_FLOAT6_E2M3FN, 6},
    {"float6_e3m2fn", OPDOCK_DTYPE_FLOAT6_E3M2FN, 6},
    {"float4_e2m1fn", OPDOCK_DTYPE_FLOAT4_E2M1FN, 4},
};

}  // namespace detail

// An element type.
struct Dtype : opdock_dtype {
  constexpr Dtype() : opdock_dtype{0, 0, 0} {}
  constexpr Dtype(opdock_dtype dtype) : opdock_dtype(dtype) {}
  constexpr Dtype(uint8_t type_code, uint8_t type_bits) : opdock_dtype{type_code, type_bits, 1} {}

  // Returns "float32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2" for two lanes; a dtype
  // without a name is described by its numbers.
  [[gnu::cold, gnu::noinline]] std::string name() const {
    for (const detail::DtypeName& known : detail::kDtypeNames) {
      if (known.code != code || known.bits != bits) continue;
      return lanes == 1 ? std::string(known.name) : detail::concat(known.name, "_x", lanes);
    }
    return detail::concat("dtype code ", code, " bits ", bits, " lanes ", lanes);
  }
  // Returns the bytes of one element.
  constexpr int64_t bytes() const { return (int64_t{bits} * lanes + 7) / 8; }

  friend constexpr bool operator==(Dtype a, Dtype b) {
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
  }
  friend constexpr bool operator!=(Dtype a, Dtype b) { return !(a == b); }
};

// Returns the dtype of a C++ type: bool, the fixed-width integers, half, bfloat16, float, double.
template <class T>
constexpr Dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) {
    return {OPDOCK_DTYPE_BOOL, 8};
  } else if constexpr (std::is_same_v<U, half>) {
    return {OPDOCK_DTYPE_FLOAT, 16};
  } else if constexpr (std::is_same_v<U, bfloat16>) {
    return {OPDOCK_DTYPE_BFLOAT, 16};
  } else if constexpr (std::is_integral_v<U>) {
    return {std::is_signed_v<U> ? uint8_t{OPDOCK_DTYPE_INT} : uint8_t{OPDOCK_DTYPE_UINT},
            static_cast<uint8_t>(sizeof(U) * 8)};
  } else {
    static_assert(std::is_same_v<U, float> || std::is_same_v<U, double>, "no dtype for this type");
    return {OPDOCK_DTYPE_FLOAT, static_cast<uint8_t>(sizeof(U) * 8)};
  }
}

// A device: type (OPDOCK_CPU, OPDOCK_CUDA, OPDOCK_ROCM) and index.
struct Device : opdock_device {
  constexpr Device() : opdock_device{OPDOCK_CPU, 0} {}
  constexpr Device(opdock_device device) : opdock_device(device) {}
  constexpr Device(int32_t device_type, int32_t device_index)
      : opdock_device{device_type, device_index} {}

  // Returns "cpu", "cuda:0", "rocm:1".
  std::string name() const {
    if (type == OPDOCK_CPU) return index == 0 ? "cpu" : detail::concat("cpu:", index);
    if (type == OPDOCK_CUDA) return detail::concat("cuda:", index);
    if (type == OPDOCK_ROCM) return detail::concat("rocm:", index);
    return detail::concat("device type ", type, " index ", index);
  }
  friend constexpr bool operator==(Device a, Device b) {
    return a.type == b.type && a.index == b.index;
  }
  friend constexpr bool operator!=(Device a, Device b) { return !(a == b); }
};

// Returns the name of a type in device code, for kernel names: "float", "opdock::half", "int". It
// is never an alias, such as opdock::int32_t, because hipRTC does not find a kernel by an alias.
template <class T>
constexpr const char* device_type_name() {
  if constexpr (std::is_same_v<T, half>) {
    return "opdock::half";
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return "opdock::bfloat16";
  } else if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, uint8_t>) {
    return "unsigned char";
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return "int";
  } else {
    static_assert(std::is_same_v<T, int64_t>, "a type of device code");
    return "long long";
  }
}

}  // namespace opdock
#endif  // OPDOCK_TYPES_HPP_
