// SPDX-License-Identifier: Apache-2.0
#include "jit/includes.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/sha256.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

bool blank(char c) {
  return c == ' ' || c == '\t';
}

class Walk {
 public:
  Walk(const std::vector<SourceText>& embedded, const std::vector<std::string>& folders,
       const std::string& toolkit, OutsideHeaders* out)
      : folders_(folders), toolkit_(toolkit), out_(out) {
    for (const SourceText& header : embedded) embedded_[header.name] = header.includes();
  }

  // Follows the includes of `text`. from: the folder of the file with this text; empty if embedded.
  void follow(std::string_view text, const std::string& from) {
    for (const Include& include : includes_of(text)) {
      if (include.computed) {
        out_->uncertain = true;
      } else {
        resolve(include, from);
      }
    }
  }

 private:
  void resolve(const Include& include, const std::string& from) {
    if (const auto known = embedded_.find(include.name); known != embedded_.end()) {
      // Its own includes are followed once, from its first mention.
      if (entered_.insert(include.name).second) follow(known->second, "");
      return;
    }
    if (include.quoted && !from.empty() && take(from, include.name)) return;
    for (const std::string& folder : folders_) {
      if (take(folder, include.name)) return;
    }
    if (!toolkit_.empty() && !take(toolkit_, include.name)) {
      take(toolkit_ + "/cccl", include.name);  // CUDA 13 keeps these headers there
    }
  }

  bool take(const std::string& folder, const std::string& name) {
    const fs::path path = (fs::path(folder) / name).lexically_normal();
    if (!read_.insert(path.string()).second) return true;
    const std::optional<std::string> text = read_file(path);
    if (!text) {
      read_.erase(path.string());
      return false;
    }
    const bool in_toolkit = !toolkit_.empty() && path.string().starts_with(toolkit_ + "/");
    (in_toolkit ? out_->toolkit : out_->named).push_back({name, to_hex(sha256(*text))});
    follow(*text, path.parent_path().string());
    return true;
  }

  std::map<std::string_view, std::string_view> embedded_;  // each header's #include lines
  const std::vector<std::string>& folders_;
  const std::string& toolkit_;
  OutsideHeaders* out_;
  std::set<std::string> entered_, read_;
};

void sort(std::vector<OutsideHeader>* headers) {
  std::sort(headers->begin(), headers->end(), [](const OutsideHeader& a, const OutsideHeader& b) {
    return a.name != b.name ? a.name < b.name : a.digest < b.digest;
  });
}

// Returns the value of "--name=value", "--name" "value", "-Nvalue" at options[*i]; moves *i past
// it.
std::optional<std::string> value_of(const std::vector<std::string>& options, size_t* i,
                                    std::string_view name, bool joined) {
  const std::string& option = options[*i];
  if (!option.starts_with(name)) return std::nullopt;
  std::string rest = option.substr(name.size());
  if (rest.empty()) return *i + 1 < options.size() ? std::optional(options[++*i]) : std::nullopt;
  if (rest.starts_with('=')) return rest.substr(1);
  if (joined) return rest;
  return std::nullopt;
}

}  // namespace

std::vector<Include> includes_of(std::string_view text) {
  std::vector<Include> found;
  constexpr std::string_view kWord = "include";
  // A text has few number signs, so that it is searched as fast as memory is.
  for (size_t at = text.find('#'); at != text.npos; at = text.find('#', at + 1)) {
    size_t begin = at + 1;
    while (begin < text.size() && blank(text[begin])) ++begin;
    if (text.substr(begin, kWord.size()) != kWord) continue;
    begin += kWord.size();
    if (text.substr(begin, 5) == "_next") begin += 5;
    while (begin < text.size() && blank(text[begin])) ++begin;
    if (begin >= text.size()) break;
    const char open = text[begin];
    if (open != '"' && open != '<') {
      found.push_back({"", false, true});
      continue;
    }
    const size_t end = text.find_first_of(open == '"' ? "\"\n" : ">\n", begin + 1);
    if (end == text.npos || text[end] == '\n') continue;
    found.push_back({std::string(text.substr(begin + 1, end - begin - 1)), open == '"', false});
  }
  return found;
}

OutsideHeaders outside_headers(std::string_view text, const std::vector<SourceText>& embedded,
                               const std::vector<std::string>& folders,
                               const std::string& toolkit) {
  OutsideHeaders out;
  Walk walk(embedded, folders, toolkit, &out);
  walk.follow(text, "");
  sort(&out.named);
  sort(&out.toolkit);
  return out;
}

IncludeOptions include_options(const std::vector<std::string>& options) {
  IncludeOptions found;
  for (size_t i = 0; i < options.size(); ++i) {
    if (auto folder = value_of(options, &i, "--include-path", false)) {
      found.folders.push_back(*folder);
    } else if (auto short_folder = value_of(options, &i, "-I", true)) {
      found.folders.push_back(*short_folder);
    } else if (auto file = value_of(options, &i, "--pre-include", false)) {
      found.files.push_back(*file);
    } else if (auto short_file = value_of(options, &i, "-include", false)) {
      found.files.push_back(*short_file);
    }
  }
  return found;
}

}  // namespace opdock
