// SPDX-License-Identifier: Apache-2.0
#include "schema/dtype.h"

#include <charconv>

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
