// SPDX-License-Identifier: Apache-2.0
#include "manifest/build_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "arch/cuda_list.h"
#include "facts/arch.h"

namespace opdock {
namespace {

constexpr std::string_view kPkgConfig = "pkg-config:";
constexpr char kBig[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr char kSmall[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kDigits[] = "0123456789";

bool has_only(std::string_view text, const std::string& allowed) {
  return text.find_first_not_of(allowed) == text.npos;
}

// Returns whether the text is one line, because arguments and defines are handed on one per line.
bool is_one_line(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; });
}

struct Refused {
  std::string_view compiler;  // "": all compilers of the host part
  std::string_view begin;
  std::string_view wanted;
};

// Arguments that are refused, because the code would be for another processor than the note claims,
// or for another GPU than the list of architectures claims.
constexpr char kLevels[] =
    "what every processor of this kind can run; code for newer ones goes into simd_sources";
constexpr char kArchs[] = "the architectures in the list that the build is asked for (--archs)";
constexpr char kHipArchs[] = "the processors in the list that the build is asked for (--hip-archs)";
constexpr Refused kRefused[] = {
    {"", "-march=", kLevels},
    {"", "-mcpu=", kLevels},
    {"", "-mavx", kLevels},
    {"", "-msse", kLevels},
    {"", "-mfma", kLevels},
    {"nvcc", "-arch", kArchs},
    {"nvcc", "--gpu-architecture", kArchs},
    {"nvcc", "-gencode", kArchs},
    {"nvcc", "--generate-code", kArchs},
    {"hipcc", "--offload-arch", kHipArchs},
};

class Reader {
 public:
  Reader(const toml::table& toml, const Manifest& manifest, std::vector<Mistake>* mistakes)
      : toml_(toml), manifest_(manifest), mistakes_(mistakes), table_(toml, "[build]", mistakes) {}

  BuildNeeds read() {
    table_.only({"include", "defines", "flags", "libraries", "least-cuda-arch"});
    read_include();
    read_defines();
    read_flags();
    read_libraries();
    read_least();
    return std::move(needs_);
  }

 private:
  void read_include() {
    namespace fs = std::filesystem;
    needs_.include = table_.texts("include", false);
    table_.check_once("include", needs_.include);
    for (const std::string& folder : needs_.include) {
      const auto refuse = [&](const std::string& found, std::string wanted) {
        table_.mistake("include", table_.place("include", folder), found, std::move(wanted));
      };
      const fs::path path = fs::path(folder).lexically_normal();
      const bool is_inside = path.is_relative() && *path.begin() != ".." && is_one_line(folder);
      std::error_code failed;
      if (!is_inside || *path.begin() == ".") {
        refuse(fmt::format("\"{}\"", folder), "a folder inside the plugin's folder");
      } else if (!fs::is_directory(manifest_.folder() / path, failed)) {
        refuse(fmt::format("no folder \"{}\"", folder),
               fmt::format("one in {}", manifest_.folder().string()));
      }
    }
  }

  void read_defines() {
    needs_.defines = table_.texts("defines", false);
    std::set<std::string> names;
    for (const std::string& define : needs_.defines) {
      const TextPlace place = table_.place("defines", define);
      const std::string name = define.substr(0, define.find('='));
      const bool is_name = !name.empty() && std::string_view(kDigits).find(name[0]) == name.npos &&
                           has_only(name, std::string(kBig) + kSmall + kDigits + "_");
      if (!is_name || !is_one_line(define)) {
        table_.mistake("defines", place, fmt::format("\"{}\"", define),
                       "a macro, such as \"NAME\" or \"NAME=VALUE\"");
      } else if (!names.insert(name).second) {
        table_.mistake("defines", place, fmt::format("\"{}\" twice", name), "it once");
      }
    }
  }

