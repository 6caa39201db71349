// SPDX-License-Identifier: Apache-2.0
#include "inspect/imports.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace opdock {
namespace {

// A literal counts if its last part is the name of a file, which has at most 255 bytes. Longer ones
// are descriptions.
constexpr size_t kMaxText = 256;
constexpr size_t kMaxFound = 100'000;  // of a source's texts and imports, more than any has

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\f' || c == '\r';
}

// Cuts a source into logical lines, with "" in place of each string and without comments.
class Lines {
 public:
  Lines(std::string_view source, std::vector<std::string>* texts)
      : source_(source), texts_(texts) {}

  // Gets the next line. Returns false at the end. *indent: in columns.
  bool next(std::string* line, size_t* indent) {
    line->clear();
    *indent = 0;
    for (; at_ < source_.size() && (is_space(source_[at_])); ++at_) {
      *indent += source_[at_] == '\t' ? 8 - *indent % 8 : 1;
    }
    if (at_ >= source_.size()) return false;
    int depth = 0;  // number of open brackets, in which a statement continues on the next line
    for (; at_ < source_.size(); ++at_) {
      const char c = source_[at_];
      if (c == '\n' && depth <= 0) {
        ++at_;
        return true;
      }
      if (c == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size()) - 1;
      } else if (c == '"' || c == '\'') {
        take_string(line);
      } else if (c == '\\') {
        ++at_;  // the newline after it
      } else {
        depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
        line->push_back(c == '\n' ? ' ' : c);
      }
    }
    return true;
  }

 private:
  // Takes a string, from the opening quote to the closing one.
  void take_string(std::string* line) {
    constexpr std::string_view kPrefixes = "rRbBuUfF";
    for (int i = 0; i < 2 && !line->empty() && kPrefixes.find(line->back()) != kPrefixes.npos;
         ++i) {
      line->pop_back();
    }
    const char quote = source_[at_];
    const std::string three(3, quote);
    const bool is_long = source_.substr(at_, 3) == three;
    at_ += is_long ? 3 : 1;
    const size_t begin = at_;
    while (at_ < source_.size() &&
           !(is_long ? source_.substr(at_, 3) == three : source_[at_] == quote)) {
      if (!is_long && source_[at_] == '\n') break;  // this is not Python
      at_ += source_[at_] == '\\' && at_ + 1 < source_.size() ? 2 : 1;
    }
    const size_t end = std::min(at_, source_.size());
    const bool is_kept = end > begin && end - begin <= kMaxText && texts_->size() < kMaxFound;
    if (is_kept) texts_->emplace_back(source_.substr(begin, end - begin));
    const bool is_closed = end < source_.size() && source_[end] != '\n';
    at_ = is_closed ? end + (is_long ? 2 : 0) : end - 1;  // the last character that is taken
    *line += "\"\"";
  }

  std::string_view source_;
  std::vector<std::string>* texts_;
  size_t at_ = 0;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (is_space(text.front()) || text.front() == '(')) text.remove_prefix(1);
  while (!text.empty() && (is_space(text.back()) || text.back() == ')')) text.remove_suffix(1);
  return text;
}

// Returns "a" for "a as b".
std::string first_word(std::string_view text) {
  text = trimmed(text);
  const auto end =
      std::find_if(text.begin(), text.end(), [](char c) { return !is_name_char(c) && c != '.'; });
  return {text.begin(), end};
}

std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (std::string name = first_word(text.substr(0, end)); !name.empty()) {
      names.push_back(std::move(name));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

bool begins_with(std::string_view text, std::string_view word) {
  return text.starts_with(word) && (text.size() == word.size() || !is_name_char(text[word.size()]));
}

size_t find_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_name_char(text[at - 1]);
    if (begins && (end == text.size() || !is_name_char(text[end]))) return at;
  }
  return text.npos;
}

void read_statement(std::string_view text, bool is_later, std::vector<PythonImport>* imports) {
  text = trimmed(text);
  for (std::string_view keyword : {"try:", "else:", "finally:"}) {
    if (text.starts_with(keyword)) text = trimmed(text.substr(keyword.size()));
  }
  if (begins_with(text, "import")) {
    for (std::string& module : list_of(text.substr(6)))
      imports->push_back({0, std::move(module), {}, is_later});
    return;
  }
  if (!begins_with(text, "from")) return;
  text = trimmed(text.substr(4));
  PythonImport found;
  found.is_later = is_later;
  for (; !text.empty() && (text.front() == '.' || is_space(text.front())); text.remove_prefix(1)) {
    found.level += text.front() == '.' ? 1 : 0;
  }
  const size_t at = find_word(text, "import");
  if (at == text.npos) return;
  found.module = first_word(text.substr(0, at));  // empty for "from . import a"
  found.names = list_of(text.substr(at + 6));
  imports->push_back(std::move(found));
}

// These return whether a line begins a block that an import of the module does not execute.
bool is_function(std::string_view line) {
  return begins_with(line, "def") || line.starts_with("async def ");
}
bool is_left_out(std::string_view line) {
  return begins_with(line, "if") &&
         (line.find("TYPE_CHECKING") != line.npos || line.find("__name__") != line.npos);
}

bool opens_libraries(std::string_view line) {
  for (std::string_view name : {"CDLL", "LoadLibrary", "load_library", "dlopen", "RTLD_GLOBAL"}) {
    if (line.find(name) != line.npos) return true;
  }
  return false;
}

}  // namespace

PythonSource read_python(std::string_view source) {
  PythonSource found;
  Lines lines(source, &found.texts);
  std::string line;
  size_t indent = 0;
  // The columns of the outermost function, and of the left-out block, that the line is in.
  std::optional<size_t> function, left_out;
  while (found.imports.size() < kMaxFound && lines.next(&line, &indent)) {
    const std::string_view text = trimmed(line);
    if (text.empty()) continue;
    found.loads_libraries = found.loads_libraries || opens_libraries(text);
    if (function && indent <= *function) function.reset();
    if (left_out && indent <= *left_out) left_out.reset();
    if (left_out) continue;
    if (is_left_out(text)) left_out = indent;
    if (!function && is_function(text)) function = indent;
    for (size_t begin = 0; begin < line.size();) {
      const size_t end = std::min(line.find(';', begin), line.size());
      read_statement(std::string_view(line).substr(begin, end - begin), function.has_value(),
                     &found.imports);
      begin = end + 1;
    }
  }
  return found;
}

}  // namespace opdock
