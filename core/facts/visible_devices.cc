// SPDX-License-Identifier: Apache-2.0
#include "facts/visible_devices.h"

#include <algorithm>
#include <charconv>

namespace opdock {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool is_uuid(std::string_view token) {
  return token.starts_with("GPU-") || token.starts_with("MIG-");
}

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> tokens;
  for (;;) {
    const size_t comma = std::min(list.find(','), list.size());
    tokens.push_back(trim(list.substr(0, comma)));
    if (comma == list.size()) return tokens;
    list.remove_prefix(comma + 1);
  }
}

std::string in_quotes(std::string_view token) {
  return "\"" + std::string(token) + "\"";
}

}  // namespace

VisibleDevices parse_visible_devices(std::string_view list, int count) {
  VisibleDevices visible;
  if (trim(list).empty()) {
    visible.problem = "the list is empty";
    return visible;
  }
  const std::vector<std::string_view> tokens = split(list);
  visible.by_number = !is_uuid(tokens.front());
  for (std::string_view token : tokens) {
    VisibleToken next;
    if (is_uuid(token)) {
      if (visible.by_number) {
        visible.problem = in_quotes(token) + " is a UUID in a list of numbers";
        return visible;
      }
      next.uuid = token;
    } else {
      int ordinal = -1;
      std::from_chars(token.data(), token.data() + token.size(), ordinal);
      if (!visible.by_number || ordinal < 0 || ordinal >= count) {
        visible.problem = in_quotes(token) + " names no GPU here";
        return visible;
      }
      next.ordinal = ordinal;
    }
    for (const VisibleToken& earlier : visible.tokens) {
      if (earlier.ordinal == next.ordinal && earlier.uuid == next.uuid) {
        visible.tokens.clear();
        visible.problem = in_quotes(token) + " is repeated, which hides every GPU";
        return visible;
      }
    }
    visible.tokens.push_back(next);
  }
  return visible;
}

std::vector<int> choose_visible(const VisibleDevices& visible,
                                const std::vector<std::string>& uuids, std::string* problem) {
  std::vector<int> chosen;
  for (const VisibleToken& token : visible.tokens) {
    int index = token.ordinal;
    if (!token.uuid.empty()) {
      const auto fits = [&](const std::string& uuid) { return uuid.starts_with(token.uuid); };
      const auto found = std::find_if(uuids.begin(), uuids.end(), fits);
      if (found == uuids.end() || std::count_if(uuids.begin(), uuids.end(), fits) > 1) {
        *problem = in_quotes(token.uuid) +
                   (found == uuids.end() ? " fits no" : " fits more than one") + " GPU here";
        return chosen;
      }
      index = static_cast<int>(found - uuids.begin());
    }
    if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
      *problem = in_quotes(token.uuid) + " is repeated, which hides every GPU";
      return {};
    }
    chosen.push_back(index);
  }
  return chosen;
}

}  // namespace opdock
