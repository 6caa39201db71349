// Fuzzes the JSON parser. A refused text has a reason; an accepted one obeys the limits.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "note/json.h"

namespace {

void check(const opdock::Json& json, size_t depth) {
  using Type = opdock::Json::Type;
  if (json.type == Type::kObject && json.keys.size() != json.items.size()) abort();
  if (json.type != Type::kObject && !json.keys.empty()) abort();
  const bool nested = json.type == Type::kObject || json.type == Type::kArray;
  if (!nested && !json.items.empty()) abort();
  if (nested && depth >= opdock::kMaxJsonDepth) abort();
  for (const opdock::Json& item : json.items) check(item, depth + 1);
  for (const std::string& key : json.keys) {
    if (json.find(key) == nullptr) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string problem;
  const std::optional<opdock::Json> json =
      opdock::parse_json({reinterpret_cast<const char*>(data), size}, &problem);
  if (json) check(*json, 0);
  if (json.has_value() != problem.empty()) abort();
  return 0;
}
