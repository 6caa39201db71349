// SPDX-License-Identifier: Apache-2.0
#include "link/python.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "link/library_pool.h"
#include "link/search.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns "3.11" for "python3.11" or "libpython3.11.so.1.0", "3.13t" for "python3.13t", and "" for
// other names.
std::string version_in(const std::string& name) {
  const size_t at = name.find("python3.");
  if (at == name.npos) return {};
  size_t end = at + 8;
  while (end < name.size() && is_digit(name[end])) ++end;
  if (end == at + 8) return {};
  if (end < name.size() && name[end] == 't') ++end;
  return name.substr(at + 6, end - at - 6);
}

// Returns "3.13t" for the digits "313t", and "" for other texts.
std::string version_of_digits(std::string_view digits) {
  const bool is_free = digits.ends_with('t');
  const std::string_view minor =
      digits.substr(std::min<size_t>(1, digits.size()), digits.size() - (is_free ? 2 : 1));
  if (!digits.starts_with('3') || minor.empty() ||
      minor.find_first_not_of("0123456789") != minor.npos) {
    return {};
  }
  return "3." + std::string(minor) + (is_free ? "t" : "");
}

int minor_of(const std::string& version) {
  return version.size() < 3 ? 0 : std::atoi(version.c_str() + 2);
}

bool fits_need(const std::string& version, const PythonNeed& need) {
  if (version.empty()) return false;
  if (need.version.empty()) return true;
  if (!need.or_newer) return version == need.version;
  return !version.ends_with('t') && minor_of(version) >= minor_of(need.version);
}

// Returns the folders of the interpreters that pyenv's shims in `folder` start. Those that pyenv
// would choose, by its variable or its file, come first.
std::vector<std::string> behind_shims(const std::string& folder) {
  constexpr std::string_view kShims = "/shims";
  if (!folder.ends_with(kShims)) return {};
  const std::string root = folder.substr(0, folder.size() - kShims.size());
  std::vector<std::string> names;
  if (list_folder(root + "/versions", &names) != 0) return {};
  std::sort(names.rbegin(), names.rend());
  const char* const variable = ::secure_getenv("PYENV_VERSION");
  std::ifstream file(root + "/version");
  std::string chosen((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (variable != nullptr) chosen = variable;
  std::replace(chosen.begin(), chosen.end(), ':', '\n');
  std::vector<std::string> folders;
  std::istringstream lines(chosen);
  for (std::string name; lines >> name;) {
    if (name.find('/') == name.npos) folders.push_back(root + "/versions/" + name + "/bin");
  }
  for (const std::string& name : names) folders.push_back(root + "/versions/" + name + "/bin");
  return folders;
}

// Returns a Python interpreter's version, from the program's name or its libpython; "" if it is
// none, such as a script that starts one.
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

std::vector<std::string> candidates(const PythonNeed& need, const std::string& preferred) {
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
  const auto look_in = [&](const std::string& folder) {
    if (!need.version.empty() && !need.or_newer) paths.push_back(folder + "/python" + need.version);
    paths.push_back(folder + "/python3");
    constexpr int kMaxLater = 20;
    const int least = minor_of(need.version);
    for (int minor = least; need.or_newer && minor <= least + kMaxLater; ++minor) {
      paths.push_back(folder + "/python3." + std::to_string(minor));
    }
  };
  for (const std::string& folder : folders) {
    look_in(folder);
    for (const std::string& behind : behind_shims(folder)) look_in(behind);
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

std::string PythonNeed::text() const {
  if (is_another) return "another Python than CPython";
  if (version.empty()) return "Python";
  const bool is_free = version.ends_with('t');
  return "Python " + version.substr(0, version.size() - (is_free ? 1 : 0)) +
         (is_free ? " without its lock" : "") + (or_newer ? " or newer" : "");
}

PythonNeed python_of_path(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const char* other : {".pypy", ".graalpy"}) {
    if (name.find(other) != name.npos) return {.is_another = true};
  }
  constexpr std::string_view kTag = ".cpython-";
  if (const size_t at = name.find(kTag); at != name.npos) {
    const size_t begin = at + kTag.size();
    return {.version =
                version_of_digits(name.substr(begin, name.find_first_of("-.", begin) - begin))};
  }
  for (const char* packages : {"/site-packages/", "/dist-packages/"}) {
    const size_t end = path.find(packages);
    if (end == path.npos) continue;
    const size_t begin = path.rfind('/', end - 1) + 1;
    return {.version = version_in(path.substr(begin, end - begin))};
  }
  return {};
}

PythonNeed python_of_tags(const std::string& python, const std::string& abi) {
  PythonNeed need;
  std::istringstream tags(python);
  for (std::string tag; std::getline(tags, tag, '.');) {
    if (tag.starts_with("pp") || tag.starts_with("graalpy")) need.is_another = true;
    if (!tag.starts_with("cp")) continue;
    const bool is_free = abi == tag + "t";
    const std::string version = version_of_digits(tag.substr(2) + (is_free ? "t" : ""));
    const bool is_less = need.version.empty() || minor_of(version) < minor_of(need.version);
    if (!version.empty() && is_less) need.version = version;
  }
  need.is_another = need.is_another && need.version.empty();
  need.or_newer = !need.version.empty() && (abi == "abi3" || abi == "none");
  return need;
}

std::optional<std::string> find_python(const PythonNeed& need, const std::string& preferred) {
  if (need.is_another) return std::nullopt;
  for (const std::string& path : candidates(need, preferred)) {
    if (fits_need(version_of(path), need)) return path;
  }
  return std::nullopt;
}

}  // namespace opdock
