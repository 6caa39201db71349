// SPDX-License-Identifier: Apache-2.0
#include "link/python.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "link/library_pool.h"
#include "link/search.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "3.11" of "python3.11" or "libpython3.11.so.1.0"; empty where it is not there.
std::string version_in(const std::string& name) {
  const size_t at = name.find("python3.");
  if (at == name.npos) return {};
  size_t end = at + 8;
  while (end < name.size() && is_digit(name[end])) ++end;
  return end == at + 8 ? std::string() : name.substr(at + 6, end - at - 6);
}

// The version of a program, by its own name or by the library that is most of it; empty: it is no
// interpreter, but a script that starts one, say.
std::string version_of(const std::string& path) {
  const auto program = LibraryPool::shared().get(path, Files());
  if (program == nullptr || program->machine != kThisMachine) return {};
  if (program->refusal && program->refusal->code != Code::kElfType) return {};
  std::error_code failed;
  const std::string real = fs::canonical(path, failed).filename().string();
  if (std::string version = version_in(real); !version.empty()) return version;
  for (const std::string& needed : program->dynamic.needed) {
    if (std::string version = version_in(needed); !version.empty()) return version;
  }
  return {};
}

std::vector<std::string> candidates(const std::string& version, const std::string& preferred) {
  std::vector<std::string> paths;
  if (!preferred.empty()) paths.push_back(preferred);
  std::vector<std::string> folders;
  if (const char* environment = ::secure_getenv("VIRTUAL_ENV")) {
    folders.push_back(std::string(environment) + "/bin");
  }
  const char* const path = ::secure_getenv("PATH");
  for (std::string rest = path == nullptr ? "" : path; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end != 0) folders.push_back(rest.substr(0, end));
    rest.erase(0, end + 1);
  }
  folders.push_back("/usr/bin");
  for (const std::string& folder : folders) {
    if (!version.empty()) paths.push_back(folder + "/python" + version);
    paths.push_back(folder + "/python3");
  }
  return paths;
}

}  // namespace

bool wants_python(const Library& library) {
  const auto& needed = library.dynamic.needed;
  if (std::any_of(needed.begin(), needed.end(),
                  [](const std::string& name) { return name.starts_with("libpython"); })) {
    return false;
  }
  bool wants = false;
  library.symbols.for_each_wanted([&](const WantedSymbol& wanted) {
    wants = wants || (is_python_symbol(wanted.name) && !wanted.weak);
  });
  return wants;
}

std::string python_version_of(const std::string& path) {
  constexpr std::string_view kTag = ".cpython-3";
  const size_t at = path.find(kTag, path.rfind('/') + 1);
  if (at == path.npos) return {};
  size_t end = at + kTag.size();
  while (end < path.size() && is_digit(path[end])) ++end;
  const std::string minor = path.substr(at + kTag.size(), end - at - kTag.size());
  return minor.empty() ? std::string() : "3." + minor;
}

std::optional<std::string> find_python(const std::string& version, const std::string& preferred) {
  for (const std::string& path : candidates(version, preferred)) {
    const std::string own = version_of(path);
    if (!own.empty() && (version.empty() || own == version)) return path;
  }
  return std::nullopt;
}

}  // namespace opdock
