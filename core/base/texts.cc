// SPDX-License-Identifier: Apache-2.0
#include "base/texts.h"

namespace opdock {

std::string join(const std::vector<std::string>& texts, std::string_view between) {
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) all += between;
    all += texts[i];
  }
  return all;
}

std::string join_or(const std::vector<std::string>& texts) {
  if (texts.size() < 2) return join(texts);
  return join({texts.begin(), texts.end() - 1}) + " or " + texts.back();
}

std::string join_some(const std::vector<std::string>& texts, size_t most) {
  if (texts.size() <= most) return join(texts);
  return join({texts.begin(), texts.begin() + static_cast<ptrdiff_t>(most)}) + " and " +
         std::to_string(texts.size() - most) + " more";
}

}  // namespace opdock
