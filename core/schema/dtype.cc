// SPDX-License-Identifier: Apache-2.0
#include "schema/dtype.h"

#include <cctype>
#include <charconv>
#include <utility>

#include "base/similar_names.h"
#include "opdock/types.hpp"

namespace opdock {

std::string to_text(opdock_dtype dtype) {
  return Dtype(dtype).name();
}

std::optional<opdock_dtype> parse_dtype(std::string_view text) {
  for (const detail::DtypeName& known : detail::kDtypeNames) {
    if (!text.starts_with(known.name)) continue;
    std::string_view rest = text.substr(std::string_view(known.name).size());
    if (rest.empty()) return opdock_dtype{known.code, known.bits, 1};
    uint16_t lanes = 0;
    if (!rest.starts_with("_x")) continue;
    auto [end, problem] = std::from_chars(rest.data() + 2, rest.data() + rest.size(), lanes);
    if (problem != std::errc() || end != rest.data() + rest.size() || lanes < 2) continue;
    return opdock_dtype{known.code, known.bits, lanes};
  }
  return std::nullopt;
}

std::string meant_dtype(std::string_view text) {
  constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
      {"half", "float16"},       {"fp16", "float16"},     {"f16", "float16"},
      {"bf16", "bfloat16"},      {"float", "float32"},    {"single", "float32"},
      {"fp32", "float32"},       {"f32", "float32"},      {"double", "float64"},
      {"fp64", "float64"},       {"f64", "float64"},      {"fp8", "float8_e4m3fn"},
      {"e4m3", "float8_e4m3fn"}, {"e5m2", "float8_e5m2"}, {"byte", "uint8"},
      {"char", "int8"},          {"i8", "int8"},          {"u8", "uint8"},
      {"short", "int16"},        {"int", "int32"},        {"i32", "int32"},
      {"long", "int64"},         {"i64", "int64"},        {"boolean", "bool"},
  };
  std::string word(text.substr(text.rfind('.') + 1));  // "torch.float16"
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [other, name] : kOtherNames) {
    if (word == other) return name;
  }
  std::vector<std::string> names;
  for (const detail::DtypeName& known : detail::kDtypeNames) names.emplace_back(known.name);
  const std::vector<std::string> similar = similar_names(word, names);
  return similar.empty() ? "" : similar.front();
}

std::string to_text(opdock_device device) {
  return Device(device).name();
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
