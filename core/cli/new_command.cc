// opdock new: makes a plugin's folder from a template, ready to build, test and measure, or of a
// formula.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/texts.h"
#include "commands.h"
#include "fmt/format.h"
#include "opdock/formula.h"
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

// The texts that replace placeholders in the templates, one after the other.
using Replacements = std::vector<std::pair<std::string_view, std::string>>;

std::string replaced(std::string text, const Replacements& replacements) {
  for (const auto& [placeholder, value] : replacements) {
    for (size_t at = 0; (at = text.find(placeholder, at)) != text.npos; at += value.size())
      text.replace(at, placeholder.size(), value);
  }
  return text;
}

Failure cannot(const char* what, const fs::path& path, const std::error_code& error) {
  return {OPDOCK_INTERNAL, fmt::format("new: {} {}: {}; check the folder's rights and the space "
                                       "on its disk",
                                       what, path.string(), error.message())};
}

void write_file(const fs::path& from, const fs::path& to, const Replacements& replacements) {
  std::ifstream in(from, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::ofstream out(to, std::ios::binary);
  out << replaced(text, replacements);
  out.close();
  if (!in || !out) throw cannot("cannot write", to, std::make_error_code(std::errc::io_error));
}

// Copies a template into `target`. Returns the files' names relative to `target`.
std::vector<std::string> fill(const fs::path& from, const fs::path& target,
                              const Replacements& replacements) {
  std::vector<std::string> written;
  for (auto at = fs::recursive_directory_iterator(from); at != fs::end(at); ++at) {
    const fs::directory_entry& entry = *at;
    const fs::path to =
        target / replaced(entry.path().lexically_relative(from).string(), replacements);
    if (entry.is_directory()) {
      // pip compiles every *.py that it installs, templates too.
      if (entry.path().filename() == "__pycache__") at.disable_recursion_pending();
      continue;
    }
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    if (error) throw cannot("cannot make", to.parent_path(), error);
    write_file(entry.path(), to, replacements);
    written.push_back(to.lexically_relative(target).string());
  }
  return written;
}

// Returns a text as a value of TOML.
std::string toml_text(const std::string& text) {
  if (text.find_first_of("\n\"\\") == text.npos) return '"' + text + '"';
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || (c == '"' && escaped.ends_with("\"\""))) escaped += '\\';
    escaped += c;
  }
  return "\"\"\"\n" + escaped + "\n\"\"\"";
}

opdock_function* make_function(const Runtime& runtime, const char* schema,
                               const std::string& formula) {
  opdock_function* function = nullptr;
  try {
    check([&](char* error, uint32_t size) {
      return opdock_make_function(runtime.get(), schema, formula.c_str(), &function, error, size);
    });
  } catch (Failure& failure) {
    failure.text = "new: " + failure.text;
    throw;
  }
  return function;
}

// Returns the dtypes of which all tensors may be. Empty: those that plugin.toml has by default.
std::vector<std::string> wanted_dtypes(const opdock_function* function) {
  const auto takes = [&](const char* dtype) {
    char* source = nullptr;
    const opdock_status status = opdock_formula_source(function, dtype, &source, nullptr, 0);
    opdock_free(source);
    return status == OPDOCK_OK;
  };
  std::vector<std::string> found;
  if (takes("float32")) return found;
  for (const char* dtype : {"int64", "int32", "int16", "int8", "uint8", "bool"})
    if (takes(dtype)) found.emplace_back(dtype);
  return found;
}

// Returns what stands in the template of a formula. Throws Failure, with the line and the column,
// for a faulty one.
Replacements of_formula(const NewCommand& command) {
  opdock_options options{};
  options.struct_size = sizeof options;
  const Runtime runtime(options);
  const opdock_function* function = make_function(runtime, nullptr, command.formula);
  const opdock_function_info& info = *opdock_describe(function);
  const std::string any = info.schema, schema = command.name + any.substr(any.find('('));
  function = make_function(runtime, schema.c_str(), command.formula);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < info.num_params; ++i) names.emplace_back(info.params[i].name);
  std::string doc = names[0] + ": any shape.";
  const std::vector<std::string> others(names.begin() + 1, names.end());
  if (!others.empty())
    doc += fmt::format(" {}: {}'s shape, or one that is broadcast to it.", join(others, ", "),
                       names[0]);
  const std::vector<std::string> dtypes = wanted_dtypes(function);
  doc += fmt::format("\n{}, any strides.",
                     dtypes.empty() ? "float32, float16, bfloat16 or float64" : join_or(dtypes));
  std::string more;
  for (const std::string& dtype : dtypes) more += (more.empty() ? "" : ", ") + quoted(dtype);
  if (!more.empty()) more = "dtypes = [" + more + "]\n";
  return {{"@SCHEMA@", schema},
          {"@DOC@", toml_text(doc)},
          {"@DTYPES@\n", more},
          {"@FORMULA@", toml_text(opdock_function_formula(function))}};
}

}  // namespace

int new_command(const NewCommand& command) {
  check_name(command.name);
  const std::string kind = command.formula.empty() ? command.kind : "formula";
  Replacements replacements = {{kPlaceholder, command.name}};
  if (kind == "formula")
    for (auto& one : of_formula(command)) replacements.push_back(std::move(one));
  const std::string data = own_files().data;
  const fs::path templates = fs::path(data) / "templates";
  std::error_code error;
  if (data.empty() || !fs::is_directory(templates / kind, error)) {
    throw Failure{OPDOCK_NOT_FOUND,
                  fmt::format("new: found no templates in {}, wanted the folder {}; install Opdock "
                              "again",
                              data.empty() ? "share/opdock" : data, kind)};
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
  std::vector<fs::path> folders = {templates / kind};
  if (kind != "formula") folders.push_back(templates / "common");
  for (const fs::path& from : folders)
    for (std::string& file : fill(from, target, replacements)) files.push_back(std::move(file));
  std::sort(files.begin(), files.end());
  if (command.json) {
    print_json({{"path", fs::absolute(target).lexically_normal().string()},
                {"kind", kind},
                {"files", files}});
    return kGood;
  }
  const std::string path = printable(target.lexically_normal().string());
  print(path + "\n");
  for (const std::string& file : files) print("  " + printable(file) + "\n");
  print(kind == "formula"
            ? fmt::format("Next: opdock test {0}; opdock install {0}; opdock show {1} --kernel\n",
                          path, command.name)
            : fmt::format("Next: opdock test {0}; opdock bench {0}; opdock build {0}\n", path));
  return kGood;
}

}  // namespace opdock::cli
