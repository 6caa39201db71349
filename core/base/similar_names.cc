// SPDX-License-Identifier: Apache-2.0
#include "base/similar_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace opdock {
namespace {

constexpr size_t kMaxLetters = 128;  // longer names are not compared
constexpr size_t kMinLetters = 4;    // shorter names are not searched for inside `name`

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Damerau-Levenshtein distance that edits each place at most once (optimal string alignment).
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::vector<std::string> similar_names(const std::string& name,
                                       const std::vector<std::string>& known) {
  const std::string wanted = lower(name.substr(name.rfind('/') + 1));
  if (wanted.empty() || wanted.size() > kMaxLetters) return {};
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& candidate : known) {
    if (candidate.size() > kMaxLetters) continue;
    const std::string other = lower(candidate);
    const size_t allowed = std::max<size_t>(std::max(wanted.size(), other.size()) / 3, 1);
    const size_t away = distance(wanted, other);
    const bool is_within =
        other.size() >= kMinLetters && (wanted.starts_with(other) || wanted.ends_with(other));
    if (away <= allowed || is_within || other.starts_with(wanted)) {
      found.emplace_back(away, candidate);
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 3) found.resize(3);
  std::vector<std::string> names;
  for (auto& [away, candidate] : found) names.push_back(std::move(candidate));
  return names;
}

}  // namespace opdock
