// SPDX-License-Identifier: Apache-2.0
#include "pack/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "pack/ask.h"

namespace opdock::pack {
namespace {

std::string pkg_config() {
  const char* named = std::getenv("PKG_CONFIG");
  return named == nullptr || *named == 0 ? "pkg-config" : named;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::string needs_header(const Manifest& manifest) {
  const BuildNeeds& needs = manifest.build;
  std::string text = "// Written by opdock-pack from plugin.toml: what [build] says.\n";
  // An empty line follows each define: a value may end in a backslash.
  for (const std::string& define : needs.defines) {
    const size_t end = std::min(define.find('='), define.size());
    const std::string value = end == define.size() ? "1" : define.substr(end + 1);
    text += fmt::format("#define {} {}\n\n", define.substr(0, end), value);
  }
  // The texts are in brackets, because they may end in a backslash too.
  for (const std::string& folder : needs.include) text += fmt::format("// include [{}]\n", folder);
  for (const auto& [compiler, flags] : needs.flags)
    for (const std::string& flag : flags) text += fmt::format("// {} [{}]\n", compiler, flag);
  for (const LinkedLibrary& library : needs.libraries)
    text += fmt::format("// library [{}]\n", library.name);
  return text;
}

std::optional<Reason> ask_libraries(const BuildNeeds& needs, LibraryArguments* out) {
  for (const LinkedLibrary& library : needs.libraries) {
    if (!library.by_pkg_config) {
      out->link.push_back("-l" + library.name);
      continue;
    }
    const auto ask = [&](const char* question) {
      return output_of({pkg_config(), "--print-errors", question, library.name});
    };
    const Answer compile = ask("--cflags"), link = ask("--libs");
    if (!compile.ok || !link.ok) {
      return make_reason(Code::kBuildNoLibrary,
                         fmt::format("no library {} by pkg-config: {}", library.name,
                                     first_line(compile.ok ? link.text : compile.text)),
                         fmt::format("{}.pc, as plugin.toml names it", library.name));
    }
    for (std::string& word : words_of(compile.text)) out->compile.push_back(std::move(word));
    for (std::string& word : words_of(link.text)) out->link.push_back(std::move(word));
    const Answer folder = ask("--variable=pcfiledir");
    const std::filesystem::path file =
        std::filesystem::path(first_line(folder.text)) / (library.name + ".pc");
    std::error_code failed;
    if (folder.ok && std::filesystem::is_regular_file(file, failed)) out->files.push_back(file);
  }
  return std::nullopt;
}

std::string response_file(const Arguments& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    for (const char c : argument) {
      if (std::string_view(" \t\n'\"\\").find(c) != std::string_view::npos) text += '\\';
      text += c;
    }
    text += '\n';
  }
  return text;
}

Arguments words_of(std::string_view text) {
  Arguments words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (is_blank && quote == 0) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace opdock::pack