  void read_flags() {
    const toml::node* node = toml_.get("flags");
    if (node == nullptr) return;
    if (!node->is_table()) {
      return table_.mistake("flags", table_.place("flags"), "no table",
                            "lists by compiler, such as {cxx = [\"-ffast-math\"]}");
    }
    const std::vector<std::string> compilers = {"c", "cxx", "gcc", "clang", "nvcc", "hipcc"};
    TomlTable table(*node->as_table(), "[build] \"flags\"", mistakes_);
    table.only(compilers);
    for (const std::string& compiler : compilers) {
      std::vector<std::string> flags = table.texts(compiler, false);
      for (const std::string& flag : flags) check_flag(&table, compiler, flag);
      if (!flags.empty()) needs_.flags[compiler] = std::move(flags);
    }
    for (const auto& [compiler, ending] : {std::pair{"nvcc", ".cu"}, {"hipcc", ".hip"}}) {
      if (!needs_.flags.contains(compiler) || has_source(ending)) continue;
      table.mistake(compiler, table.place(compiler), fmt::format("no {} file", ending),
                    fmt::format("one in \"sources\" for {} to compile", compiler));
    }
  }

  void check_flag(TomlTable* table, const std::string& compiler, const std::string& flag) {
    const TextPlace place = table->place(compiler, flag);
    if (!is_one_line(flag) || !flag.starts_with('-') || flag.find(" -") != flag.npos) {
      return table->mistake(compiler, place, fmt::format("\"{}\"", flag),
                            "one argument that begins with \"-\", such as \"-O3\"");
    }
    const bool is_host = compiler != "nvcc" && compiler != "hipcc";
    for (const Refused& refused : kRefused) {
      const bool is_for = refused.compiler.empty() ? is_host : refused.compiler == compiler;
      if (is_for && flag.starts_with(refused.begin))
        return table->mistake(compiler, place, fmt::format("\"{}\"", flag),
                              std::string(refused.wanted));
    }
  }

  void read_libraries() {
    const std::vector<std::string> texts = table_.texts("libraries", false);
    table_.check_once("libraries", texts);
    for (const std::string& text : texts) {
      LinkedLibrary library{text, text.starts_with(kPkgConfig)};
      if (library.by_pkg_config) library.name.erase(0, kPkgConfig.size());
      const bool is_name = !library.name.empty() && library.name[0] != '-' &&
                           has_only(library.name, std::string(kBig) + kSmall + kDigits + "._+-") &&
                           library.name.find(".so") == library.name.npos;
      if (is_name) {
        needs_.libraries.push_back(std::move(library));
      } else {
        table_.mistake("libraries", table_.place("libraries", text), fmt::format("\"{}\"", text),
                       "a name, such as \"m\" for -lm, or \"pkg-config:openblas\"");
      }
    }
  }

  void read_least() {
    const std::string text = table_.text("least-cuda-arch", false);
    if (text.empty()) return;
    const TextPlace place = table_.place("least-cuda-arch");
    needs_.least_cuda = number_of(text);
    if (needs_.least_cuda == 0) {
      table_.mistake("least-cuda-arch", place, fmt::format("\"{}\"", text),
                     "one architecture, such as \"8.0\" or \"sm_80\"");
    }
    if (!has_cuda_op())
      table_.mistake("least-cuda-arch", place, "no op for it", "one with \"cuda\" in \"devices\"");
  }

  // Returns the number of an architecture, spelt as in lists of architectures or as compilers spell
  // it; 0 for anything else. A suffix is refused, because code for exactly one architecture runs on
  // no later one.
  static int number_of(const std::string& text) {
    if (const std::optional<CudaArch> arch = parse_cuda_arch(text))
      return arch->suffix == '\0' && !arch->is_virtual ? 10 * arch->major + arch->minor : 0;
    if (!has_only(text, std::string(kDigits) + ".")) return 0;
    Reason ignored{};
    const std::optional<CudaList> list = parse_cuda_list(text, "", &ignored);
    return list ? list->targets.front().number : 0;
  }

  bool has_source(std::string_view ending) const {
    return std::any_of(manifest_.sources.begin(), manifest_.sources.end(),
                       [&](const std::string& source) { return source.ends_with(ending); });
  }

  bool has_cuda_op() const {
    return std::any_of(manifest_.ops.begin(), manifest_.ops.end(), [](const OpDecl& op) {
      return std::find(op.devices.begin(), op.devices.end(), "cuda") != op.devices.end();
    });
  }

  const toml::table& toml_;
  const Manifest& manifest_;
  std::vector<Mistake>* mistakes_;
  TomlTable table_;
  BuildNeeds needs_;
};

}  // namespace

BuildNeeds read_build(const toml::table& toml, const Manifest& manifest,
                      std::vector<Mistake>* mistakes) {
  return Reader(toml, manifest, mistakes).read();
}

}  // namespace opdock
