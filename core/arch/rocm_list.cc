// SPDX-License-Identifier: Apache-2.0
#include "arch/rocm_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "arch/list_scanner.h"
#include "facts/arch.h"

namespace opdock {
namespace {

constexpr char kWantedRocm[] =
    "processors such as gfx90a, gfx90a:xnack+, gfx1030 or gfx9-4-generic, native or auto, "
    "separated "
    "by ';', ',' or spaces";

// Returns whether the text is a processor: "gfx90a", "gfx1030", "gfx9-4-generic".
bool is_processor(std::string_view text) {
  if (!text.starts_with("gfx")) return false;
  text.remove_prefix(3);
  constexpr std::string_view kGeneric = "-generic";
  if (text.ends_with(kGeneric)) {
    text.remove_suffix(kGeneric.size());
    return !text.empty() && text.find_first_not_of("0123456789-") == text.npos &&
           text.front() != '-' && text.back() != '-';
  }
  return text.size() >= 3 && text.size() <= 5 &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Returns what to do about a wrong word; empty if that is unknown.
std::string advice(std::string_view word) {
  std::string small(word);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (small == "native" || small == "auto") return "write " + small;
  if (small == "all" || small == "all-major")
    return "name the processors: the HIP compilers have no such word";
  const size_t colon = std::min(small.find(':'), small.size());
  if (small != word && is_processor(small.substr(0, colon))) return fmt::format("write {}", small);
  if (is_processor("gfx" + small.substr(0, colon))) return fmt::format("write gfx{}", small);
  if (is_processor(small.substr(0, colon)))
    return "features are sramecc and xnack, each once, with + or - behind";
  return {};
}

// Returns whether a feature occurs twice, which parse_gfx_arch() accepts.
bool has_repeated_feature(std::string_view word) {
  for (const std::string_view feature : {":sramecc", ":xnack"})
    if (word.find(feature) != word.rfind(feature)) return true;
  return false;
}

std::string canonical(const GfxArch& arch) {
  std::string text = arch.processor;
  if (arch.sramecc) text += *arch.sramecc ? ":sramecc+" : ":sramecc-";
  if (arch.xnack) text += *arch.xnack ? ":xnack+" : ":xnack-";
  return text;
}

}  // namespace

std::optional<RocmList> parse_rocm_list(std::string_view text, std::string_view origin,
                                        Reason* reason) {
  ListScanner scanner(text, origin);
  RocmList list;
  std::map<std::string, GfxArch> first;  // each processor's first item
  std::string_view word;
  bool any = false;
  while (scanner.next(&word)) {
    any = true;
    if (word == "native" || word == "auto") {
      (word == "native" ? list.native : list.automatic) = true;
      continue;
    }
    const std::optional<GfxArch> arch = parse_gfx_arch(word);
    if (!arch || !is_processor(arch->processor) || has_repeated_feature(word)) {
      *reason = scanner.invalid(word, kWantedRocm, advice(word));
      return std::nullopt;
    }
    const GfxArch& earlier = first.emplace(arch->processor, *arch).first->second;
    if (earlier.sramecc.has_value() != arch->sramecc.has_value() ||
        earlier.xnack.has_value() != arch->xnack.has_value()) {
      *reason = scanner.invalid(
          word,
          fmt::format("the features of {} named in all of its items or in none", arch->processor),
          fmt::format("{} stands earlier in the list: name the same features in both",
                      canonical(earlier)));
      return std::nullopt;
    }
    list.targets.push_back(canonical(*arch));
  }
  if (!any) {
    *reason = scanner.empty(kWantedRocm);
    return std::nullopt;
  }
  std::sort(list.targets.begin(), list.targets.end());
  list.targets.erase(std::unique(list.targets.begin(), list.targets.end()), list.targets.end());
  return list;
}

std::string to_text(const std::vector<std::string>& targets) {
  std::string out;
  for (const std::string& target : targets) out += (out.empty() ? "" : ";") + target;
  return out;
}

}  // namespace opdock
