// opdock new: makes a plugin's folder from a template, ready to build, test and measure.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "commands.h"
#include "fmt/format.h"
#include "own_files.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

namespace fs = std::filesystem;

// Stands for the plugin's name in the templates' texts and file names.
constexpr std::string_view kPlaceholder = "opname";

// Names that a plugin cannot have, because the name becomes a function in C++ and in Python, and a
// file.
constexpr std::string_view kReserved[] = {
    // C++
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return",
    "co_yield", "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
    "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline",
    "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr",
    "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast",
    "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
    "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
    "while", "xor", "xor_eq",
    // Python
    "as", "assert", "async", "await", "def", "del", "elif", "except", "finally", "from", "global",
    "import", "in", "is", "lambda", "nonlocal", "pass", "raise", "with", "yield",
    // Names that the templates and Meson use
    "opdock", "torch", "test", "opname"};

constexpr size_t kLongestName = 64;

void check_name(const std::string& name) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool plain = !name.empty() && is_lower(name[0]) && name.size() <= kLongestName &&
                     std::all_of(name.begin(), name.end(), [&](char c) {
                       return is_lower(c) || (c >= '0' && c <= '9') || c == '_';
                     });
  if (!plain) {
    throw Failure{OPDOCK_INVALID_ARGUMENT,
                  fmt::format("new: found the name \"{}\", wanted a small letter, then at most {} "
                              "small letters, digits and _, such as my_op",
                              name, kLongestName - 1)};
  }
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    throw Failure{OPDOCK_INVALID_ARGUMENT,
                  fmt::format("new: found the name \"{}\", which C++, Python or the templates "
                              "have taken, wanted another, such as my_{}",
                              name, name)};
  }
}

std::string with_name(std::string text, const std::string& name) {
  for (size_t at = 0; (at = text.find(kPlaceholder, at)) != text.npos; at += name.size())
    text.replace(at, kPlaceholder.size(), name);
  return text;
}

Failure cannot(const char* what, const fs::path& path, const std::error_code& error) {
  return {OPDOCK_INTERNAL, fmt::format("new: {} {}: {}; check the folder's rights and the space "
                                       "on its disk",
                                       what, path.string(), error.message())};
}

void write_file(const fs::path& from, const fs::path& to, const std::string& name) {
  std::ifstream in(from, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::ofstream out(to, std::ios::binary);
  out << with_name(text, name);
  out.close();
  if (!in || !out) throw cannot("cannot write", to, std::make_error_code(std::errc::io_error));
}

// Copies a template into `target`. Returns the files' names relative to `target`.
std::vector<std::string> fill(const fs::path& from, const fs::path& target,
                              const std::string& name) {
  std::vector<std::string> written;
  for (auto at = fs::recursive_directory_iterator(from); at != fs::end(at); ++at) {
    const fs::directory_entry& entry = *at;
    const fs::path to = target / with_name(entry.path().lexically_relative(from).string(), name);
    if (entry.is_directory()) {
      // pip compiles every *.py that it installs, templates too.
      if (entry.path().filename() == "__pycache__") at.disable_recursion_pending();
      continue;
    }
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    if (error) throw cannot("cannot make", to.parent_path(), error);
    write_file(entry.path(), to, name);
    written.push_back(to.lexically_relative(target).string());
  }
  return written;
}

}  // namespace

int new_command(const NewCommand& command) {
  check_name(command.name);
  const std::string data = own_files().data;
  const fs::path templates = fs::path(data) / "templates";
  std::error_code error;
  if (data.empty() || !fs::is_directory(templates / command.kind, error)) {
    throw Failure{OPDOCK_NOT_FOUND,
                  fmt::format("new: found no templates in {}, wanted the folder {}; install Opdock "
                              "again",
                              data.empty() ? "share/opdock" : data, command.kind)};
  }
  const fs::path parent = command.folder.empty() ? "." : command.folder;
  const fs::path target = parent / command.name;
  if (fs::create_directories(parent, error); error) throw cannot("cannot make", parent, error);
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    throw Failure{OPDOCK_INVALID_ARGUMENT,
                  fmt::format("new: found {} there already, wanted a name that is free; choose "
                              "another, or another folder with --in",
                              target.string())};
  }
  if (!fs::create_directory(target, error)) throw cannot("cannot make", target, error);
  std::vector<std::string> files;
  for (const fs::path& from : {templates / "common", templates / command.kind})
    for (std::string& file : fill(from, target, command.name)) files.push_back(std::move(file));
  std::sort(files.begin(), files.end());
  if (command.json) {
    print_json({{"path", fs::absolute(target).lexically_normal().string()},
                {"kind", command.kind},
                {"files", files}});
    return kGood;
  }
  const std::string path = printable(target.lexically_normal().string());
  print(path + "\n");
  for (const std::string& file : files) print("  " + printable(file) + "\n");
  print(fmt::format("Next: opdock test {0}; opdock bench {0}; opdock build {0}\n", path));
  return kGood;
}

}  // namespace opdock::cli
