// SPDX-License-Identifier: Apache-2.0
#include "schema/dtype.h"

#include <charconv>

namespace opdock {
namespace {

struct DtypeName {
  std::string_view name;
  uint8_t code;
  uint8_t bits;
};
constexpr DtypeName kDtypes[] = {
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

}  // namespace

std::string to_text(opdock_dtype dtype) {
  for (const DtypeName& known : kDtypes) {
    if (known.code != dtype.code || known.bits != dtype.bits) continue;
    std::string text(known.name);
    if (dtype.lanes != 1) text += "_x" + std::to_string(dtype.lanes);
    return text;
  }
  return "dtype code " + std::to_string(dtype.code) + " bits " + std::to_string(dtype.bits) +
         " lanes " + std::to_string(dtype.lanes);
}

std::optional<opdock_dtype> parse_dtype(std::string_view text) {
  for (const DtypeName& known : kDtypes) {
    if (!text.starts_with(known.name)) continue;
    std::string_view rest = text.substr(known.name.size());
    if (rest.empty()) return opdock_dtype{known.code, known.bits, 1};
    uint16_t lanes = 0;
    if (!rest.starts_with("_x")) continue;
    auto [end, problem] = std::from_chars(rest.data() + 2, rest.data() + rest.size(), lanes);
    if (problem != std::errc() || end != rest.data() + rest.size() || lanes < 2) continue;
    return opdock_dtype{known.code, known.bits, lanes};
  }
  return std::nullopt;
}

std::string to_text(opdock_device device) {
  switch (device.type) {
    case OPDOCK_CPU:
      return device.index == 0 ? "cpu" : "cpu:" + std::to_string(device.index);
    case OPDOCK_CUDA:
      return "cuda:" + std::to_string(device.index);
    case OPDOCK_ROCM:
      return "rocm:" + std::to_string(device.index);
    default:
      return "device type " + std::to_string(device.type) + " index " +
             std::to_string(device.index);
  }
}

std::string_view tag_text(uint32_t tag) {
  switch (tag) {
    case OPDOCK_TAG_NONE:
      return "None";
    case OPDOCK_TAG_BOOL:
      return "a bool";
    case OPDOCK_TAG_INT:
      return "an int";
    case OPDOCK_TAG_FLOAT:
      return "a float";
    case OPDOCK_TAG_COMPLEX:
      return "a complex number";
    case OPDOCK_TAG_STRING:
      return "a str";
    case OPDOCK_TAG_DTYPE:
      return "a dtype";
    case OPDOCK_TAG_DEVICE:
      return "a device";
    case OPDOCK_TAG_TENSOR:
      return "a tensor";
    case OPDOCK_TAG_OBJECT:
      return "an object";
    case OPDOCK_TAG_STREAM:
      return "a stream";
    case OPDOCK_TAG_GENERATOR:
      return "a generator";
    case OPDOCK_TAG_LIST:
      return "a list";
    default:
      return "a value of unknown tag";
  }
}

}  // namespace opdock
