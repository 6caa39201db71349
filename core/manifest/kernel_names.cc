// SPDX-License-Identifier: Apache-2.0
#include "manifest/kernel_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace opdock {
namespace {

// A part of a name: a single text, or the elements of a list.
using Choices = std::vector<std::string>;

class KernelNameParser {
 public:
  KernelNameParser(std::string_view text, KernelNameMistake* mistake)
      : text_(text), mistake_(mistake) {}

  std::optional<std::vector<Choices>> parse() {
    std::vector<Choices> parts;
    for (size_t at = 0; at < text_.size();) {
      const size_t brace = std::min(text_.find_first_of("{}", at), text_.size());
      if (brace > at) parts.push_back({std::string(text_.substr(at, brace - at))});
      if (brace == text_.size()) break;
      if (text_[brace] == '}') return wrong(brace, "a '}' that closes nothing", "'{' before it");
      std::optional<Choices> elements = list(brace, &at);
      if (!elements) return std::nullopt;
      parts.push_back(std::move(*elements));
    }
    return parts;
  }

 private:
  std::nullopt_t wrong(size_t offset, std::string found, std::string wanted) {
    *mistake_ = {offset, std::move(found), std::move(wanted)};
    return std::nullopt;
  }

  // Return the nearest character that is not a space: before text_[at], or from text_[at] on.
  char before(size_t at) const {
    while (at > 0 && text_[at - 1] == ' ') --at;
    return at > 0 ? text_[at - 1] : '\0';
  }
  char from(size_t at) const {
    while (at < text_.size() && text_[at] == ' ') ++at;
    return at < text_.size() ? text_[at] : '\0';
  }

  // Parses the list that begins with the brace at `open`; *end: the offset behind it.
  std::optional<Choices> list(size_t open, size_t* end) {
    constexpr char kWhole[] = "the list to be a whole template argument, such as {float, double}";
    if (before(open) != '<' && before(open) != ',')
      return wrong(open, "a list within a word", kWhole);
    Choices elements;
    int depth = 0;  // nesting of brackets within an element
    size_t begin = open + 1;
    for (size_t at = begin; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '{') return wrong(at, "a list within a list", "each list apart");
      if (c == '<' || c == '(' || c == '[') ++depth;
      if ((c == '>' || c == ')' || c == ']') && depth > 0) --depth;
      if (c != '}' && (c != ',' || depth > 0)) continue;
      if (depth > 0) return wrong(at, "an open bracket in an element of a list", "it closed");
      std::string_view element = text_.substr(begin, at - begin);
      while (element.starts_with(' ')) element.remove_prefix(1);
      while (element.ends_with(' ')) element.remove_suffix(1);
      if (element.empty()) return wrong(at, "an empty element of a list", "a template argument");
      elements.emplace_back(element);
      begin = at + 1;
      if (c == ',') continue;
      if (from(begin) != ',' && from(begin) != '>')
        return wrong(begin, "text behind a list", kWhole);
      *end = begin;
      return elements;
    }
    return wrong(open, "a list without an end", "'}' behind its last element");
  }

  std::string_view text_;
  KernelNameMistake* mistake_;
};

}  // namespace

std::optional<std::vector<std::string>> expand_kernel_name(std::string_view text, size_t most,
                                                           KernelNameMistake* mistake) {
  const std::optional<std::vector<Choices>> parts = KernelNameParser(text, mistake).parse();
  if (!parts) return std::nullopt;
  std::vector<std::string> names = {""};
  for (const Choices& choices : *parts) {
    if (names.size() > most / choices.size()) {
      *mistake = {0, fmt::format("more than {} kernels", kMaxKernels),
                  fmt::format("at most {} in a plugin, with what its lists stand for; split it",
                              kMaxKernels)};
      return std::nullopt;
    }
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& choice : choices) longer.push_back(name + choice);
    names = std::move(longer);
  }
  return names;
}

std::vector<std::string> read_kernel_names(TomlTable* device, const std::string& file) {
  std::vector<std::string> all;
  std::set<std::string> seen;
  for (const std::string& text : device->texts("kernels", true)) {
    const TextPlace place = device->place("kernels", text);
    KernelNameMistake mistake;
    const auto names = expand_kernel_name(text, kMaxKernels - all.size(), &mistake);
    if (!names) {
      device->mistake("kernels", place_in(file, place, text, mistake.offset), mistake.found,
                      mistake.wanted);
      continue;
    }
    const auto again = std::find_if(names->begin(), names->end(), [&](const std::string& name) {
      return !seen.insert(name).second;
    });
    if (again != names->end())
      device->mistake("kernels", place, fmt::format("\"{}\" twice", *again), "it once");
    all.insert(all.end(), names->begin(), names->end());
  }
  return all;
}

}  // namespace opdock
