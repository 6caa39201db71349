// SPDX-License-Identifier: Apache-2.0
#include "value_checks.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/similar_names.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "inspect_text.h"
#include "report_text.h"
#include "usage.h"

namespace opdock::cli {
namespace {

// Returns the errno of looking for `path`; 0: it exists.
int look(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? 0 : errno;
}

}  // namespace

void check_word(const std::string& option, const std::vector<std::string>& words,
                const std::string& text) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return;
  const std::vector<std::string> similar = similar_names(text, words);
  throw Usage{quoted(text), join_or(words),
              similar.empty() ? "" : fmt::format("did you mean {}?", similar.front()), option, ""};
}

void check_number(const std::string& option, uint64_t least, uint64_t most,
                  const std::string& or_else, const std::string& text) {
  uint64_t value = UINT64_MAX;  // unchanged if there are more digits than fit
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  const bool is_number = next == end && !text.empty();
  if (is_number && error == std::errc() && value >= least && value <= most) return;
  throw Usage{quoted(text),
              is_number && value >= least ? fmt::format("at most {}", most)
                                          : fmt::format("a whole number of at least {}", least),
              or_else, option, ""};
}

void check_seconds(const std::string& option, const std::string& or_else, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && value > 0) return;  // NaN is not above 0
  throw Usage{quoted(text), "a number of seconds above 0", or_else, option, ""};
}

void check_exists(const std::string& option, const std::string& wanted, const std::string& path) {
  const int error = look(path);
  if (error == 0) return;
  throw Usage{fmt::format("\"{}\": {}", path, std::strerror(error)), wanted, "correct the path",
              option, ""};
}

bool may_be_name(const std::string& text) {
  return !text.empty() && text.find('/') == text.npos && look(text) != 0;
}

void check_source_plugin(const std::string& option, const std::string& path) {
  check_exists(option, "a plugin", path);
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return;
  if (!std::filesystem::is_directory(path, error)) {  // reading a FIFO would block
    throw Usage{quoted(path) + ", which is neither a file nor a folder", "a plugin", "", option,
                ""};
  }
  if (look(path + "/plugin.toml") == 0) return;
  throw Usage{fmt::format("no plugin.toml in \"{}\"", path),
              "a plugin's folder, as `opdock new NAME` makes", "", option, ""};
}

void check_paths(const std::string& option, const std::string& paths) {
  for (size_t begin = 0; begin < paths.size();) {
    const size_t end = std::min(paths.find(':', begin), paths.size());
    if (end > begin) {
      check_exists(option, "plugins' folders or files, with colons between",
                   paths.substr(begin, end - begin));
    }
    begin = end + 1;
  }
}

void check_can_be_made(const std::string& option, const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos || slash == 0) return;
  check_exists(option, "a folder to write the file in", path.substr(0, slash));
}

void check_page(const std::string& option, const std::string& path) {
  check_can_be_made(option, path);
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (there.type() == std::filesystem::file_type::not_found) return;
  if (std::filesystem::is_regular_file(there)) {
    std::string head(1024, '\0');
    std::ifstream file(path);
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<size_t>(file.gcount()));
    if (head.empty() && file.eof()) return;
    if (head.starts_with("<!DOCTYPE html>") && head.find(kPageTitle) != head.npos) return;
  }
  throw Usage{quoted(path) + ", which is no page that opdock wrote",
              "a new file, or such a page to replace",
              "what is to be inspected does not follow --html", option, ""};
}

void check_op_name(const std::string& text) {
  if (text.find('=') == text.npos) return;
  throw Usage{quoted(text), "the op's name first, then its arguments",
              fmt::format("write `opdock run OP '{}'`", text), "OP", ""};
}

}  // namespace opdock::cli
